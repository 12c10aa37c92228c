"""``pubsub-db rm``."""

import argparse
from collections.abc import Iterable
from typing import Any

from pubsub_lib.cli.context import writing
from pubsub_lib.cli.output import Show
from pubsub_lib.cli.prompts import add_yes, confirm
from pubsub_lib.cli.write_result import hinted, version
from pubsub_lib.errors import UsageError


class Rm(Show):
    """Delete objects of a table in one transaction, and publish the changes."""

    example = "rm lport p1 p2 --missing-ok"
    columns = ("table", "deleted", "position")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The objects and the conditions."""
        parser.add_argument("table", metavar="TABLE")
        parser.add_argument("keys", metavar="KEY", nargs="+")
        parser.add_argument("--missing-ok", action="store_true", help="ignore keys that do not exist")
        parser.add_argument(
            "--if-version", type=version, metavar="N", help="delete only when the object has this version"
        )
        add_yes(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """One transaction. Raises NotFound, VersionMismatch."""
        table, keys = parsed_args.table, list(dict.fromkeys(parsed_args.keys))
        if parsed_args.if_version is not None and len(keys) != 1:
            raise UsageError(f"--if-version is about one object, not {len(keys)}; name one key")
        with writing(self) as opened:
            named = repr(keys[0]) if len(keys) == 1 else f"{len(keys)} objects"
            confirm(parsed_args, f"delete {named} of the table {table!r}")
            with hinted("give --missing-ok if that is fine"), opened.store.transaction() as tx:
                for key in keys:
                    tx.delete(table, key, version=parsed_args.if_version, missing_ok=parsed_args.missing_ok)
        links = tx.commit.links if tx.commit is not None else ()
        position = tx.commit.point.position if tx.commit is not None else None
        return table, sum(len(each.changes) for each in links), position
