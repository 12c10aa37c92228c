"""Which relay a replica listens to and reads from (rule R5). Sans-I/O: the caller connects."""

from collections.abc import Collection, Sequence

from pubsub_lib.core.freshness import NEVER_YET
from pubsub_lib.core.timing import Timing


class Parents:
    """The parents that may be used, best first, and the one that is used. Not thread-safe."""

    def __init__(self, names: Sequence[str], timing: Timing, now: float) -> None:
        """``names``: at least one."""
        self._names = list(names)
        self._timing = timing
        self._since = now
        self.refused: dict[str, float] = {}
        """When each parent was refused last."""
        self.current = self._names[0]

    def check(self, unproved: float, now: float) -> bool:
        """Leave the parent if the replica is stale, although it had time to get a proof from it. ``unproved``:
        :meth:`.FreshnessMonitor.unproved`, because the staleness of a new topic is infinite. Returns whether
        ``current`` is another one now.

        A relay that is cut off goes on answering, with growing ages: silence alone would not show it.
        """
        if unproved <= self._timing.stale_after or now < self._since + self._timing.stale_after:
            return False
        return self.leave(now)

    def refuse(self, name: str, now: float) -> bool:
        """A parent is below this relay itself, so it is not used for ``stale_after``. Returns whether ``current`` is
        another one now.

        Not for longer: when two relays that may choose each other change their parents, the loop ends by itself, and
        nothing shows that to a relay which listens elsewhere.
        """
        self.refused[name] = now
        return name == self.current and self.leave(now)

    def choose(self, name: str, now: float) -> None:
        """Use this parent from now on: the caller knows of a better one."""
        self._since = now
        self.current = name

    def next_time(self) -> float:
        """When ``check`` may be due."""
        return self._since + self._timing.stale_after

    def leave(self, now: float, instead: Collection[str] = ()) -> bool:
        """Use the next parent in order, although the replica may be fresh: if possible one of ``instead``, to which the
        current one sends its replicas. Others than the replica's own parents are never used. Returns whether there is
        one; without it the current one stays, and is judged again later.
        """
        self._since = now
        at = self._names.index(self.current)
        others = [*self._names[at + 1 :], *self._names[:at]]
        usable = [name for name in others if self.refused.get(name, NEVER_YET) + self._timing.stale_after <= now]
        if not usable:
            return False
        self.current = next((name for name in usable if name in instead), usable[0])
        return True
