"""``pubsub-db resync``."""

import argparse

from pubsub_lib.cli.output import Act
from pubsub_lib.cli.replica_client import ReplicaClient
from pubsub_lib.command import exit_codes
from pubsub_lib.core.limits import check_name


class Resync(Act):
    """Ask a running replica to read topics again from the store. The command itself needs no database.

    Not needed in operation: a replica detects and repairs differences by itself.
    """

    example = "resync 127.0.0.1:8868 tenant-1"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The replica and the topics."""
        parser.add_argument("url", metavar="URL", help="the URL of the replica's endpoint (replica_metrics_port)")
        parser.add_argument(
            "topics", metavar="TOPIC", nargs="*", help="a topic to read again (default: all that it is subscribed to)"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Send the request. Raises ConfigError, NotSubscribedError, TransportError."""
        topics = [check_name("topic", topic) for topic in parsed_args.topics]
        replica = ReplicaClient(parsed_args.url)
        replica.resync(topics)
        what = ", ".join(topics) if topics else "all its topics"
        self.app.LOG.info("the replica at %s reads %s again; verify --against shows when it is done", replica.url, what)
        return exit_codes.OK
