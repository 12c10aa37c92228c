"""Begins and ends faults: what each kind does to its victim."""

from collections import Counter

from _chaos.crew import Crew
from _chaos.plan import Fault
from _chaos.schedule import Step
from _chaos.wires import Wires


class Striking:
    """For one thread. Raises OSError, ChildError."""

    def __init__(self, crew: Crew, wires: Wires) -> None:
        self._crew = crew
        self._wires = wires
        self.struck: Counter[str] = Counter()
        """Begun faults by kind."""
        self.absent: Counter[str] = Counter()
        """Faults whose victim did not run when they were due, by kind: it had just ended by itself."""
        self.latest = 0.0
        """Seconds by which the latest step was executed after its time."""

    def execute(self, step: Step, now: float) -> None:
        """Begin or end a fault."""
        self.latest = max(self.latest, now - step.at)
        if step.begins:
            self._begin(step.fault)
        else:
            self._end(step.fault)

    def _begin(self, fault: Fault) -> None:
        running = fault.victim not in self._crew.all or self._crew.all[fault.victim].running
        (self.struck if running else self.absent)[fault.kind] += 1
        match fault.kind:
            case "kill":
                self._crew.all[fault.victim].kill()
            case "pause":
                self._crew.all[fault.victim].pause()
            case "cut":
                self._wires.cut(fault.victim)

    def _end(self, fault: Fault) -> None:
        match fault.kind:
            case "kill":
                self._crew.all[fault.victim].start()
            case "pause":
                self._crew.all[fault.victim].resume()
            case "cut":
                self._wires.restore(fault.victim)
