"""A replica's readings of the directory, as :class:`pubsub_lib.replica.discovery.Discovery` makes them (rule 14)."""

from typing import TYPE_CHECKING, Final

from pubsub_lib.errors import StoreUnavailable
from simulator.kernel import Await, Signal, Sleep, Steps

if TYPE_CHECKING:
    from simulator.replica import Replica

ENTRY: Final = "entry "
"""With a UUID behind it: the lease of one start of a service. It is not exclusive, as that of a service's name is."""
INTERVAL: Final = 4.0
AFTER_FAILURE: Final = 0.3


class DirectoryReader:
    """Reads regularly, and when ``read`` is called."""

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self._asked = Signal()
        self._shown: set[str] = set()
        replica.process.spawn(self._reading())

    def read(self) -> None:
        """Read now."""
        self._asked.set()

    def shows(self, uuid: str) -> bool:
        """Whether hellos of this publisher prove anything: its lease was shown, or no lease of any publisher. A lease
        that ended counts for longer than a run takes.
        """
        return not self._shown or uuid in self._shown

    def _reading(self) -> Steps:
        replica = self._replica
        database = replica.world.database
        while True:
            try:
                live = yield from database.query(
                    "directory", lambda: database.store.live(ENTRY, database.clock.now()), replica.name
                )
            except StoreUnavailable:
                yield Sleep("directory", AFTER_FAILURE)
                continue
            self._shown.update(live)
            replica.replica_state.directory_read(live, replica.clock.now())
            replica.nudge.set()
            yield Await("directory", self._asked, INTERVAL)
