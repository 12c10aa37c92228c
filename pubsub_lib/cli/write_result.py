"""The result of a command that writes one object."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pubsub_lib.errors import NotFound
from pubsub_lib.store import Commit, Store

COLUMNS = ("table", "key", "topic", "version", "changed")


def outcome(store: Store, table: str, key: str, commit: Commit | None) -> Sequence[Any]:
    """The values of ``COLUMNS`` for the object after a commit, which is None for equal bytes: nothing was written."""
    if commit is not None:
        # From the commit itself: another process may have changed the object since.
        for link in commit.links:
            for change in link.changes:
                if (change.table, change.key) == (table, key) and change.value is not None:
                    return (table, key, link.topic, change.version, True)
    found = store.get_record(table, key)
    if found is None:
        raise NotFound(f"the object {key!r} in the table {table!r} was deleted by another process meanwhile")
    return (table, key, found.topic, found.version, commit is not None)


@contextmanager
def hinted(way_out: str) -> Iterator[None]:
    """Replace the advice of a NotFound that this block raises by one for the command line."""
    try:
        yield
    except NotFound as error:
        raise NotFound(f"{str(error).partition(';')[0]}; {way_out}") from error


def version(text: str) -> int:
    """The type of an option that expects a version."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a version; give a whole number from 0")
    return int(text)
