"""``pubsub-db resync``."""

import argparse

from pubsub_lib.cli.output import Act
from pubsub_lib.cli.replica_client import ReplicaClient
from pubsub_lib.command import exit_codes
from pubsub_lib.core.limits import check_name


class Resync(Act):
    """Ask a running replica to read topics anew from the store. Needs no database here.

    Not needed in operation: a replica finds and repairs by itself what differs.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Whom to ask, and for what."""
        parser = super().get_parser(prog_name)
        parser.add_argument("url", metavar="URL", help="of the replica's endpoint (replica_metrics_port)")
        parser.add_argument("topics", metavar="TOPIC", nargs="*", help="what to read anew; none: all that it follows")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Ask. Raises ConfigError, NotSubscribedError, TransportError."""
        topics = [check_name("topic", topic) for topic in parsed_args.topics]
        replica = ReplicaClient(parsed_args.url)
        replica.resync(topics)
        what = ", ".join(topics) if topics else "everything that it follows"
        self.app.LOG.info("the replica at %s reads %s anew; verify --against tells when it is done", replica.url, what)
        return exit_codes.OK
