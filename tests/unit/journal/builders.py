"""Links, envelopes and entries for tests of journals."""

import contextlib
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.model import Change, Link, Point, Record
from pubsub_lib.journal.entries import Entry, Header
from pubsub_lib.journal.rows import SCHEMA
from pubsub_lib.journal.settings import JournalSettings

HEADER = Header(SCHEMA, "replica", "controller-1", "host-1", "ab" * 16, 1)


def link(position: int = 7, value: bytes | None = b'{"a":1}', topic: str = "t1") -> Link:
    change = Change("lport", "p1", "delete" if value is None else "set", position, value)
    return Link(topic, Point(position - 1, 5), Point(position, 6), [change], 1, 2**63 + 1, Point(0, 0), 1, "s1", 1.5)


def envelope(*positions: int) -> Envelope:
    return Envelope("s1", "cd" * 16, "t1", 11, [Message(link(each)) for each in positions])


def settings(folder: Path, mark_seconds: float = 3600.0, roll_bytes: int = 1 << 30) -> JournalSettings:
    """Settings without automatic marks and compaction: the test calls them."""
    return JournalSettings(str(folder), mark_seconds=mark_seconds, roll_bytes=roll_bytes, to_parquet=False)


@contextlib.contextmanager
def files_that_end_at(size: int) -> Iterator[None]:
    """Simulate a full disk: the write that crosses this size is a short one, and the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


_names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)
_numbers = st.integers(0, 2**63 - 1)
_points = st.builds(Point, _numbers, _numbers)
_changes = st.builds(
    Change, _names, _names, st.sampled_from(["create", "set", "delete"]), _numbers, st.none() | st.binary(max_size=9)
)
_links = st.builds(
    Link, _names, _points, _points, st.lists(_changes, max_size=3), _numbers, st.integers(0, 2**64 - 1), _points,
    st.integers(1, 9), _names, st.floats(0, 1e9),
)  # fmt: skip
_wide = {
    "service": _names,
    "uuid": _names,
    "topic": _names,
    "sequence": _numbers,
    "point": _points,
    "prev": _points,
    "cause": _names,
    "digest": st.integers(0, 2**64 - 1),
}
entries = st.one_of(
    st.builds(Entry, _numbers, _numbers, _numbers, st.sampled_from(["mark", "hello", "interest"]), **_wide),
    st.builds(
        Entry, _numbers, _numbers, _numbers, st.just("data"), st.just(("applied",)),
        messages=st.lists(st.builds(Message, _links, st.just(1), st.integers(1, 3)), min_size=1, max_size=3), **_wide,
    ),
    st.builds(
        Entry, _numbers, _numbers, _numbers, st.just("object"), **_wide,
        objects=st.lists(st.builds(Record, _names, _names, _numbers, st.binary(max_size=9)), min_size=1, max_size=3),
    ),
)  # fmt: skip
