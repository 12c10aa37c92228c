"""Group commit in the simulator: its model, and what the watch of the monitor refuses."""

import random
from collections.abc import Callable, Generator, Sequence
from typing import Any

import msgspec
import pytest

from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.model import ALL, ZERO
from pubsub_lib.errors import AlreadyExists, OutcomeUnknown, StoreBusy, StoreUnavailable
from simulator.database import Database
from simulator.group import Attempt, InDoubt, Work
from simulator.group_watch import GroupWatch
from simulator.history import History
from simulator.invariants import Violation
from simulator.kernel import Kernel, LocalClock, Process
from simulator.plan import draw
from simulator.run import run_seed
from simulator.store import ModelStore, Verb


class Bench:
    """A database, and one process that commits groups in it."""

    def __init__(self) -> None:
        self.kernel = Kernel(1)
        self.history = History()
        self.store = ModelStore(random.Random(0))
        self.watch = GroupWatch(self.history)
        self.counts: list[str] = []
        self.database = Database(self.kernel, self.store, self.history, self.counts.append)
        clock = LocalClock(self.kernel, 0.0, 1.0)
        self.process = Process(self.kernel, "writer", "writer0", clock)
        self._serial = 0

    def work(self, key: str, kind: str = "set") -> Work:
        """A work of one object."""
        self._serial += 1
        verb = Verb(kind, "t", key, b"%d" % self._serial, f"topic-{key}")
        return Work((verb,), "", self.store.new_nonce(), self._serial)

    def kill(self) -> None:
        """End the process after its current step."""
        self.kernel.at(self.kernel.now, self.process.kill)

    def commit(self, *works: Work, at_commit: Callable[[], None] = lambda: None) -> list[Attempt]:
        """The answers to a group; ``at_commit`` is called after its execution and before its COMMIT."""
        answers: list[Attempt] = []

        def staged(attempts: Sequence[Attempt]) -> None:
            self.watch.staged(self.store, works, attempts)
            at_commit()

        def steps() -> Generator[Any, None, None]:
            answers.extend((yield from self.database.transact_together(works, lambda: 1.0, staged)))

        self.process.spawn(steps())
        self.kernel.run(self.kernel.now + 5.0)
        self.watch.check()
        for work, answer in zip(works, answers, strict=False):
            self.watch.answered(work, answer)
        return answers


class Always(random.Random):
    """The same number at each call."""

    def __init__(self, number: float) -> None:
        super().__init__(0)
        self._number = number

    def random(self) -> float:
        return self._number


def test_works_of_a_group_have_consecutive_points_in_their_order() -> None:
    bench = Bench()
    works = [bench.work(key) for key in "cab"]
    commits = [attempt.commit for attempt in bench.commit(*works)]
    assert [(commit.point.position, commit.point.nonce) for commit in commits if commit is not None] == [
        (number, work.nonce) for number, work in enumerate(works, 1)
    ]
    assert bench.counts == ["group"]
    assert list(bench.history.shown(ALL, 0.0, bench.kernel.now)) == [ZERO, bench.store.state.point], "all or none"


def test_work_that_fails_is_taken_out_and_the_others_are_committed() -> None:
    bench = Bench()
    bench.commit(bench.work("b"))
    works = bench.work("a"), bench.work("b", "create"), bench.work("c")
    first, failed, last = bench.commit(*works)
    assert isinstance(failed.error, AlreadyExists)
    assert first.commit is not None
    assert last.commit is not None
    assert last.commit.links[0].tx_prev == first.commit.point
    assert bench.store.state.point.position == 3


@pytest.mark.parametrize("kept", [True, False])
def test_lost_commit_keeps_all_or_nothing_and_each_thread_is_in_doubt(kept: bool) -> None:
    bench = Bench()
    bench.database.commit_loss_chance = 1.0
    bench.database._fault_rng = Always(0.25 if kept else 0.75)  # the first half of the chance keeps the transaction
    works = [bench.work(key) for key in "ab"]
    answers = bench.commit(*works)
    doubts = [answer.error for answer in answers if isinstance(answer.error, InDoubt)]
    assert [doubt.nonce for doubt in doubts] == [work.nonce for work in works]
    assert [doubt.since.position for doubt in doubts] == [0, 1]
    assert [bench.store.committed(doubt.nonce, doubt.since) for doubt in doubts] == [kept, kept]


def test_work_in_doubt_is_looked_up_from_its_own_point_after_a_restore() -> None:
    """Seed 3002643: the point at which its thread began to wait was undone, and the changelog was trimmed."""
    bench = Bench()
    backup = bench.store.backup()
    for key in "abc":
        bench.commit(bench.work(key))
    bench.store.restore(backup)
    bench.history.restored(bench.store, bench.kernel.now)
    bench.database.commit_loss_chance = 1.0
    bench.database._fault_rng = Always(0.25)
    (answer,) = bench.commit(bench.work("a"))
    bench.database.commit_loss_chance = 0.0
    bench.commit(bench.work("a"))  # the topic's head is a later point
    bench.store.trim(1)
    assert isinstance(answer.error, InDoubt)
    assert bench.store.committed(answer.error.nonce, answer.error.since) is None, "unknown, and not called lost"


