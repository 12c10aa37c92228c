"""A relay in place of a replica's state: what each step makes is sent, and passed on to those who wait."""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Final

from pubsub_lib.core.answer_time import names
from pubsub_lib.core.effects import RequestHello, StartSync
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import SyncAnswer, Want
from pubsub_lib.core.relay_contents import Question
from pubsub_lib.core.relaying import Relay, RelayStep
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.errors import PubSubError
from pubsub_lib.journal import Journal
from pubsub_lib.journal.rows import Outcome
from pubsub_lib.logs import fields, logger
from pubsub_lib.sync.question import SyncQuestion

_log = logger(__name__)

MAX_WAITING: Final = 1000
"""Maximum number of questions that wait for an answer; further ones are refused, and their replicas ask again."""
MAX_UNFOLLOWED: Final = 1000
"""Number of topics that this relay does not follow, after which no further ones are logged."""

Ready = Future[Question | None]
"""The question, when it is to be answered; None: it gets no answer."""
_SENT: Final[tuple[Outcome]] = ("sent",)


class RelayCore:
    """Not thread-safe: the engine's lock is held. ``send``: the driver's, which blocks for a short time at most.
    ``looped(service, uuid)``: a parent is below this relay. ``journal``: records what is sent.
    """

    def __init__(
        self,
        relay: Relay,
        send: Callable[[Envelope], None],
        looped: Callable[[str, str], None],
        journal: Journal | None = None,
    ) -> None:
        self.relay = relay
        self._journal = journal
        self._send = send
        self._looped = looped
        self._requests: list[RequestHello] = []
        self._waiting: dict[str, Ready] = {}
        self._asked = 0
        self._closed = False
        self._refused = ""
        self._unfollowed: set[str] = set()
        """Topics that were logged because a replica below wants them and this relay does not follow them."""
        self.counts = dict.fromkeys(("links", "hellos", "answers", "unsent", "questions", "answered", "joined"), 0)
        """Sent links, broadcast hellos and hello replies (``answers``), messages that the transport refused, the
        questions of replicas below, and readings of older links for them. Changed under the lock; any thread may copy
        it."""

    # -- a replica's state, for the engine ---------------------------------------------------------------------------

    def feed(self, envelope: Envelope, now: float) -> StepResult:
        """An envelope was received from above. Its hello requests are to be taken."""
        return self._kept(self._out(self.relay.feed(envelope, now), now))

    def tick(self, now: float) -> StepResult:
        """Time passed."""
        return self._out(self.relay.tick(now), now)

    def subscribe(self, topics: Collection[str], now: float) -> StepResult:
        """Follow topics."""
        self._unfollowed.difference_update(topics)
        return self._out(self.relay.subscribe(topics, now), now)

    def directory_read(self, uuids: Collection[str], now: float) -> list[StepResult]:
        """The directory was read. The hello requests are to be taken."""
        return [self._kept(self._out(step, now)) for step in self.relay.directory_read(uuids, now)]

    def sync_done(self, number: int, answer: SyncAnswer, now: float) -> StepResult:
        """The store, or a parent, answered."""
        return self._out(self.relay.sync_done(number, answer, now), now)

    def sync_failed(self, number: int, now: float, pause: float | None = None) -> None:
        """Neither the store nor a parent answered, or one asked for a pause."""
        self.relay.sync_failed(number, now, pause)

    def next_time(self) -> float:
        """When ``tick`` is next due."""
        return self.relay.next_time()

    # -- from below ----------------------------------------------------------------------------------------------------

    def hello_requested(self, ask: HelloRequest, now: float) -> None:
        """A replica below requests a hello reply. The hello requests are to be taken."""
        self._kept(self._out(self.relay.hello_requested(ask, now), now))

    def connected(self, now: float) -> None:
        """A replica below has connected."""
        self.relay.sequencer.connected(now)
        self._send_hellos(now)

    def sync_requested(self, question: SyncQuestion, now: float) -> tuple[str, Ready]:
        """A replica below requests a sync: the question's name, and the moment to come at which :meth:`answer` is to be
        called. The hello requests are to be taken.
        """
        self._asked += 1
        asker, ready = str(self._asked), Ready()
        self.counts["questions"] += 1
        if self._closed or len(self._waiting) >= MAX_WAITING:
            ready.set_result(None)
            return asker, ready
        self._waiting[asker] = ready
        start = StartSync(self._asked, question.wants, {}, question.refresh, question.nonce)
        self._kept(self._out(self.relay.sync_requested(asker, start, now), now))
        return asker, ready

    def answer(self, question: Question, now: float) -> SyncAnswer | None:
        """The answer to a question that is ready; None: the relay has nothing of it. Each question has a step of its
        own, so that links pass between the answers to several.
        """
        found = None if self._closed else self.relay.contents.answer(question, now)
        self.counts["answered"] += found is not None
        return found

    def _log_unfollowed(self, topics: Collection[str]) -> None:
        """Log each topic once: a replica below that wants it is not synced by this relay."""
        fresh = set(topics) - self._unfollowed
        if fresh and len(self._unfollowed) < MAX_UNFOLLOWED:
            self._unfollowed |= fresh
            _log.warning(
                "a replica below wants topics that this relay does not follow: %s; add them to the option topics of "
                "this relay and of the relays above it, or remove them at the replica",
                names(fresh),
                extra=fields(topics=len(fresh)),
            )

    def lacking(self, question: SyncQuestion) -> Mapping[str, Want]:
        """The deltas of a question that begin before the relay's own links."""
        return self.relay.contents.lacking(question.wants)

    def join(self, older: SyncAnswer, begun: float, now: float) -> None:
        """The store, or a parent, answered with older links, which were requested when ``begun``."""
        self.counts["joined"] += 1
        self.relay.contents.join(older, begun, now)

    def answer_again(self, question: SyncQuestion, arrived: float, now: float) -> SyncAnswer | None:
        """The answer to a question of before, whose proofs were renewed then."""
        return self.relay.contents.answer(Question("", question.wants, question.refresh, arrived, {}), now)

    def give_up(self, asker: str) -> None:
        """The answer to this question came too late."""
        self._waiting.pop(asker, None)

    # -- out -----------------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Number of questions that wait for an answer."""
        return len(self._waiting)

    @property
    def has_requests(self) -> bool:
        """Whether there are hello requests to take. Any thread."""
        return bool(self._requests)

    def take_requests(self) -> list[RequestHello]:
        """The hello requests to send above."""
        taken, self._requests = self._requests, []
        return taken

    def serve_syncs_at(self, port: int, now: float) -> None:
        """Name this port in all later hellos but the goodbye; 0: none. A hello follows soon: the replicas below that
        have connected already need the port for their syncs.
        """
        self.relay.sequencer.serves = port
        self.relay.sequencer.connected(now)

    def close(self, now: float, instead: Collection[str] = ()) -> None:
        """Send a goodbye, and nothing more. Questions that wait get no answer. ``instead``: the addresses to which the
        replicas below may go. Idempotent.
        """
        if self._closed:
            return
        self.relay.instead = tuple(instead)
        self._sent(self.relay.sequencer.goodbye(now))
        self._closed = True
        for waiting in self._waiting.values():
            waiting.set_result(None)
        self._waiting.clear()

    def _kept(self, result: StepResult) -> StepResult:
        self._requests.extend(result.hello_requests)
        return result

    def _out(self, step: RelayStep, now: float) -> StepResult:
        for number, envelope in enumerate(step.envelopes):
            if not self._sent(envelope):
                # The others would be refused too, each after a wait. Replicas below find the hole by the next hello.
                self.counts["unsent"] += len(step.envelopes) - number
                break
            self.counts["links"] += sum(each.part == each.parts for each in envelope.messages)
        self.relay.contents.log()  # after the links were sent, which must not wait for it
        self._send_hellos(now)
        for question in step.ready:
            waiting = self._waiting.pop(question.asker, None)
            if waiting is not None:
                waiting.set_result(question)
        if step.loop is not None:
            self._looped(*step.loop)
        if step.unfollowed:
            self._log_unfollowed(step.unfollowed)
        return step.result

    def _send_hellos(self, now: float) -> None:
        while not self._closed and (made := self.relay.next_hello(now)) is not None:
            if not self._sent(made):
                self.counts["unsent"] += 1 + self.relay.sequencer.refused()
                return
            asked = made.hello is not None and made.hello.nonce
            self.counts["answers" if asked else "hellos"] += 1

    def _sent(self, envelope: Envelope) -> bool:
        """Whether the transport took it. Each new reason of a refusal is logged once."""
        if self._closed:
            return False
        if self._journal is not None:
            self._record(self._journal, envelope)
        try:
            self._send(envelope)
        except PubSubError as error:
            if str(error) != self._refused:
                _log.warning("a message could not be sent to the replicas below: %s", error)
            self._refused = str(error)
            return False
        self._refused = ""
        return True

    def _record(self, journal: Journal, envelope: Envelope) -> None:
        """As a publisher does: before the message is sent."""
        hello = envelope.hello
        if envelope.messages:
            journal.messages(_SENT, envelope)
        elif hello is not None and hello.nonce:
            journal.note("hello", peer=hello.nonce, service=envelope.service, uuid=envelope.uuid)
