"""The figures that the processes of a run reported, summed over the starts of each participant. No I/O."""

import msgspec

from _chaos.messages import Followed, Wrote


class ReplicaFigures(msgspec.Struct, frozen=True):
    """All processes of one replica together: sums, and maxima of the times."""

    deliveries: int = 0
    calls: int = 0
    twice: int = 0
    staleness: float = 0.0
    latency: float = 0.0
    lies: int = 0
    undone: int = 0


class Figures:
    """The last report of each process. A killed process reported at most half a second before its end."""

    def __init__(self) -> None:
        self._wrote: dict[tuple[str, int], Wrote] = {}
        self._followed: dict[tuple[str, int], Followed] = {}

    def wrote(self, name: str, start: int, message: Wrote) -> None:
        """Note a report of a worker. ``start``: the number of its process."""
        self._wrote[name, start] = message

    def followed(self, name: str, start: int, message: Followed) -> None:
        """Note a report of a replica."""
        self._followed[name, start] = message

    def acknowledged(self, worker: str) -> int:
        """The number of the worker's last acknowledged transaction."""
        return max((each.done for (name, _), each in self._wrote.items() if name == worker), default=0)

    @property
    def changes(self) -> int:
        """Acknowledged changes of all workers."""
        return sum(each.changes for each in self._wrote.values())

    @property
    def failed(self) -> int:
        """Attempts of workers that raised an error of the database."""
        return sum(each.failed for each in self._wrote.values())

    @property
    def deliveries(self) -> int:
        """Changes that replicas got by following."""
        return sum(each.deliveries for each in self._followed.values())

    def replica(self, replica: str) -> ReplicaFigures:
        """The figures of one replica."""
        mine = [each for (name, _), each in self._followed.items() if name == replica]
        return ReplicaFigures(
            deliveries=sum(each.deliveries for each in mine),
            calls=sum(each.calls for each in mine),
            twice=sum(each.twice for each in mine),
            staleness=max((each.staleness for each in mine), default=0.0),
            latency=max((each.latency for each in mine), default=0.0),
            lies=sum(each.lies for each in mine),
            undone=sum(each.undone for each in mine),
        )
