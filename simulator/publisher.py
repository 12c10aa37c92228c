"""The sending part of a service, and of a replica that polls: ``Sequencer`` with its tasks."""

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Final

from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import ALL
from pubsub_lib.core.sequencer import Sequencer
from pubsub_lib.errors import StoreUnavailable
from simulator.kernel import Await, Mailbox, Process, Signal, Sleep, Steps
from simulator.plan import TIMING

if TYPE_CHECKING:
    from simulator.world import World

SEND_WAIT: Final = 0.1
"""Seconds that a transport waits before it refuses."""
TURN: Final = 0.001

Sending = Generator[Sleep | Await, None, bool]
"""Steps that return whether the transport accepted a message."""


class PublisherTasks:
    """Reads heads when ``Sequencer`` needs them, sends hellos when due, and sends links in the order of their numbers.

    As in the real publisher, links are sent under the lock of the numbers. Hellos are made under it and sent without
    it.
    """

    def __init__(
        self,
        world: "World",
        process: Process,
        uuid: str,
        send: Callable[[Envelope], None],
        refuses: Callable[[], bool] = lambda: False,
    ) -> None:
        self._world = world
        self._process = process
        self._send = send
        self._refuses = refuses
        self._nudge = Signal()
        self._outbox: Mailbox[Envelope] = Mailbox(100_000)
        self._leaving = False
        """The outbox has the lock."""
        self._held = False
        """A hello that is being sent has the lock; only in a mutant."""
        self._sending_hellos = False
        self.publishing = Sequencer(process.name, uuid, TIMING, world.plan.limits, process.clock.now())
        self.publishing.store_id = world.database.store.store_id
        process.spawn(self._hellos())
        process.spawn(self._sending())

    def out(self, envelopes: Iterable[Envelope]) -> None:
        """Queue links for sending. Numbered links that are not sent when the process dies are lost."""
        for envelope in envelopes:
            self._world.monitor.sent(self._process, self.publishing, envelope)
            self._outbox.put(envelope)
        self._nudge.set()

    def asked(self, ask: HelloRequest) -> None:
        """A hello request arrived: it is answered at once, also while the store is read."""
        self.publishing.hello_requested(ask, self._process.clock.now())
        self._process.spawn(self._send_hellos())
        self._nudge.set()  # the next reading is due now

    def connected(self) -> None:
        """A replica has connected."""
        self._world.monitor.publisher_connected(self._process, self.publishing)
        self.publishing.connected(self._process.clock.now())
        self._nudge.set()

    def _send_hellos(self) -> Steps:
        """Send all due hellos; stop at the first that is refused."""
        if self._sending_hellos:
            return  # the task that sends hellos goes on until none is due
        self._sending_hellos = True
        self._world.monitor.hello_burst(self._process, self.publishing)
        while True:
            while self._leaving or self._outbox.items:
                yield Sleep("hello's turn", TURN)
            hello = self.publishing.next_hello(self._process.clock.now())
            if hello is None:
                break
            self._world.monitor.sent(self._process, self.publishing, hello)
            if not (yield from self._send_hello(hello)) and self._refused():
                break
        self._sending_hellos = False

    def _refused(self) -> bool:
        """The transport refused a hello. Returns whether that ends the others."""
        self._world.monitor.hello_refused(self._process, self.publishing)
        self.publishing.refused()
        self._nudge.set()  # a broadcast is due again sooner
        return True

    def _send_hello(self, hello: Envelope) -> Sending:
        return (yield from self._leave(hello))

    def _leave(self, envelope: Envelope) -> Sending:
        """Whether the transport accepted the envelope. A refusal takes time."""
        if self._refuses():
            self._world.count("refuse")
            yield Sleep("refused", SEND_WAIT)
            return False
        self._send(envelope)
        yield Sleep("sent", 0.0)
        return True

    def _sending(self) -> Steps:
        while True:
            yield Await("send", self._outbox)
            while self._outbox.items:
                if self._held:
                    self._world.monitor.waits_for_hello(self._process)
                self._leaving = True
                yield from self._leave(self._outbox.items.popleft())
            self._leaving = False

    def _hellos(self) -> Steps:
        clock, publishing, database = self._process.clock, self.publishing, self._world.database
        name = self._process.name
        while True:
            yield from self._send_hellos()
            if publishing.wants_reading(clock.now()):
                publishing.begin_reading()
                try:
                    began = clock.now()
                    point = yield from database.query("store's point", lambda: database.store.read_heads(()), name)
                    heads = publishing.heads_at(point.store, began)
                    if heads is None:
                        began = clock.now()
                        heads = yield from database.query("heads", lambda: database.store.read_heads((ALL,)), name)
                except StoreUnavailable:
                    publishing.heads_failed(clock.now())
                else:
                    publishing.heads_read(heads, began, clock.now())
                yield from self._send_hellos()
            self._nudge.is_set = False  # next_time() is read again right here
            wait = max(clock.true(publishing.next_time()) - self._world.kernel.now, 0.001)
            yield Await("hellos", self._nudge, wait)
