"""Events that only the checks of runs with liars use."""

from typing import TYPE_CHECKING

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import Point
from simulator.kernel import Process

if TYPE_CHECKING:
    from simulator.replica import Replica


class MonitorHooks:
    """Methods without effect."""

    def replaced(self, replica: "Replica", chain: str, head: Point, *, same_history: bool) -> None:
        """A full sync replaced a chain's contents; links that had waited are not applied yet."""

    def excluded(self, replica: "Replica", envelope: Envelope) -> None:
        """A replica does not use a message of an excluded publisher."""

    def handed_over(self, process: Process, worker: str) -> None:
        """A service takes links of a worker."""

    def handoffs_forgotten(self, process: Process) -> None:
        """A service found another history, and judges no transaction that was handed over before."""

    def worker_excluded(self, process: Process, worker: str) -> None:
        """A service does not use the links of a worker from now on."""

    def look(self, replica: "Replica") -> None:
        """Check a replica that runs, at regular times."""
