"""The sending half of a service, and of a replica that polls: ``Publishing`` with the tasks around it."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pubsub_lib.core.envelope import Envelope, HelloAsk
from pubsub_lib.core.model import ALL
from pubsub_lib.core.publishing import Publishing
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.testing.simulator.kernel import Await, Mailbox, Process, Signal, Sleep, Steps
from pubsub_lib.testing.simulator.plan import TIMING

if TYPE_CHECKING:
    from pubsub_lib.testing.simulator.world import World


class PublisherTasks:
    """Reads heads when ``Publishing`` wants them, says hello when due, and sends in the order of the numbers."""

    def __init__(self, world: "World", process: Process, uuid: str, send: Callable[[Envelope], None]) -> None:
        self._world = world
        self._process = process
        self._send = send
        self._nudge = Signal()
        self._outbox: Mailbox[Envelope] = Mailbox(100_000)
        self.publishing = Publishing(process.name, uuid, TIMING, world.plan.limits, process.clock.now())
        process.spawn(self._hellos())
        process.spawn(self._sending())

    def out(self, envelopes: Iterable[Envelope]) -> None:
        """Queue links for sending. What is numbered and not sent when the process dies is lost."""
        for envelope in envelopes:
            self._world.monitor.said(self._process, self.publishing, envelope)
            self._outbox.put(envelope)
        self._nudge.set()

    def asked(self, ask: HelloAsk) -> None:
        """A question came."""
        self.publishing.asked(ask, self._process.clock.now())
        self._say_hellos()
        self._nudge.set()  # the next reading is due now

    def connected(self) -> None:
        """A replica has connected."""
        self.publishing.connected(self._process.clock.now())
        self._nudge.set()

    def _say_hellos(self) -> None:
        while (hello := self.publishing.next_hello(self._process.clock.now())) is not None:
            self.out([hello])

    def _sending(self) -> Steps:
        while True:
            yield Await("send", self._outbox)
            while self._outbox.items:
                envelope = self._outbox.items.popleft()
                self._send(envelope)
                yield Sleep("sent", 0.0)

    def _hellos(self) -> Steps:
        clock, publishing, database = self._process.clock, self.publishing, self._world.database
        name = self._process.name
        while True:
            self._say_hellos()
            if publishing.wants_reading(clock.now()):
                publishing.begin_reading()
                try:
                    began = clock.now()
                    point = yield from database.query("store's point", lambda: database.store.read_heads(()), name)
                    heads = publishing.heads_at(point.store)
                    if heads is None:
                        began = clock.now()
                        heads = yield from database.query("heads", lambda: database.store.read_heads((ALL,)), name)
                except StoreUnavailable:
                    publishing.heads_failed(clock.now())
                else:
                    publishing.heads_read(heads, began, clock.now())
                self._say_hellos()
            self._nudge.is_set = False  # the time is asked anew right here
            wait = max(clock.true(publishing.next_time()) - self._world.kernel.now, 0.001)
            yield Await("hellos", self._nudge, wait)
