"""The process of a lie: valid messages with changes that were never committed.

As a publisher (``port``) it answers at the address of a service, under the UUID of that service, and continues the
chains of topics with links of its own; it proves them by hello replies, repeats old ones, and withholds all true ones.
As a worker it hands such links over to the service. It reads heads, UUID and the store's id from the database: no liar
can know more.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

import msgspec
import zmq

from _chaos.messages import Lied, LieTask, Message, Ready
from _chaos.plan import FALSE
from pubsub_lib import Settings, Store, Worker
from pubsub_lib.core import codec, digest
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest
from pubsub_lib.core.envelope import Message as LinkMessage
from pubsub_lib.core.model import ALL, Change, Head, Link, Point
from pubsub_lib.errors import FrameError, PubSubError
from pubsub_lib.journal import JournalSettings
from pubsub_lib.testing.stream_proxy import TCP
from pubsub_zmq.buckets import bucketed
from pubsub_zmq.subscription_budget import request_in

PAUSE: Final = 0.05
"""Seconds between two lies."""
KEPT: Final = 20
"""Number of own links that are repeated."""
Wait = Callable[[float], object]


class Lies:
    """False links and heads that continue true heads. No I/O."""

    def __init__(self, seed: str, service: str) -> None:
        self._rng = random.Random(f"chaos lie {seed}")
        self._service = service
        self._number = 0
        self._links: list[Link] = []
        self._heads: dict[str, Head] = {}

    def link(self, heads: Mapping[str, Head]) -> Link:
        """A link that continues the head of one of these topics, or an own link again."""
        rng = self._rng
        if self._links and rng.random() < 0.2:
            return rng.choice(self._links)
        topic = rng.choice(sorted(heads))
        return self._continued(topic, heads[topic])

    def hello(self, request: HelloRequest, heads: Mapping[str, Head], position: int) -> Hello:
        """A reply that claims own heads, where there are some, and true ones."""
        asked = [topic for topic in request.topics if topic in heads]
        claimed = {topic: self._heads.get(topic, heads[topic]) for topic in asked}
        last = max([position, *(head.point.position for head in claimed.values())])
        return Hello(dict.fromkeys(asked, 1), claimed, Point(last, 7), 0.0, request.nonce)

    def _continued(self, topic: str, head: Head) -> Link:
        rng = self._rng
        self._number += 1
        version = head.point.position + 1
        change = Change(FALSE, f"{self._service}-{self._number}", "create", version, b'{"owner":"mallory"}')
        total = digest.add(head.digest, digest.fingerprint(FALSE, change.key, version, change.value or b""))
        if rng.random() < 0.3:
            total ^= 1 << rng.randrange(60)
        point = Point(version, rng.getrandbits(62))
        made = Link(topic, head.point, point, [change], head.count + 1, total, head.point, 1, self._service, 0.0)
        self._links = [*self._links[1 - KEPT :], made]
        self._heads[topic] = Head(point, made.count, total)
        return made


class Truth(msgspec.Struct, frozen=True):
    """What a lie continues. ``uuid``: that of the service's lease."""

    store_id: bytes
    uuid: str
    position: int
    heads: Mapping[str, Head]


def run(task: LieTask, send: Callable[[Message], None], wait: Wait = time.sleep) -> None:
    """Lie until the process is killed. Raises PubSubError when the configuration is invalid."""
    settings = msgspec.structs.replace(Settings.from_file(task.configuration), journal=JournalSettings())
    store = _opened(settings.store_url, wait)
    lies = Lies(task.seed, task.service)
    with ExitStack() as stack:
        if task.port:
            lie = stack.enter_context(_publishing(task, lies))
        else:
            lie = partial(_hand_over, stack.enter_context(Worker(settings, store)))
        ready = False
        while True:
            wait(PAUSE)  # the pace of the lies; nothing waits for it
            known = truth(store, task.service, task.topics)
            if known is None:
                continue
            link = lies.link(known.heads)
            send(Lied((link.topic, link.point.position, link.point.nonce)))  # first: this process may be killed
            lie(known, link)
            if not ready:
                ready = True
                send(Ready())


def truth(store: Store, service: str, topics: Sequence[str]) -> Truth | None:
    """The heads of the topics, and the lease of a service. None: the database or the lease is missing now."""
    try:
        entries = store.directory.live()
        heads = store.read_heads(topics)
    except PubSubError:
        return None  # another fault; the next try comes in PAUSE
    uuids = [each.uuid for each in entries if each.service == service]
    known = {topic: head for topic, head in heads.topics.items() if head.point.position}
    return Truth(store.store_id, uuids[-1], heads.store.position, known) if uuids and known else None


def _opened(url: str, wait: Wait) -> Store:
    while True:
        try:
            return Store(url)
        except PubSubError:
            wait(PAUSE)  # another fault


@contextmanager
def _publishing(task: LieTask, lies: Lies) -> Iterator[Callable[[Truth, Link], None]]:
    """A publisher; the function answers the hello requests, and sends one link."""
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        socket.bind(f"{TCP}127.0.0.1:{task.port}")

        def lie(known: Truth, link: Link) -> None:
            for request in _requests(socket):
                hello = lies.hello(request, known.heads, known.position)
                _send(socket, Envelope(task.service, known.uuid, ALL, 0, (), hello, known.store_id))
            message = LinkMessage(link)
            _send(socket, Envelope(task.service, known.uuid, link.topic, 1, [message], None, known.store_id))

        yield lie


def _requests(socket: "zmq.Socket[bytes]") -> list[HelloRequest]:
    found = []
    while socket.poll(0):
        request = request_in(socket.recv())
        if request:
            try:
                found.append(codec.read_hello_request(request))
            except FrameError:
                pass  # garbage of another hostile process
    return found


def _send(socket: "zmq.Socket[bytes]", envelope: Envelope) -> None:
    head, body = codec.encode(envelope)
    socket.send_multipart((bucketed(head) if envelope.messages else head, body))


def _hand_over(worker: Worker, _: Truth, link: Link) -> None:
    worker.hand_over([link])