def test_crash_of_the_database_before_the_commit_loses_the_whole_group() -> None:
    bench = Bench()
    answers = bench.commit(bench.work("a"), bench.work("b"), at_commit=bench.database.go_down)
    assert [type(answer.error) for answer in answers] == [StoreUnavailable, StoreUnavailable]
    assert answers[0].error is not answers[1].error, "each thread gets an error of its own"
    assert bench.history.nonces == {}


def test_crash_of_the_writer_before_the_commit_loses_the_whole_group() -> None:
    bench = Bench()
    answers = bench.commit(bench.work("a"), bench.work("b"), at_commit=bench.kill)
    assert (answers, bench.history.nonces) == ([], {})


def test_crash_of_the_writer_after_the_commit_keeps_the_whole_group() -> None:
    bench = Bench()
    bench.database._count = lambda kind: bench.kill()  # called by the COMMIT of a group
    works = bench.work("a"), bench.work("b")
    assert bench.commit(*works) == []
    assert list(bench.history.nonces) == [work.nonce for work in works]


def test_deadlock_is_the_answer_to_the_whole_group() -> None:
    bench = Bench()
    bench.database.deadlock_chance = 1.0
    answers = bench.commit(bench.work("a"), bench.work("b"))
    assert [type(answer.error) for answer in answers] == [StoreBusy, StoreBusy]


def test_runs_with_the_kind_commit_groups_and_others_do_not() -> None:
    with_kind = next(seed for seed in range(300) if "group" in draw(seed).faults)
    assert run_seed(with_kind).counts["group"] > 0
    without = next(seed for seed in range(300) if "group" not in draw(seed).faults)
    assert "group" not in run_seed(without).counts


# -- the watch -------------------------------------------------------------------------------------------------------


def test_watch_refuses_a_group_that_is_committed_in_part() -> None:
    bench = Bench()
    works = bench.work("a"), bench.work("b")
    attempts = bench.database._stage(works, 1.0)
    bench.watch.staged(bench.store, works, attempts)
    bench.watch.check()
    bench.database._write_together(works[:1], attempts[:1], 1.0)
    with pytest.raises(Violation, match=r"^group: only 1 of 2"):
        bench.watch.check()


def test_watch_refuses_wrong_conditions_order_and_shared_objects() -> None:
    bench = Bench()
    works = bench.work("a"), bench.work("b")
    attempts = bench.database._stage(works, 1.0)
    refused = Attempt(error=AlreadyExists("t a exists"))
    with pytest.raises(Violation, match=r"^group: transaction 1 is taken out although its conditions hold"):
        bench.watch.staged(bench.store, works, [refused, attempts[1]])
    bench.commit(bench.work("c"))
    create = msgspec.structs.replace(bench.work("c", "create"), nonce=1)
    with pytest.raises(Violation, match=r"^group: transaction 4 is kept although a condition fails"):
        bench.watch.staged(bench.store, [create], [Attempt()])
    with pytest.raises(Violation, match=r"^order: transaction 2"):
        bench.watch.staged(bench.store, works[::-1], bench.database._stage(works, 1.0)[::-1])
    with pytest.raises(Violation, match=r"^group: two works of one group name the same object"):
        bench.watch.staged(bench.store, [works[0], works[0]], attempts)


def test_watch_refuses_wrong_answers() -> None:
    bench = Bench()
    works = bench.work("a"), bench.work("b")
    before = bench.database._stage(works, 1.0)
    with pytest.raises(Violation, match=r"^answer: transaction 1 is called committed, and is not"):
        bench.watch.answered(works[0], before[0])
    answers = bench.commit(*works)
    with pytest.raises(Violation, match=r"^answer: transaction 2 gets the answer to another one"):
        bench.watch.answered(works[1], answers[0])
    with pytest.raises(Violation, match=r"^answer: transaction 2 is called without effect, and is committed"):
        bench.watch.answered(works[1], Attempt())
    with pytest.raises(Violation, match=r"^answer: transaction 2 is called failed \(lost\), and is committed"):
        bench.watch.answered(works[1], Attempt(error=StoreUnavailable("lost")))
    bench.watch.answered(works[1], Attempt(error=OutcomeUnknown("lost", works[1].nonce)))


def test_watch_refuses_links_that_are_published_before_the_commit() -> None:
    bench = Bench()
    works = [bench.work("a"), bench.work("b")]
    links = [link for attempt in bench.database._stage(works, 1.0) if attempt.commit for link in attempt.commit.links]
    envelope = Envelope("api-1", "0" * 32, "topic-a", 1, [Message(links[0])])
    with pytest.raises(Violation, match=r"^durable: service0 sends Point\(position=1"):
        bench.watch.published("service0", envelope)
    assert [attempt.error for attempt in bench.commit(*works)] == [None, None]
    bench.watch.published("service0", envelope)
