"""Checks of the parts of a sync's answer."""

from collections.abc import Iterable
from typing import Final

from pubsub_lib.core.limits import check_name
from pubsub_lib.core.model import MAX_KEY_BYTES, MAX_SECONDS, Change, Link
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


def check_link(link: Link) -> None:
    """Raise FrameError for an impossible link."""
    check("topic", link.topic)
    check_changes(link.changes)
    if link.prev.position >= link.point.position or not -MAX_SECONDS <= link.written_at <= MAX_SECONDS:
        raise foreign("a link has an impossible point or time")
