"""The messages by which a worker's transaction reaches the publisher service of its host, to be committed there.

A frame is 4 bytes of length (big-endian) and an array in msgpack. The worker opens a connection with :class:`Hello` and
gets :class:`Welcome` or :class:`Refused`. For each :class:`Request` it gets :class:`Prepared` before the COMMIT is sent
to the database, once for each attempt, and then :class:`Finished`; or :class:`Declined`, when nothing was written.

Sans-I/O: no socket, no clock, no log. ``VERSION`` changes with every field, those of ``Operation`` included.
"""

from typing import Final

import msgspec

from pubsub_lib import errors
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import NO_STORE, Link, Origin, Point, Position
from pubsub_lib.errors import FrameError, OutcomeUnknown, PubSubError, StoreError
from pubsub_lib.store.group_commit import Attempt
from pubsub_lib.store.links import Commit
from pubsub_lib.store.verbs import Operation, ReadChanged
from pubsub_lib.store.writer import Work

VERSION: Final = 2
MAX_REQUEST: Final = 64 * 1024
"""Maximum size of a request. A larger transaction gains little from a shared one, and delays the others."""
MAX_REPLY: Final = 1024 * 1024
"""Maximum size of a reply. A transaction whose links are larger, because updates merged into large values, is
declined."""
_LENGTH: Final = 4
_ENCODER: Final = msgspec.msgpack.Encoder()


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """A message: an array that begins with its tag."""


class Hello(_Message, frozen=True, tag=1):
    """A worker's first message. ``database`` and ``limits`` must be those of the service."""

    version: int
    database: str
    limits: dict[str, int]


class Request(_Message, frozen=True, tag=2):
    """One recorded transaction. ``reads``: table, key and version of each object that it read. ``publish``: as of
    :class:`.Work`.
    """

    operations: list[Operation]
    reads: list[tuple[str, str, int]]
    nonce: Position
    origin: Origin
    publish: bool


class Welcome(_Message, frozen=True, tag=3):
    """The service takes requests on this connection."""


class Refused(_Message, frozen=True, tag=4):
    """The service takes no requests of this worker; ``reason`` is a sentence without its end."""

    reason: str


class Prepared(_Message, frozen=True, tag=5):
    """The transaction will have this point and these links if the COMMIT, which was not sent yet, succeeds."""

    point: Point
    links: list[Link]
    store_id: bytes = NO_STORE


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An error: the name of its class, and its text."""

    kind: str
    text: str


class Finished(_Message, frozen=True, tag=6):
    """The result of an :class:`.Attempt`; its commit, and the commit in ``doubt``, is the last that was prepared.
    ``published``: the service publishes the links.
    """

    committed: bool
    error: Failure | None = None
    shared: bool = False
    doubt: bool = False
    published: bool = False


class Declined(_Message, frozen=True, tag=7):
    """Nothing was written: the worker commits by its own connection."""


_REQUESTS: Final = msgspec.msgpack.Decoder(Hello | Request)
_REPLIES: Final = msgspec.msgpack.Decoder(Welcome | Refused | Prepared | Finished | Declined)
Reply = Welcome | Refused | Prepared | Finished | Declined


def encode(message: _Message) -> bytes:
    """The frame of a message."""
    body = _ENCODER.encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


def hello(database: str, limits: Limits) -> Hello:
    """The first message of a worker."""
    return Hello(VERSION, database, msgspec.structs.asdict(limits))


def refusal(given: Hello, own: Hello) -> str:
    """The reason to refuse a worker, "" for none."""
    if given.version != own.version:
        return f"the service uses version {own.version} of the messages and this program {given.version}"
    if given.database != own.database:
        return f"the service writes to {own.database} and this program to {given.database}"
    for name in sorted(own.limits.keys() | given.limits.keys()):
        ours, theirs = own.limits.get(name), given.limits.get(name)
        if ours != theirs:
            return f"the service has {name} = {ours} and this program {theirs}"
    return ""


def request_of(work: Work) -> Request:
    """The request of a recorded transaction."""
    reads = [(table, key, version) for (table, key), version in work.reads.items()]
    return Request(list(work.operations), reads, work.nonce, work.origin, work.publish)


def work_of(request: Request) -> Work:
    """The recorded transaction of a request."""
    reads = {(table, key): version for table, key, version in request.reads}
    return Work(tuple(request.operations), reads, request.nonce, request.origin, request.publish)


def prepared_of(commit: Commit) -> Prepared:
    """The message before a COMMIT."""
    return Prepared(commit.point, list(commit.links), commit.store_id)


def finished_of(attempt: Attempt, published: bool = False) -> Finished:
    """The message after an attempt."""
    failure = None if attempt.error is None else _failure_of(attempt.error)
    return Finished(attempt.commit is not None, failure, attempt.shared, attempt.doubt is not None, published)


def _kinds() -> dict[str, type[PubSubError]]:
    """The classes of errors that are made from a text alone, by name."""
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, PubSubError)]
    return {each.__name__: each for each in (*found, ReadChanged) if vars(each).get("__init__") is None}


_KINDS: Final = _kinds()


def _failure_of(error: Exception) -> Failure:
    name = type(error).__name__
    if _KINDS.get(name) is type(error):
        return Failure(name, str(error))
    return Failure(StoreError.__name__, f"the publisher service failed: {name}: {error}")


def _error_of(failure: Failure) -> PubSubError:
    return _KINDS.get(failure.kind, StoreError)(failure.text)


class Frames:
    """Received bytes, cut into the bodies of messages."""

    def __init__(self, maximum: int) -> None:
        """``maximum``: size of a body."""
        self._maximum = maximum
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that these bytes complete. Raises FrameError for one above the maximum."""
        rest = self._rest + data
        bodies = []
        while len(rest) >= _LENGTH:
            size = int.from_bytes(rest[:_LENGTH], "big")
            if size > self._maximum:
                raise FrameError(f"a message has {size} bytes; at most {self._maximum} are allowed", "oversized")
            if len(rest) < _LENGTH + size:
                break
            bodies.append(rest[_LENGTH : _LENGTH + size])
            rest = rest[_LENGTH + size :]
        self._rest = rest
        return bodies


