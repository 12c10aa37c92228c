"""The monitor's own evidence about one replica: what was received, asked and synced, and when."""

from typing import TYPE_CHECKING

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.envelope import Hello
from pubsub_lib.core.model import ALL, Point
from pubsub_lib.core.transitions import State
from simulator.plan import TIMING

if TYPE_CHECKING:
    from simulator.replica import Replica


class Evidence:
    """The input of one chain of one replica, recorded independently of the tracker."""

    def __init__(self, now: float) -> None:
        self.may_full = True
        self.received: dict[Point, float] = {}
        """When a point was first received."""
        self.received_in_sync: dict[Point, float] = {}
        """The same since the running sync began: the sync drops earlier points, but not heads received again."""
        self.proved = now
        self.verified = now
        """Begin of the last sync whose answer was used; before the first, the begin of this record."""
        self.known: Point | None = None
        self.missed = False
        """A reply to a hello request after a connection had a head beyond known."""
        self.hinted: tuple[int, float] | None = None
        """The position of the store in a broadcast, beyond all earlier ones; and when the hello request is due."""
        self.cause = ""
        """The fault in the cause of the sync that is due; "" without one."""
        self.due = False
        self.resynced = False
        """A resync was requested: replies during it proved nothing, so the chain may have to poll."""
        self.replaced: dict[Point, None] = {}
        """Points that need not be waited for: a link of another history replaced theirs."""
        self._clocks: dict[Point, float] = {}
        """Since when the clock of a link runs that replaced another one: it goes on, even if known passes that one."""
        self._clocks_in_sync: dict[Point, float] = {}
        """Those that started since the running sync began; an earlier clock ends with the sync."""
        self._after: dict[Point, Point] = {}
        """The last received link, by the point that it waits for."""
        self._links: dict[Point, None] = {}
        """Points of which a link was received; of others only a head was."""
        self._links_in_sync: dict[Point, None] = {}
        """Those of them whose first message was received since the running sync began."""

    def receive(self, point: Point, now: float) -> None:
        """A link or a hello with this point was received."""
        self.received.setdefault(point, now)
        self.received_in_sync.setdefault(point, now)

    def forget_received(self) -> None:
        """All that was received is dropped: it may be of another store."""
        for kept in (self.received, self.received_in_sync, self._clocks, self._clocks_in_sync, self._after):
            kept.clear()
        for links in (self.replaced, self._links, self._links_in_sync):
            links.clear()
        self.missed = False

    def receive_link(self, prev: Point, point: Point, now: float) -> None:
        """A link with this point was received. Where two histories meet, the later link replaces the earlier one. It is
        covered or undone when a sync begins after its first message, even if a head with its point is received later.
        """
        self.replaced.pop(point, None)
        if (other := self._after.get(prev, point)) != point:
            self.replaced[other] = None
            _hand_on(self._clocks, self.received, other, point)
            _hand_on(self._clocks_in_sync, self.received_in_sync, other, point)
            self._links.pop(other, None)
            self._links_in_sync.pop(other, None)
        self._after[prev] = point
        if point not in self._links:
            self._links[point] = self._links_in_sync[point] = None
            self.receive(point, now)

    def sync_begun(self) -> None:
        """A sync begins."""
        self.received_in_sync.clear()
        self._clocks_in_sync.clear()
        self._links_in_sync.clear()

    def sync_ended(self) -> None:
        """The sync's answer is used: earlier points are covered or undone."""
        self.received = dict(self.received_in_sync)
        self._clocks = dict(self._clocks_in_sync)
        self._links = dict(self._links_in_sync)

    def oldest(self, now: float) -> float:
        """Since when the oldest clock of a received point may run; ``now`` without one."""
        return min((min(when, self._clocks.get(point, when)) for point, when in self.received.items()), default=now)

    def waits(self) -> dict[Point, float]:
        """The points that must not wait for longer than the window, and since when they wait."""
        return {point: when for point, when in self.received.items() if point not in self.replaced}

    def covers(self, position: int) -> None:
        """The replica has everything up to this position of the store, or a sync under way will bring it."""
        if self.hinted is not None and position >= self.hinted[0]:
            self.hinted = None

    def forget(self, position: int) -> None:
        """Points up to this position do not wait any more."""
        self.missed = self.missed and any(at.position > position for at in self.received)
        self.covers(position)
        self.received = {at: when for at, when in self.received.items() if at.position > position}
        self.received_in_sync = {at: when for at, when in self.received_in_sync.items() if at.position > position}
        self._clocks = {at: when for at, when in self._clocks.items() if at.position > position}
        self._clocks_in_sync = {at: when for at, when in self._clocks_in_sync.items() if at.position > position}
        self._links = {at: None for at in self._links if at.position > position}
        self._links_in_sync = {at: None for at in self._links_in_sync if at.position > position}


def _hand_on(clocks: dict[Point, float], received: dict[Point, float], other: Point, point: Point) -> None:
    """The link at ``point`` replaces the one at ``other``, and takes over its clock."""
    times = [times[other] for times in (clocks, received) if other in times]
    if times:
        clocks[point] = min(times)


class Watch:
    """One replica's evidence."""

    def __init__(self) -> None:
        self.chains: dict[str, Evidence] = {}
        self.asked: dict[str, float] = {}
        self.rounds: list[float] = []
        """When hello requests were sent, within the last ``max_idle_time``."""
        self.shown = 0
        """The latest position of the store that this replica ever received."""
        self.dropped_topics: set[str] = set()
        """Those that were ever dropped, also if they are followed again."""
        self.identified = False
        """A sync was answered, so the replica knows the id of its store."""
        self.doubtful = False
        """Before that, a message of another store was received."""
        self.strangers: set[str] = set()
        """The UUIDs of publishers of another store that were received since."""
        self.stranger_at = float("-inf")
        """When the last one of them was received for the first time."""
        self.running = 0
        """The number of the sync that was begun and not answered; 0: none."""
        self.begun = 0.0
        self.connected = float("inf")
        """When the last connection was made, on the replica's clock."""
        self.back: dict[str, float] = {}
        """Service -> the connection to it after which the recovery of all lost changes was checked."""

    def receive_foreign(self, uuid: str, now: float) -> None:
        """A message of another store was received."""
        if not self.identified:
            self.doubtful = True
        elif uuid not in self.strangers:
            self.strangers.add(uuid)
            self.stranger_at = now

    def identify(self) -> None:
        """A sync was answered. The first one drops what waits, if some of it may be of another store."""
        if self.doubtful and not self.identified:
            for evidence in self.chains.values():
                evidence.forget_received()
        self.identified = True


def may_wait(chain: Chain | None, point: Point) -> bool:
    """Whether a link that is received now may wait. While known can change, one at or behind known is dropped."""
    return chain is None or chain.frozen or point.position > chain.known_position


def hinted(watch: Watch, replica: "Replica", hello: Hello, position: int, now: float) -> None:
    """The store's point of this broadcast shows that changes of topics that it does not name may be missing: their
    hello request is due, unless two rounds were sent within the last ``max_idle_time``.
    """
    spent = len([at for at in watch.rounds if at > now - TIMING.max_idle_time]) > 1
    tracker = replica.replica_state.tracker
    if spent or ALL in tracker.topics:
        return
    for name in tracker.topics:
        chain, evidence = tracker.chain(name), watch.chains.get(name)
        behind = chain.state is State.FOLLOWING and chain.known_position < position
        if evidence is not None and evidence.hinted is None and behind and name not in hello.heads:
            evidence.hinted = position, now + TIMING.connect_jitter
