"""The begins and ends of the planned faults, in the order in which they are due. No I/O and no clock."""

from collections.abc import Iterable, Iterator

import msgspec

from _chaos.plan import Fault


class Step(msgspec.Struct, frozen=True, order=True):
    """The begin or the end of one fault."""

    at: float
    begins: bool
    fault: Fault


class Schedule:
    """The steps that were not executed yet. For one thread."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        steps = [step for fault in faults for step in (Step(fault.at, True, fault), Step(fault.end, False, fault))]
        # A fault's begin comes first, also when both are due at the same time.
        self._ahead = sorted(steps, key=lambda step: (step.at, not step.begins, step.fault), reverse=True)

    def due(self, now: float) -> Iterator[Step]:
        """The steps that are due, each once. The time is in seconds after the start of the writers."""
        while self._ahead and self._ahead[-1].at <= now:
            yield self._ahead.pop()

    @property
    def next_at(self) -> float | None:
        """When the next step is due; None: all were executed."""
        return self._ahead[-1].at if self._ahead else None
