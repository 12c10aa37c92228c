"""``pubsub-db log``."""

import argparse
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from pubsub_lib.cli.context import reading
from pubsub_lib.cli.formatting import moment, transaction
from pubsub_lib.cli.output import Json, List
from pubsub_lib.cli.prompts import check_names
from pubsub_lib.cli.row_printer import Column, RowPrinter
from pubsub_lib.core.model import Link
from pubsub_lib.errors import ConfigError
from pubsub_lib.store import Store
from pubsub_lib.store.inspection import Cursor, Inspection, behind, cursor

FOLLOW_EVERY: Final = 0.5
"""Seconds between two queries for new changes."""
LIMIT: Final = 100
MAX_NUMBER: Final = 2**63 - 2
"""One less than the largest integer of a database, because the command asks for one change more than it shows."""

_COLUMNS: Final = (
    Column("position", width=8, right=True),
    Column("action", width=6),
    Column("topic", weight=2),
    Column("table", weight=2),
    Column("key", weight=3),
    Column("transaction", hidden=True, width=11, right=True),
    Column("written", width=20),
    Column("origin", weight=2, hidden=True),
)
_VALUE: Final = Column("value", weight=6)

Row = tuple[Any, ...]


class Log(List):
    """Show the changelog: the newest changes, or the changes after a position; --follow continues with new changes."""

    example = "log --since 100 --topic tenant-1 --values"

    nothing = "the changelog has no such changes"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The position, the topic, the maximum number of changes."""
        parser.add_argument("--since", metavar="P", type=int, help="show the changes after this position, oldest first")
        parser.add_argument("--topic", metavar="TOPIC", help="only this topic")
        parser.add_argument(
            "--limit", metavar="N", type=int, default=LIMIT, help=f"maximum number of changes (default: {LIMIT})"
        )
        parser.add_argument("--values", action="store_true", help="show the values, too")
        parser.add_argument("--follow", action="store_true", help="continue until Ctrl-C, with a line for each change")

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the changes. Returns the exit code."""
        check_names(parsed_args)
        limit, since = parsed_args.limit, parsed_args.since
        if not 1 <= limit <= MAX_NUMBER or (since is not None and not 0 <= since <= MAX_NUMBER):
            raise ConfigError(
                f"a log of {limit} changes since {'the end' if since is None else since} cannot be shown; "
                f"give --limit from 1 and --since from 0, both up to {MAX_NUMBER}"
            )
        return self._follow(parsed_args) if parsed_args.follow else super().run(parsed_args)

    def column_names(self, parsed_args: argparse.Namespace) -> Sequence[str]:
        """With ``--values``, a further one."""
        return [column.name for column in _columns(parsed_args.values)]

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Row]:
        """The requested page, of one snapshot. Logs when there are more changes."""
        limit, since, topic, values = parsed_args.limit, parsed_args.since, parsed_args.topic, parsed_args.values
        with reading(self) as store:
            if since is None:
                return list(_rows(store.inspect.at_once(lambda inspect: _last(inspect, limit, topic)), values))[-limit:]
            self._warn_of_trimming(store, since)
            # One change more than the limit shows whether there are more changes.
            links = store.inspect.at_once(lambda inspect: _first(inspect, since, limit + 1, topic))
        rows = list(_rows(links, values, since))
        if len(rows) > limit:
            rows = rows[:limit]
            self.app.LOG.info("there are more changes: pubsub-db %s", _continuation(parsed_args, rows[-1][0]))
        return rows

    def _follow(self, parsed_args: argparse.Namespace) -> int:
        since, topic, values = parsed_args.since, parsed_args.topic, parsed_args.values
        lines = RowPrinter.of(self, _columns(values), parsed_args)
        with reading(self) as store:
            since = self._begin(store, since)
            at = behind(since)
            while True:
                at, links = more(store, at, topic, self.app.LOG.warning)
                since = min(since, at[0] - 1)  # lower only after a restore
                for row in _rows(links, values, since):
                    lines.row(row, [_text(each) for each in row])
                if not links:
                    time.sleep(FOLLOW_EVERY)

    def _begin(self, store: Store, since: int | None) -> int:
        """The position after which to follow: ``since``, at most the store's position. Logs what is not shown."""
        head = store.read_heads([]).store.position
        if since is None:
            return head
        self._warn_of_trimming(store, since)
        if since > head:
            self.app.LOG.warning(
                "position %d is beyond the newest position of the store, %d; the log continues there", since, head
            )
        return min(since, head)

    def _warn_of_trimming(self, store: Store, since: int) -> None:
        oldest = store.inspect.oldest()
        begin = store.read_heads([]).store.position if oldest is None else oldest.link.tx_prev.position
        if since < begin:
            self.app.LOG.warning("the changelog was trimmed up to position %d; it has no changes before that", begin)


