"""``pubsub-db export``."""

import argparse
import logging
from pathlib import Path

from pubsub_lib.cli.context import settings_of
from pubsub_lib.cli.jsonl import created
from pubsub_lib.cli.output import Act
from pubsub_lib.cli.progress import Progress
from pubsub_lib.cli.prompts import STANDARD, add_yes, check_names, confirm
from pubsub_lib.store import Store

_log = logging.getLogger("pubsub_lib.cli")

_EVERY = 1000


class Export(Act):
    """Write all objects of one consistent reading to a file of JSON lines that load reads."""

    example = "export net.jsonl.gz --table lport"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The file, the table and the topic."""
        parser.add_argument("file", metavar="FILE", help="gzip when its name ends in .gz; - is the standard output")
        parser.add_argument("--table", metavar="TABLE", help="only objects of this table")
        parser.add_argument("--topic", metavar="TOPIC", help="only objects on this topic")
        add_yes(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """In bounded memory. Raises FileError, StoreError."""
        check_names(parsed_args)
        table, topic, name = parsed_args.table, parsed_args.topic, parsed_args.file
        if name != STANDARD and Path(name).is_file():
            confirm(parsed_args, f"overwrite the file {name}")
        quiet = self.app.options.verbose_level == 0
        with Store(settings_of(self), read_only=True) as store:
            heads = store.topics()
            total = heads[topic].count if topic in heads else sum(each.count for each in heads.values())
            with (
                Progress("exporting", None if table else total, quiet=quiet) as progress,
                created(name) as writer,
            ):
                for item in store.objects(table=table, topic=topic):
                    writer.write(item)
                    if not writer.lines % _EVERY:
                        progress.show(writer.lines, f"{writer.lines:,} lines")
            if not writer.lines and (table is not None or topic is not None):
                _log.warning("there are no such objects; see pubsub-db tables and pubsub-db topics")
            _log.info(
                "%d objects were written to %s", writer.lines, "the standard output" if name == STANDARD else name
            )
