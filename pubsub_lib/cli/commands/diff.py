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
    """The difference of one object between an earlier and a later position."""

    table: str
    key: str
    change: str
    """``created``, ``changed``, ``deleted`` or ``moved``."""
    old_topic: str
    """The topic at the earlier position; "" when the object did not exist."""
    topic: str
    """The topic at the later position; "" when the object was deleted."""
    version: int
    value: bytes | None


class Diff(List):
    """List the objects that differ between two positions of the changelog.

    An object that was created and deleted in between does not differ. With --topic, an object that moved to another
    topic counts as deleted.
    """

    example = "diff 100 200 --topic tenant-1"
    columns = ("change", "table", "key", "old_topic", "topic", "version", "value")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The positions and the topic."""
        parser.add_argument("first", metavar="P1", type=int, help="a position: the changes up to it are the old state")
        parser.add_argument("second", metavar="P2", type=int, help="a later position, up to the store's head")
        parser.add_argument("--topic", metavar="TOPIC", help="only this topic")

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Sequence[Any]]:
        """Raises ConfigError for invalid positions, NotFound for positions that were trimmed."""
        first, second = parsed_args.first, parsed_args.second
        check_names(parsed_args)
        with reading(self) as store:
            found = differences(store, first, second, parsed_args.topic)
        self.nothing = f"nothing differs between the positions {first} and {second}"
        return [
            (
                each.change, each.table, each.key, each.old_topic, each.topic, each.version,
                Json(b"null" if each.value is None else each.value),
            )
            for each in found
        ]  # fmt: skip


def differences(store: Store, first: int, second: int, topic: str | None) -> list[Difference]:
    """The differences, sorted by table and key. Memory grows with the number of changed objects.

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
    _check_kept(store, first, second, head)  # a service may have trimmed the changelog during the reading
    return found


def _check_kept(store: Store, first: int, second: int, head: int) -> None:
    oldest = store.inspect.oldest()
    begin = head if oldest is None else oldest.link.tx_prev.position
    if first < begin and first < second:
        raise NotFound(
            f"the changelog was trimmed up to position {begin}; the changes from {first + 1} to there are gone"
        )


def fold(changes: Iterable[tuple[Link, Change]]) -> list[Difference]:
    """The net effect of changes, which may come in any order: their versions give the order."""
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
        # An object did not exist before a create; it existed before any other action.
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
        # A transaction after ``second``. The one that contains ``second`` may have more links, with a smaller tx_prev.
        if link.tx_prev.position >= second:
            return
