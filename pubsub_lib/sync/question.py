"""The question of a sync, and its byte form: one msgpack array ``[major, minor, refresh, wants, nonce]`` (rule W6)."""

from collections.abc import Mapping
from typing import Annotated, Final, Protocol

import msgspec

from pubsub_lib.core.codec import MAX_NONCE_BYTES
from pubsub_lib.core.digest import BUCKETS, MASK
from pubsub_lib.core.limits import check_name
from pubsub_lib.core.model import ALL, MAX_NAME_BYTES, Name, Point, SyncAnswer, Want
from pubsub_lib.errors import FrameError, InvalidValueError

MAJOR: Final = 1
"""Version of questions and answers that both ends must share."""
MINOR: Final = 2
"""Grows when a field is appended; for information only."""
MAX_QUESTION_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a question: more than 10,000 topics with the longest names."""
MAX_WANTS: Final = 100_000
"""Maximum number of wants in a question. 4 MiB of the shortest ones would be 1.4 million, each with a query."""


class SyncQuestion(msgspec.Struct, frozen=True):
    """What a replica asks in one sync: the same as in :class:`.StartSync`."""

    wants: Mapping[str, Want]
    refresh: bool = False
    """The last sync failed, so a relay is to prove its state again before it answers."""
    nonce: str = ""
    """That of the replica's last hello request. A relay that was just started answers a delta after it has received the
    request: the replica receives its links then."""


class SyncSource(Protocol):
    """What answers the questions: the store of the origin, or a relay's memory. Any function of this form."""

    def __call__(self, question: SyncQuestion, /) -> SyncAnswer | None:
        """The answer to all wants, from one consistent reading. Its ``ages`` are None for the primary database alone;
        those of a standby are not known, so they are an empty mapping. None: nothing of what was asked for is here
        now, so the sync fails. Called by several threads at the same time. Blocks; raises PubSubError.
        """


_Chain = Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]
_Bucket = Annotated[int, msgspec.Meta(ge=0, lt=BUCKETS)]
# msgspec bounds integers up to 63 bits only, so the upper bound of a digest is checked below.
_Sum = Annotated[int, msgspec.Meta(ge=0)]


class _Want(msgspec.Struct, frozen=True, array_like=True, gc=False):
    chain: _Chain
    after: Point | None = None
    buckets: dict[_Bucket, _Sum] | None = None
    known: Point | None = None
    judged: tuple[Name | None, Point] | None = None
    """None in place of the topic: it is the chain."""


class _Question(msgspec.Struct, frozen=True, array_like=True, gc=False):
    major: int
    minor: int
    refresh: bool
    wants: Annotated[list[_Want], msgspec.Meta(max_length=MAX_WANTS)]
    nonce: Annotated[str, msgspec.Meta(max_length=MAX_NONCE_BYTES)] = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Question).decode


def encode_question(question: SyncQuestion) -> bytes:
    """The bytes of a question. One that would be too large names no point that is to be judged, and if that is not
    enough, asks for all objects in place of the buckets that differ.

    Raises InvalidValueError for a question that is too large also then, or that no source accepts.
    """
    if len(question.wants) > MAX_WANTS:
        raise InvalidValueError(
            f"a sync's question is about {len(question.wants)} topics, but at most {MAX_WANTS} are allowed; follow "
            "fewer topics, or all of them"
        )
    wants = [_want(chain, each) for chain, each in question.wants.items()]
    try:
        data = _encode(_Question(MAJOR, MINOR, question.refresh, wants, question.nonce))
        for without in ({"judged": None}, {"buckets": None}):
            if len(data) > MAX_QUESTION_BYTES:
                wants = [msgspec.structs.replace(each, **without) for each in wants]
                data = _encode(_Question(MAJOR, MINOR, question.refresh, wants, question.nonce))
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        raise InvalidValueError(f"a sync's question cannot be sent: {error}; check the names of the topics") from error
    if len(data) > MAX_QUESTION_BYTES:
        raise InvalidValueError(
            f"a sync's question about {len(wants)} topics has {len(data)} bytes, but at most {MAX_QUESTION_BYTES} are "
            "allowed; follow fewer topics, or all of them"
        )
    return data


def decode_question(data: bytes) -> SyncQuestion:
    """The question in these bytes, which may be any. Raises FrameError: ``oversized``, ``truncated``, ``version`` or
    ``foreign``.
    """
    if len(data) > MAX_QUESTION_BYTES:
        raise FrameError(f"a sync's question has more than {MAX_QUESTION_BYTES} bytes", "oversized")
    check_major(data, 1, "question")
    try:
        decoded = _decode(data)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise unreadable("a sync's question", error) from error
    wants: dict[str, Want] = {}
    for each in decoded.wants:
        wrong = _complaint(each)
        if wrong is None and each.chain in wants:
            wrong = "it is named twice"
        if wrong is not None:
            raise FrameError(f"a sync's question about {each.chain[:80]!r} is inconsistent: {wrong}", "foreign")
        wants[each.chain] = Want(each.after, each.buckets, each.known, _judged(each))
    if not wants:
        raise FrameError("a sync's question names no topic", "foreign")
    return SyncQuestion(wants, decoded.refresh, decoded.nonce)


def check_major(data: bytes, at: int, what: str) -> None:
    """Raise FrameError("version") for an array whose element at this byte is another major version."""
    if len(data) > at and 0x90 <= data[0] <= 0x9F and MAJOR < data[at] <= 0x7F:
        raise FrameError(
            f"a sync's {what} has the version {data[at]}, this library uses {MAJOR}; run the same major version at "
            "both ends",
            "version",
        )


def unreadable(what: str, error: Exception) -> FrameError:
    """The error for bytes that msgspec refused with this one."""
    # msgspec raises one exception for all cases; only its text distinguishes them.
    reason = "truncated" if "truncated" in str(error) else "foreign"
    return FrameError(f"{what} cannot be read: {error}", reason)


def _complaint(want: _Want) -> str | None:
    if want.chain != ALL:
        try:
            check_name("topic", want.chain)
        except InvalidValueError as error:
            return str(error)
    if want.after is not None and (want.buckets is not None or want.known is not None or want.judged is not None):
        return "it asks for links and for objects"
    if want.buckets is not None and max(want.buckets.values(), default=0) > MASK:
        return "a digest has more than 64 bits"
    return None


def _judged(want: _Want) -> tuple[str, Point] | None:
    """The topic and point that are to be judged. A name that no topic can have comes from a hello that lies. It is left
    out, because the rest of the question must be answered nevertheless.
    """
    if want.judged is None:
        return None
    topic, point = want.judged[0] or want.chain, want.judged[1]
    if topic == ALL or want.chain not in (ALL, topic):
        return None
    try:
        check_name("topic", topic)
    except InvalidValueError:
        return None
    return topic, point


def _want(chain: str, want: Want) -> _Want:
    judged = want.judged and (None if want.judged[0] == chain else want.judged[0], want.judged[1])
    return _Want(chain, want.after, _plain(want.buckets), want.known, judged)


def _plain(buckets: Mapping[int, int] | None) -> dict[int, int] | None:
    return None if buckets is None else dict(buckets)
