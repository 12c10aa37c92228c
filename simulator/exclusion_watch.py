"""Checks the quarantine of publishers (rule 14), with evidence of its own about contradictions.

Times are those of a replica's clock. Methods raise Violation.
"""

from typing import TYPE_CHECKING, Final

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL, Delta, Point, SyncAnswer
from pubsub_lib.core.quarantine import CONTRADICTIONS
from simulator.history import History
from simulator.invariants import Violation
from simulator.plan import FIRST_QUARANTINE, QUARANTINE, SPACING

if TYPE_CHECKING:
    from simulator.lies import Lies
    from simulator.replica import Replica

NEVER_YET: Final = float("-inf")
SLACK: Final = 0.01


def knows_leases(replica: "Replica", now: float) -> bool:
    """Whether one contradiction excludes a publisher, and not the third."""
    return replica.directory is not None and replica.directory.shown_at <= now


class Suspect:
    """One publisher, as one replica knows it."""

    def __init__(self) -> None:
        self.contradictions: list[float] = []
        """Those that count."""
        self.due = False
        """It was contradicted often enough, and is to be excluded in this step."""
        self.excluded_at = NEVER_YET
        self.least = NEVER_YET
        """Until when it is excluded at least."""
        self.prolonged_at = NEVER_YET
        """When a reading may have made the quarantine longer for the last time."""
        self.ignored: list[tuple[str, Point, float]] = []
        """Chain, point and time of the links since the last reading that were not used."""