def decode_request(body: bytes) -> Hello | Request:
    """A worker's message. Raises FrameError."""
    try:
        message: Hello | Request = _REQUESTS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"a worker's message cannot be decoded: {error}", "foreign") from error
    return message


def decode_reply(body: bytes) -> Reply:
    """A message of the service. Raises FrameError."""
    try:
        reply: Reply = _REPLIES.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"a message of the publisher service cannot be decoded: {error}", "foreign") from error
    return reply


class Exchange:
    """One request in a worker: what the received bytes show of its transaction."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._frames = Frames(MAX_REPLY)
        self.prepared: Commit | None = None
        """The commit that the service was about to make when it last sent something."""
        self.attempt: Attempt | None = None
        """The result; None while there is none, and when the request was declined."""
        self.ended = False
        """Whether the service has answered, or has sent something invalid."""
        self.invalid = False

    def feed(self, data: bytes) -> bool:
        """Use received bytes; whether the exchange has ended."""
        if self.ended:
            return True
        try:
            for reply in map(decode_reply, self._frames.feed(data)):
                self._take(reply)
        except FrameError as error:
            self.ended = self.invalid = True
            self.attempt = Attempt(error=OutcomeUnknown(
                f"the publisher service sent an invalid message ({error}), so it is unknown whether the transaction is "
                f"committed; call committed({self._work.nonce}) later",
                self._work.nonce,
            ))  # fmt: skip
        return self.ended

    def _take(self, reply: Reply) -> None:
        match reply:
            case Prepared(point=point, links=links) if point.nonce == self._work.nonce and not self.ended:
                self.prepared = Commit(point, point.nonce, links, reply.store_id)
            case Declined() if not self.ended:
                self.ended = True
            case Finished() if not self.ended and (self.prepared or not (reply.committed or reply.doubt)):
                self.ended = True
                commit = self.prepared
                if reply.published and commit is not None:
                    commit = msgspec.structs.replace(commit, published=True)
                self.attempt = Attempt(
                    commit if reply.committed else None,
                    None if reply.error is None else _error_of(reply.error),
                    reply.shared,
                    self.prepared if reply.doubt else None,
                )
            case _:
                raise FrameError(f"a {type(reply).__name__} was not expected here", "foreign")


def refusal_in(reply: Reply) -> str:
    """The reason why the service refuses this worker, "" when it does not. Raises FrameError."""
    match reply:
        case Welcome():
            return ""
        case Refused(reason=reason):
            return reason
    raise FrameError("the publisher service did not answer the first message", "foreign")
