"""``pubsub-db update``."""

import argparse
from collections.abc import Iterable
from typing import Any

from pubsub_lib.cli import prompts, write_result
from pubsub_lib.cli.context import settings_of, writing
from pubsub_lib.cli.output import Show
from pubsub_lib.cli.write_result import version


class Update(Show):
    """Merge members into an object's value and publish the change."""

    example = 'update lport p1 \'{"chassis": "host-7"}\''
    columns = write_result.COLUMNS

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The object, the members, the topic and the condition."""
        parser.add_argument("table", metavar="TABLE")
        parser.add_argument("key", metavar="KEY")
        parser.add_argument(
            "value",
            metavar="VALUE",
            help="a JSON object whose members are merged into the value; - reads it from stdin",
        )
        parser.add_argument("--topic", metavar="TOPIC", help="move the object to this topic")
        parser.add_argument(
            "--if-version", type=version, metavar="N", help="update only when the object has this version"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """One transaction. Raises NotFound, VersionMismatch, InvalidValueError."""
        table, key = parsed_args.table, parsed_args.key
        settings = settings_of(self)
        value = prompts.value(parsed_args.value, settings.limits)
        with writing(self, settings) as opened:
            with write_result.hinted("use pubsub-db add"), opened.store.transaction() as tx:
                tx.update(table, key, value, topic=parsed_args.topic, version=parsed_args.if_version)
            return write_result.outcome(opened.store, table, key, tx.commit)
