"""Checks group commits: each work gets what it would get alone, and a group is committed whole or not at all."""

import random
from collections.abc import Mapping, Sequence

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL, Point
from pubsub_lib.errors import ConditionFailed, OutcomeUnknown
from simulator.group import Attempt, Work
from simulator.history import History
from simulator.invariants import Violation
from simulator.store import ModelStore


class GroupWatch:
    """The groups of all writers. Methods raise Violation."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.rolled_back: Mapping[Point, str] = {}
        """Points of transactions that lying workers handed over."""
        self._pending: list[tuple[Point, ...]] = []
        """The points of groups of which nothing is committed."""

    def staged(self, store: ModelStore, works: Sequence[Work], attempts: Sequence[Attempt]) -> None:
        """A group was executed in its database transaction, and is not committed yet."""
        idents = [ident for work in works for ident in work.idents]
        if len(set(idents)) < len(idents):
            raise Violation("group", f"two works of one group name the same object: {sorted(idents)}")
        last, points = store.state.point, list[Point]()
        for work, attempt in zip(works, attempts, strict=True):
            refused = isinstance(attempt.error, ConditionFailed)
            if refused != self._is_refused(store, work):
                what = "taken out although its conditions hold" if refused else "kept although a condition fails"
                raise Violation("group", f"transaction {work.serial} is {what}")
            if attempt.commit is None:
                continue
            if attempt.commit.links[0].tx_prev != last:
                raise Violation("order", f"transaction {work.serial} does not continue from {last}, as its place asks")
            last = attempt.commit.point
            points.append(last)
        self._pending.append(tuple(points))

    def _is_refused(self, store: ModelStore, work: Work) -> bool:
        """Whether a condition of the work fails when it is executed alone. The others have other objects."""
        alone = ModelStore(random.Random(0))
        alone.state = store.backup()
        try:
            alone.commit(work.verbs, work.origin, 0.0, work.nonce)
        except ConditionFailed:
            return True
        return False

    def check(self) -> None:
        """After each step: the store has all transactions of a group, or none."""
        pending = []
        for points in self._pending:
            done = [point for point in points if self._history.was_committed(ALL, point)]
            if 0 < len(done) < len(points):
                raise Violation("group", f"only {len(done)} of {len(points)} transactions of a group are committed")
            if not done:
                pending.append(points)
        self._pending = pending

    def answered(self, work: Work, attempt: Attempt) -> None:
        """A thread gets the answer to its work."""
        point = self._history.nonces.get(work.nonce)
        if attempt.commit is not None:
            if attempt.commit.point.nonce != work.nonce:
                raise Violation("answer", f"transaction {work.serial} gets the answer to another one")
            if attempt.commit.point != point:
                raise Violation("answer", f"transaction {work.serial} is called committed, and is not")
        elif point is not None and not isinstance(attempt.error, OutcomeUnknown):
            what = "without effect" if attempt.error is None else f"failed ({attempt.error})"
            raise Violation("answer", f"transaction {work.serial} is called {what}, and is committed")

    def published(self, who: str, envelope: Envelope) -> None:
        """A publisher sends links, of groups and of single transactions."""
        for message in envelope.messages:
            point = message.link.point
            if not self._history.was_committed(ALL, point) and point not in self.rolled_back:
                raise Violation("durable", f"{who} sends {point}, which is not committed")
