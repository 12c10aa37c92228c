"""Checks the quarantine of publishers (rule 14), with evidence of its own about contradictions.

Times are those of a replica's clock. Methods raise Violation.
"""

from typing import TYPE_CHECKING, Final

from pubsub_lib.core.model import Point
from pubsub_lib.core.quarantine import CONTRADICTIONS
from simulator.invariants import Violation
from simulator.plan import QUARANTINE, SPACING

if TYPE_CHECKING:
    from simulator.lies import Lies
    from simulator.replica import Replica

NEVER_YET: Final = float("-inf")
SLACK: Final = 0.01


class Suspect:
    """One publisher, as one replica knows it."""

    def __init__(self) -> None:
        self.contradictions: list[float] = []
        """Those that count, since the last quarantine."""
        self.excluded_at = NEVER_YET


class ExclusionWatch:
    """The publishers of all replicas."""

    def __init__(self, lies: "Lies") -> None:
        self._lies = lies
        self._suspects: dict[tuple[Replica, str], Suspect] = {}
        self._received: dict[tuple[Replica, Point], float] = {}

    def _suspect(self, replica: "Replica", uuid: str) -> Suspect:
        return self._suspects.setdefault((replica, uuid), Suspect())

    def received(self, replica: "Replica", point: Point, now: float) -> None:
        """A forged link was received."""
        self._received.setdefault((replica, point), now)

    def received_at(self, replica: "Replica", point: Point) -> float:
        """When a forged link was received for the first time."""
        return self._received[replica, point]

    def reached(self, replica: "Replica", point: Point, now: float) -> None:
        """A replica applied a forged link: not one that a publisher sent during its quarantine."""
        uuid = self._lies.forged[point]
        excluded_at = self._suspect(replica, uuid).excluded_at
        if excluded_at + SLACK < self._received[replica, point] < excluded_at + QUARANTINE - SLACK:
            raise Violation("excluded used", f"{replica.name}: {uuid[:4]} led to {point} at {now:.3f} s")

    def contradicted(self, replica: "Replica", point: Point, reached_at: float, now: float) -> None:
        """The store contradicted a forged point."""
        suspect = self._suspect(replica, self._lies.forged[point])
        recent = [at for at in suspect.contradictions if now - at < QUARANTINE - SLACK]
        counts = not recent or reached_at > recent[-1] + SPACING + SLACK
        suspect.contradictions = [*recent, now] if counts else recent

    def excluded(self, replica: "Replica", uuid: str, now: float) -> None:
        """A quarantine begins."""
        suspect = self._suspect(replica, uuid)
        suspect.excluded_at = now
        suspect.contradictions.clear()

    def is_excluded(self, replica: "Replica", uuid: str, now: float) -> None:
        """A message is not used, because of its publisher."""
        since = now - self._suspect(replica, uuid).excluded_at
        if since > QUARANTINE + SLACK:
            raise Violation("excluded too long", f"{replica.name}: {uuid[:4]} is excluded since {since:.3f} s")

    def look(self, replica: "Replica") -> None:
        """Publishers that were contradicted often enough are excluded."""
        for (owner, uuid), suspect in self._suspects.items():
            if owner is replica and len(suspect.contradictions) >= CONTRADICTIONS:
                times = ", ".join(f"{at:.3f}" for at in suspect.contradictions)
                raise Violation("not excluded", f"{replica.name}: {uuid[:4]} was contradicted at {times}")
