"""What a replica holds is recorded at marks, without waiting for its lock."""

import random
from collections.abc import Callable
from pathlib import Path

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Change, Link, Point
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.journal import Journal, JournalSettings
from pubsub_lib.journal.reading import find, read
from pubsub_lib.journal.rows import Row
from pubsub_lib.replica.held_contents import MAX_HELD
from pubsub_lib.replica.journaling import ReplicaJournal
from tests.unit.world import QUICK


def link(position: int, topic: str) -> Link:
    change = Change("a", "k", "set", position, b"1")
    return Link(topic, Point(position - 1, 0), Point(position, 0), [change], 1, 1, Point(position - 1, 0), 1)


class Owner:
    """The owner of a replica's lock. ``busy``: another thread holds it."""

    def __init__(self, state: ReplicaState) -> None:
        self.state = state
        self.busy = False

    def read(self, look: Callable[[ReplicaState], None]) -> None:
        look(self.state)

    def call_if_free(self, fn: Callable[[], None]) -> None:
        if not self.busy:
            fn()


def recorded(folder: Path) -> list[Row]:
    return [row for path in find([folder]).append for row in read(path)]


def test_marks_record_the_contents_of_some_topics_when_the_lock_is_free(tmp_path: Path) -> None:
    state = ReplicaState(QUICK, Limits(), random.Random(1), Cache(), 0.0)
    names = [f"t{number}" for number in range(MAX_HELD + 1)]
    state.subscribe(names, 0.0, known={name: Point(1, 0) for name in names})
    journal = Journal(JournalSettings(str(tmp_path), mark_seconds=3600.0, to_parquet=False), "replica", "r")
    state.witness = ReplicaJournal(journal, polls=False)
    owner = Owner(state)
    state.witness.watch(dict, owner)
    state.feed(Envelope("s", "ab" * 16, "t0", 1, [Message(link(2, "t0"))]), 0.1)
    owner.busy = True
    journal._run().maintain()
    owner.busy = False
    journal._run().maintain()
    journal._run().maintain()
    for number, name in enumerate(names):
        state.feed(Envelope("s", "ab" * 16, name, number, [Message(link(1, name))]), 0.2)
    journal._run().maintain()
    journal.close()
    kinds = [(row.kind, row.topic, row.position, row.count) for row in recorded(tmp_path) if row.kind != "data"]
    assert kinds[:5] == [("open", "", 0, 0), ("mark", "", 0, 0), ("held", "t0", 2, 1), ("mark", "", 0, 0),
                         ("mark", "", 0, 0)]  # fmt: skip
    assert [kind for kind, *_ in kinds[5:]] == [*["held"] * MAX_HELD, "mark", "held", "close"]
    assert {name for _, name, *_ in kinds[5:] if name} == set(names)
