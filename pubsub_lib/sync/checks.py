"""Checks of the parts of a sync's answer."""

from collections.abc import Iterable, Sequence
from typing import Final

from pubsub_lib.core.limits import check_name
from pubsub_lib.core.model import MAX_KEY_BYTES, MAX_SECONDS, Change, Link, Point, Record
from pubsub_lib.errors import FrameError, InvalidValueError

_INFINITE: Final = float("inf")


def foreign(wrong: str) -> FrameError:
    """The error for an answer that no source of this library sends."""
    return FrameError(f"a sync's answer is inconsistent: {wrong}", "foreign")


def checked_age(value: float) -> float:
    """An age, which may be infinite. Raises FrameError for one that is no time."""
    if not -MAX_SECONDS <= value <= MAX_SECONDS and value != _INFINITE:  # nor NaN
        raise foreign(f"an age is {value} s")
    return value


def check(kind: str, name: str) -> None:
    """Raise FrameError for an invalid name of a topic or a table."""
    try:
        check_name(kind, name)
    except InvalidValueError as error:
        raise foreign(str(error)) from error


def is_bad_key(key: str) -> bool:
    """Whether no object can have this key."""
    return "\0" in key or (not key.isascii() and len(key.encode()) > MAX_KEY_BYTES)


def check_changes(changes: Iterable[Change]) -> None:
    """Raise FrameError for an impossible change."""
    for each in changes:
        if (each.value is None) != (each.action == "delete"):
            raise foreign("a change has a value although it deletes, or has none")
        if is_bad_key(each.key):
            raise foreign("a key is too long or holds a NUL")
        check("table", each.table)


def advanced(topic: str, records: Iterable[Record], links: Sequence[Link], head: Point) -> list[Record]:
    """A topic's objects after these links, of which there is at least one. Raises FrameError when the links do not
    follow each other, or do not lead to the head.
    """
    objects = {(each.table, each.key): each for each in records}
    known = links[0].prev
    for link in links:
        if link.topic != topic or link.prev != known:
            raise foreign("the links after a snapshot do not follow each other")
        known = link.point
        for each in link.changes:
            if each.value is None:
                objects.pop((each.table, each.key), None)
            else:
                objects[each.table, each.key] = Record(each.table, each.key, each.version, each.value)
    if known != head:
        raise foreign("the links after a snapshot do not lead to the topic's head")
    return list(objects.values())


def check_link(link: Link) -> None:
    """Raise FrameError for an impossible link."""
    check("topic", link.topic)
    check_changes(link.changes)
    if link.prev.position >= link.point.position or not -MAX_SECONDS <= link.written_at <= MAX_SECONDS:
        raise foreign("a link has an impossible point or time")