class ExclusionWatch:
    """The publishers of all replicas."""

    def __init__(self, lies: "Lies", history: History) -> None:
        self._lies = lies
        self._history = history
        self._suspects: dict[tuple[Replica, str], Suspect] = {}
        self._received: dict[tuple[Replica, Point], list[float]] = {}
        """When a replica received each forged link: a liar may send it again."""
        self._read: dict[Replica, int] = {}
        """The store's position in the last reading."""
        self._went_back: dict[Replica, list[float]] = {}
        self._denied: dict[Replica, list[float]] = {}
        """When a reading showed that a chain is not complete up to where a publisher stated."""
        self._number: dict[Replica, int] = {}
        """How many contradictions a replica counted."""

    def _suspect(self, replica: "Replica", uuid: str) -> Suspect:
        return self._suspects.setdefault((replica, uuid), Suspect())

    def steps_back(self, replica: "Replica", now: float) -> int:
        """How often a reading showed this replica of late that the store went back. After that time, late messages of
        the undone history may accuse their publisher.
        """
        return sum(now <= at + SPACING for at in self._went_back.get(replica, ()))

    def all_steps_back(self, replica: "Replica") -> int:
        """How often a reading showed this replica that the store went back."""
        return len(self._went_back.get(replica, ()))

    def received(self, replica: "Replica", point: Point, now: float) -> None:
        """A forged link was received."""
        self._received.setdefault((replica, point), []).append(now)

    def received_at(self, replica: "Replica", point: Point) -> float:
        """When a forged link was received for the first time."""
        return self._received[replica, point][0]

    def reached(self, replica: "Replica", point: Point, now: float) -> None:
        """A replica applied a forged link: not one that a publisher sent during its quarantine."""
        uuid = self._lies.forged[point]
        suspect = self._suspect(replica, uuid)
        begin, end = suspect.excluded_at + SLACK, suspect.least - SLACK
        if all(begin < at < end for at in self._received[replica, point]):
            raise Violation("excluded used", f"{replica.name}: {uuid[:4]} led to {point} at {now:.3f} s")

    def answered(self, replica: "Replica", answer: SyncAnswer, begun: float, now: float) -> None:
        """The answer of a reading that began at ``begun`` is about to be used."""
        if answer.store.position < self._read.get(replica, 0):
            self._went_back.setdefault(replica, []).append(now)
        self._read[replica] = answer.store.position
        for (owner, uuid), suspect in self._suspects.items():
            if owner is not replica or not suspect.ignored:
                continue
            head = answer.store
            if not all(self._history.is_ancestor(ALL, point, head) for _, point, _ in suspect.ignored):
                suspect.prolonged_at = now
            for chain, point, received in suspect.ignored:
                part = answer.chains.get(chain)
                lie = self._lies.forged.get(point) == uuid and received < begun
                if lie and isinstance(part, Delta) and point.position > part.head.position:
                    self._contradicted(replica, uuid, received, now)
            suspect.ignored = [each for each in suspect.ignored if each[2] >= begun]

    def covered(self, replica: "Replica", answer: SyncAnswer, begun: float, now: float) -> None:
        """As ``answered``. A publisher whose hello covered a position beyond the store's is excluded by the first
        reading that shows it.
        """
        if self._history.restores or not knows_leases(replica, begun - SLACK):
            return
        tracker = replica.replica_state.tracker
        since = max([begun - FIRST_QUARANTINE, *self._denied.get(replica, [])[-1:]])
        read = [tracker.freshness.of[name] for name in answer.chains if name in tracker.topics]
        denied = any(each.stated > answer.store.position and since < each.stated_at <= begun for each in read)
        if not denied:
            return
        times = [at for at in self._denied.get(replica, []) if now - at < FIRST_QUARANTINE - SLACK]
        self._denied[replica] = [*times, now]
        if len(times) >= len(self._lies.liars) + len(self._lies.stolen):
            found = f"{len(times) + 1} readings denied positions of hellos"
            raise Violation("covered", f"{replica.name}: {found} in {FIRST_QUARANTINE:g} s")

    def contradicted(self, replica: "Replica", point: Point, reached_at: float, now: float) -> None:
        """The store contradicted a forged point."""
        self._contradicted(replica, self._lies.forged[point], reached_at, now)

    def _contradicted(self, replica: "Replica", uuid: str, reached_at: float, now: float) -> None:
        if any(reached_at <= at + SPACING + SLACK for at in self._went_back.get(replica, ())):
            return  # a store that went back accuses no publisher
        suspect = self._suspect(replica, uuid)
        at_once = knows_leases(replica, now - SLACK)
        recent = [at for at in suspect.contradictions if now - at < (2 * QUARANTINE if at_once else QUARANTINE) - SLACK]
        if recent and reached_at <= recent[-1] + SPACING + SLACK:
            suspect.contradictions = recent
            return
        suspect.contradictions = [*recent, now]
        if len(suspect.contradictions) < (1 if at_once else CONTRADICTIONS):
            return
        suspect.due = True

    def excluded(self, replica: "Replica", uuid: str, now: float) -> None:
        """A quarantine begins."""
        suspect = self._suspect(replica, uuid)
        if not suspect.due:  # a lie without a link contradicted it
            suspect.contradictions.append(now)
        again = len(suspect.contradictions) > 1 or not knows_leases(replica, now - SLACK)
        suspect.excluded_at, suspect.least = now, now + (QUARANTINE if again else FIRST_QUARANTINE)

    def is_excluded(self, replica: "Replica", envelope: Envelope, now: float) -> None:
        """A message is not used, because of its publisher."""
        suspect = self._suspect(replica, envelope.uuid)
        since = now - max(suspect.excluded_at, suspect.prolonged_at)
        if since > QUARANTINE + SLACK:
            raise Violation("excluded too long", f"{replica.name}: {envelope.uuid[:4]} is excluded since {since:.3f} s")
        chain = ALL if ALL in replica.topics else envelope.topic
        if chain in replica.topics:
            suspect.ignored += [(chain, message.link.point, now) for message in envelope.messages]

    def look(self, replica: "Replica", now: float) -> None:
        """A step ended: publishers that were contradicted often enough are excluded, or for longer than before."""
        number = replica.replica_state.tracker.counters.contradicted
        more, self._number[replica] = number != self._number.get(replica, 0), number
        for (owner, uuid), suspect in self._suspects.items():
            if owner is not replica:
                continue
            if more:
                suspect.prolonged_at = now  # there is other evidence than links
            if not suspect.due:
                continue
            if not replica.replica_state.quarantine.excludes(uuid, now):
                times = ", ".join(f"{at:.3f}" for at in suspect.contradictions)
                raise Violation("not excluded", f"{replica.name}: {uuid[:4]} was contradicted at {times}")
            seconds = QUARANTINE if len(suspect.contradictions) > 1 else FIRST_QUARANTINE
            suspect.due, suspect.least = False, max(suspect.least, now + seconds)
