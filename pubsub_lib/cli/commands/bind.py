"""``pubsub-db bind``: set the host of a port, as Dragonflow's command ``df-db bind`` does."""

import argparse
import socket
from collections.abc import Iterable
from typing import Any

from pubsub_lib.cli import write_result
from pubsub_lib.cli.context import writing
from pubsub_lib.cli.output import Show


class Bind(Show):
    """Bind a port to this host (or another host) and publish the change."""

    example = "bind p1 --host host-7"
    columns = write_result.COLUMNS

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The port and the host."""
        parser.add_argument("key", metavar="KEY", help="the key of the port")
        # The name of this host is no default of the parser: help and manual pages must be equal on all machines.
        parser.add_argument("--host", help="the host (default: this one)")
        parser.add_argument("--table", default="lport", help="the table of the ports (default: %(default)s)")
        parser.add_argument("--member", default="chassis", help="the member that names the host (default: %(default)s)")

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """One transaction. Raises NotFound."""
        table, key = parsed_args.table, parsed_args.key
        host = socket.gethostname() if parsed_args.host is None else parsed_args.host
        with writing(self) as opened:
            with write_result.hinted(f"see pubsub-db ls {table}"), opened.store.transaction() as tx:
                tx.update(table, key, {parsed_args.member: host})
            return write_result.outcome(opened.store, table, key, tx.commit)