def more(store: Store, at: Cursor, topic: str | None, warn: Callable[[str, int], None]) -> tuple[Cursor, list[Link]]:
    """The links of the next transactions after the cursor ``at``, about a page, and the cursor after them.

    ``warn`` is called when the store was restored to an earlier position.
    """
    size = store.settings.page_size
    links = store.inspect.at_once(lambda inspect: _whole(inspect, inspect.links(at, size, topic), topic))
    if links:
        return behind(links[-1].point.position), links
    head = store.read_heads([]).store.position
    if head < at[0] - 1:
        warn("the store was restored to position %d; the log continues there", head)
        return behind(head), []
    return at, []


def _first(inspect: Inspection, since: int, maximum: int, topic: str | None) -> list[Link]:
    """The links with the first changes after a position: at least ``maximum`` changes, or all that there are."""
    found: list[Link] = []
    count, at = 0, behind(since)
    while count < maximum:
        links = _whole(inspect, inspect.links(at, maximum - count, topic), topic)  # every link has a change
        if not links:
            break
        found += links
        # The first transaction may have begun before ``since``.
        count += sum(change.version > since for link in links for change in link.changes)
        at = behind(links[-1].point.position)
    return found


def _last(inspect: Inspection, maximum: int, topic: str | None) -> list[Link]:
    """The links with the last changes: at least ``maximum`` changes, or all that there are."""
    return _whole(inspect, inspect.newest(maximum, topic), topic)


def _whole(inspect: Inspection, links: Sequence[Link], topic: str | None) -> list[Link]:
    """These links, with the other ones of the first and the last transaction: links are read by position and topic,
    but the changes of a transaction have their positions in another order.
    """
    if topic is not None or not links:
        return list(links)  # a transaction has one link in a topic
    found = {cursor(link): link for link in links}
    for end in (links[0], links[-1]):
        position = end.point.position
        if sum(at == position for at, _ in found) < end.tx_links:
            others = inspect.links((position, ""), end.tx_links)
            found.update({cursor(link): link for link in others if link.point.position == position})
    return [found[each] for each in sorted(found)]


def _continuation(parsed_args: argparse.Namespace, since: int) -> str:
    """The command for the changes after a page, which ends with position ``since``."""
    words = ["log", "--since", str(since)]
    if parsed_args.topic is not None:
        words.append(f"--topic={parsed_args.topic}")
    if parsed_args.limit != LIMIT:
        words += ["--limit", str(parsed_args.limit)]
    return shlex.join([*words, "--values"] if parsed_args.values else words)


def _columns(values: bool) -> tuple[Column, ...]:
    """The columns. Those that are not hidden fit 80 cells; ``-c`` shows the others."""
    if not values:
        return _COLUMNS
    return (*(msgspec.structs.replace(each, hidden=each.hidden or each.name == "written") for each in _COLUMNS), _VALUE)


def _rows(links: Sequence[Link], values: bool, since: int = 0) -> Iterator[Row]:
    """One row for each change, sorted by position: the links of a transaction are sorted by topic instead."""
    changes = [(change.version, link, change) for link in links for change in link.changes if change.version > since]
    changes.sort(key=lambda each: each[0])
    for version, link, change in changes:
        row = (
            version, change.action, link.topic, change.table, change.key, transaction(link), moment(link.written_at),
            link.origin,
        )  # fmt: skip
        yield (*row, Json(b"null" if change.value is None else change.value)) if values else row


def _text(value: Any) -> str:
    return str(value.visible() if isinstance(value, Json) else value)
