"""Checks the number and the kind of the full syncs that lies cause (rules 5 and 14). Methods raise Violation."""

from math import ceil, log2
from typing import TYPE_CHECKING, Final

from pubsub_lib.core.model import Want
from pubsub_lib.core.provoked_reads import FIRST_PAUSE
from pubsub_lib.core.quarantine import CONTRADICTIONS
from simulator.invariants import Violation
from simulator.plan import QUARANTINE, SPACING, TIMING

if TYPE_CHECKING:
    from simulator.replica import Replica

IN_SPACING: Final = 1 + ceil(SPACING / TIMING.sync_interval)
"""Maximum number of syncs between two contradictions that count."""
PROVOKED: Final = CONTRADICTIONS + (CONTRADICTIONS - 1) * IN_SPACING
"""Maximum number of full syncs that the links of one publisher cause before its quarantine: the contradictions, and
what the minimum time between two syncs allows in the times when a contradiction does not count."""


class SyncBudget:
    """The full syncs of all replicas, by what caused them."""

    def __init__(self) -> None:
        self._provoked: dict[tuple[Replica, str], dict[int, float]] = {}
        self._useless: dict[Replica, list[float]] = {}
        self._differed: dict[Replica, int] = {}
        """How many syncs found that the replica was wrong."""

    def provoked(
        self, replica: "Replica", number: int, uuid: str, name: str, want: Want, now: float, excused: int, *,
        follows: bool,
    ) -> None:  # fmt: skip
        """Sync ``number`` is a full one of a chain whose known point was forged. ``follows``: its cause is a delta of
        the sync before that was incomplete. It follows at once, so it does not count again when that sync counted.
        ``excused``: how often the store went back, after which contradictions accuse no publisher for ``SPACING``.
        """
        if want.buckets is None:
            raise Violation("whole topic", f"{replica.name}: a link of {uuid[:4]} costs all objects of {name!r}")
        times = self._provoked.setdefault((replica, uuid), {})
        if follows and number - 1 in times:
            return
        times[number] = now
        caused = len([at for at in times.values() if now - at < QUARANTINE])
        maximum = PROVOKED + excused * IN_SPACING
        if caused > maximum:
            raise Violation("budget", f"{replica.name}: {uuid[:4]} caused {caused} full syncs, at most {maximum}")

    def failed(self, replica: "Replica", number: int) -> None:
        """Sync ``number`` failed. It is tried again after pauses that grow, and counts when it succeeds."""
        for (owner, _), times in self._provoked.items():
            if owner is replica:
                times.pop(number, None)

    def compared(self, replica: "Replica", publishers: int, now: float, *, wrong: bool) -> None:
        """A sync compared buckets. ``publishers``: how many have pauses of their own. ``wrong``: the replica was, and
        no later commit explains it.
        """
        if wrong:
            # The digests may have been right: the pauses begin again.
            self._differed[replica] = self._differed.get(replica, 0) + 1
            return
        times = self._useless.setdefault(replica, [])
        times.append(now)
        provoked = sum(len(each) for (owner, _), each in self._provoked.items() if owner is replica)
        begun = publishers + provoked + self._differed.get(replica, 0)
        maximum = begun * (2 + log2(1 + (now - times[0]) / FIRST_PAUSE))
        if len(times) > maximum:
            found = f"{len(times)} readings because of false digests, at most {maximum:.1f}"
            raise Violation("budget", f"{replica.name}: {found}")
