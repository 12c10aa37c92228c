"""A replica's readings of the directory, as :class:`pubsub_lib.replica.discovery.Discovery` makes them (rule 14)."""

from typing import TYPE_CHECKING, Final

import msgspec

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import NO_STORE
from pubsub_lib.core.provoked_reads import FIRST_PAUSE, FORGET, MAX_PAUSE
from pubsub_lib.core.unleased_messages import KEPT
from pubsub_lib.errors import StoreUnavailable
from simulator.invariants import Violation
from simulator.kernel import Await, Signal, Sleep, Steps

if TYPE_CHECKING:
    from simulator.replica import Replica

ENTRY: Final = "entry "
"""With a UUID behind it: the lease of one start of a service. It is not exclusive, as that of a service's name is."""
INTERVAL: Final = 4.0
AFTER_FAILURE: Final = 0.3
WITHOUT: Final = 0.5
"""Share of the replicas that do not read the directory, as behind a broker; fewer in a run with liars, and none with
liars that change their UUIDs, whom such a replica believes until each verification."""
WITHOUT_AMONG_LIARS: Final = 0.3


class DirectoryReader:
    """Reads regularly, and when ``read`` is called."""

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self._asked = Signal()
        self._shown: set[str] = set()
        self.shown_at = float("inf")
        """When the first reading ended."""
        self._waiting: list[tuple[Envelope, float]] = []
        """The received messages of publishers without a lease, which must not be applied yet."""
        self._pause = FIRST_PAUSE
        self._heads_from = float("-inf")
        """When the heads in the next hello of a publisher without a lease count."""
        replica.process.spawn(self._reading())

    def read(self) -> None:
        """Read now."""
        self._asked.set()

    def shows(self, uuid: str) -> bool:
        """Whether hellos of this publisher prove anything: its lease was shown, or the directory was never read. A
        lease that ended counts for longer than a run takes.
        """
        return self.shown_at == float("inf") or uuid in self._shown

    def seen(self, envelope: Envelope, now: float) -> Envelope:
        """What counts of a received message: of publishers without a lease the heads of one hello in each pause."""
        hello, state = envelope.hello, self._replica.replica_state
        if hello is None or self.shows(envelope.uuid) or (not hello.heads and hello.store is None):
            return envelope
        foreign = state.stores.own not in (NO_STORE, envelope.store_id)
        if foreign or now < state.quarantine.until.get(envelope.uuid, (now, ""))[0]:
            return envelope  # nothing of it counts
        if now < self._heads_from:
            return msgspec.structs.replace(envelope, hello=msgspec.structs.replace(hello, heads={}, store=None))
        self._pause = FIRST_PAUSE if now >= self._heads_from + FORGET else self._pause
        self._heads_from, self._pause = now + self._pause, min(2 * self._pause, MAX_PAUSE)
        return envelope

    def waits(self, envelope: Envelope, now: float) -> bool:
        """A message with links was received. Whether it must wait; of those that waited it is the next one to be used
        otherwise.
        """
        if not self.shows(envelope.uuid):
            self._waiting.append((envelope, now))
            return True
        self.forget(envelope)
        return False

    def forget(self, envelope: Envelope) -> None:
        """This message need not wait: it is used, or its publisher is excluded."""
        left = [each for each in self._waiting if each[0] is not envelope]
        if len(left) < len(self._waiting):
            self._pause = FIRST_PAUSE
        self._waiting = left

    def _check_used(self, now: float) -> None:
        """What waited for the shown leases was used; the rest waits for ``KEPT`` at least. Before the own store's id is
        known, messages of another store also wait.
        """
        for envelope, _ in self._waiting:
            if self.shows(envelope.uuid):
                raise Violation("held", f"{self._replica.name}: a message of {envelope.uuid[:4]} was not used in time")
        held = self._replica.replica_state.unleased.messages
        self._waiting = [each for each in self._waiting if now - each[1] < KEPT]
        if held < (number := sum(len(envelope.messages) for envelope, _ in self._waiting)):
            raise Violation("held", f"{self._replica.name}: {held} messages wait for leases, and {number} should")

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
            now = replica.clock.now()
            self.shown_at = min(self.shown_at, now)
            for outcome in replica.replica_state.directory_read(live, now):
                replica.act(outcome)
            self._check_used(now)
            replica.nudge.set()
            yield Await("directory", self._asked, INTERVAL)


def reader_of(replica: "Replica") -> DirectoryReader | None:
    """The reader of a replica; None for one that does not read the directory."""
    if not replica.reads_directory or replica.plan.polling:
        return None
    world = replica.world
    liars = world.plan.liars
    without = WITHOUT if not liars else WITHOUT_AMONG_LIARS
    reads = world.kernel.rng(f"{replica.name} directory").random() >= without
    return DirectoryReader(replica) if reads or any(liar.identity == "changing" for liar in liars) else None
