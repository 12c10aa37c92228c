"""``pubsub-db diff``."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from pubsub_lib.cli.context import reading
from pubsub_lib.cli.output import Json, List
from pubsub_lib.cli.prompts import check_names
from pubsub_lib.core.model import Change, Link
from pubsub_lib.errors import ConfigError, NotFound
from pubsub_lib.store import Store
from pubsub_lib.store.inspection import behind


class Difference(msgspec.Struct, frozen=True):
    """How one object at a later position differs from itself at an earlier one."""

    table: str
    key: str
    change: str
    """``created``, ``changed``, ``deleted`` or ``moved``."""
    old_topic: str
    """Where it was; "" when it was not there."""
    topic: str
    """Where it is; "" when it is not there any more."""
    version: int
    value: bytes | None


class Diff(List):
    """List the objects that differ between two positions, as the changelog tells.

    An object that came and went in between does not differ. With --topic, one that moved away counts as deleted.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Which positions."""
        parser = super().get_parser(prog_name)
        parser.add_argument("first", metavar="P1", type=int, help="a position: everything up to it is the old state")
        parser.add_argument("second", metavar="P2", type=int, help="a later position, up to the store's head")
        parser.add_argument("--topic", metavar="TOPIC", help="only this topic")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Raises ConfigError for positions that cannot be, NotFound for what was trimmed."""
        first, second = parsed_args.first, parsed_args.second
        check_names(parsed_args)
        with reading(self) as store:
            found = differences(store, first, second, parsed_args.topic)
        self.nothing = f"nothing differs between the positions {first} and {second}"
        return ("change", "table", "key", "old_topic", "topic", "version", "value"), [
            (
                each.change, each.table, each.key, each.old_topic, each.topic, each.version,
                Json(b"null" if each.value is None else each.value),
            )
            for each in found
        ]  # fmt: skip


def differences(store: Store, first: int, second: int, topic: str | None) -> list[Difference]:
    """What differs, sorted by table and key. Memory grows with the number of objects that were changed.

    Raises ConfigError, NotFound.
    """
    head = store.read_heads([]).store.position
    if not 0 <= first <= second <= head:
        raise ConfigError(
            f"there is nothing to compare between {first} and {second}: give two positions, the earlier one first, "
            f"from 0 up to the store's head, {head}"
        )
    _check_kept(store, first, second, head)
    found = fold(_between(store.inspect.every_link(behind(first), topic), first, second))
    _check_kept(store, first, second, head)  # a service may have trimmed it while it was read
    return found


def _check_kept(store: Store, first: int, second: int, head: int) -> None:
    oldest = store.inspect.oldest()
    begin = head if oldest is None else oldest.link.tx_prev.position
    if first < begin and first < second:
        raise NotFound(f"the changelog was trimmed up to position {begin}; what changed between {first} and it is gone")


def fold(changes: Iterable[tuple[Link, Change]]) -> list[Difference]:
    """The net effect of changes that may come in any order: their versions tell it."""
    ends: dict[tuple[str, str], tuple[tuple[str, Change], tuple[str, Change]]] = {}
    for link, change in changes:
        name, this = (change.table, change.key), (link.topic, change)
        old, new = ends.get(name, (this, this))
        ends[name] = (
            this if change.version < old[1].version else old,
            this if change.version > new[1].version else new,
        )
    found = []
    for (table, key), ((old_topic, old_change), (topic, change)) in sorted(ends.items()):
        # What a create made was not there before; what anything else changed was.
        was = "" if old_change.action == "create" else old_topic
        now = "" if change.action == "delete" else topic
        kind = "created" if not was else "deleted" if not now else "changed" if was == now else "moved"
        if was or now:
            found.append(Difference(table, key, kind, was, now, change.version, change.value))
    return found


def _between(links: Iterator[Link], first: int, second: int) -> Iterator[tuple[Link, Change]]:
    for link in links:
        for change in link.changes:
            if first < change.version <= second:
                yield link, change
        # A later transaction; the same one has other links.
        if link.tx_prev.position >= second:
            return
