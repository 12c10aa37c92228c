"""Targets on the sync channel: questions, answers as pages, the compressed stream of the pages, and announcements."""

import random
from typing import Any

import msgspec

from _fuzz.mutation import changed_bytes, changed_json, changed_list, changed_msgpack
from _fuzz.target import Target
from _fuzz.wire import sample_history
from pubsub_lib.core.model import ALL, ZERO, Point, Want
from pubsub_lib.errors import FrameError
from pubsub_lib.sync.agent_registry import AgentRegistry
from pubsub_lib.sync.agents import Agent, Announcement, decode_announcement, encode
from pubsub_lib.sync.pages import pages_of
from pubsub_lib.sync.question import SyncQuestion, decode_question, encode_question
from pubsub_lib.sync.reading import read_answer
from pubsub_lib.sync.stream import packed, unpacked

MAX_PAGE = 4096
MAX_TOTAL = 65536


def _wants() -> list[dict[str, Want]]:
    """What the answers are given for, by the number that an input begins with."""
    first: Point = sample_history().links[0].point
    return [
        {"t": Want(ZERO), "u": Want(first)},
        {ALL: Want(ZERO)},
        {"t": Want(), "u": Want(known=first)},
        {ALL: Want()},
        {"t": Want(buckets=dict.fromkeys(range(256), 1), known=first)},
        {"t": Want(Point(1, 1))},
    ]


def _question_seeds() -> list[bytes]:
    return [encode_question(SyncQuestion(wants, refresh=bool(number % 2))) for number, wants in enumerate(_wants())]


def _change_question(data: bytes, rng: random.Random) -> bytes:
    return changed_msgpack(data, rng) if rng.randrange(5) else changed_bytes(data, rng)


def _read_question(data: bytes) -> str:
    question = decode_question(data)
    if decode_question(encode_question(question)) != question:
        raise AssertionError(f"encoded and decoded again, {question} is another one")
    return f"{min(3, len(question.wants))} wants"


def _answer_seeds() -> list[bytes]:
    history = sample_history()
    pages = [list(pages_of(history.answer(wants))) for wants in _wants()]
    return [msgspec.msgpack.encode([number, each]) for number, each in enumerate(pages)]


def _change_answer(data: bytes, rng: random.Random) -> bytes:
    number, pages = _parts(data)
    if not rng.randrange(20):
        number = rng.randrange(6)
    changed = changed_list(pages, rng, lambda page, own: changed_msgpack(_bytes(page), own))
    return msgspec.msgpack.encode([number, changed])


def _read_answer(data: bytes) -> str:
    number, pages = _parts(data)
    wants = _wants()[number]
    answer = read_answer(map(_bytes, pages), wants)
    again = read_answer(pages_of(answer), wants)
    if again != answer:
        raise AssertionError(f"sent and read again, {answer} is {again}")
    return ", ".join(sorted(type(each).__name__ for each in answer.chains.values()))


def _parts(data: bytes) -> tuple[int, list[Any]]:
    try:
        found = msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0, []
    if isinstance(found, list) and len(found) == 2 and found[0] in range(6) and isinstance(found[1], list):
        return int(found[0]), found[1]
    return 0, []


def _bytes(page: object) -> bytes:
    return page if isinstance(page, bytes) else repr(page).encode()


def _stream_seeds() -> list[bytes]:
    pages = [b"", b"a", b"b" * 3000]
    return [b"\0" + b"".join(packed(pages, gzip=False)), b"\1" + b"".join(packed(pages, gzip=True))]


def _read_stream(data: bytes) -> str:
    pages = list(unpacked([data[1:5], data[5:]], MAX_PAGE, MAX_TOTAL, gzip=data[:1] == b"\1"))
    return f"{min(4, len(pages))} pages"


def _agent(name: str, **changes: Any) -> Agent:
    given: dict[str, Any] = {
        "uuid": f"u-{name}", "name": name, "host": "h", "version": "1", "topics": ("t", "u"), "topics_total": 2,
        "staleness": 0.5, "listens_to": ("tcp://h:1",),
    }  # fmt: skip
    return Agent(**{**given, **changes})


def _announcement_seeds() -> list[bytes]:
    below = [_agent("b", topics=("",), staleness=None, parent="a"), _agent("c", age=7.5, hops=2)]
    relay = _agent("a", role="relay", address="tcp://h:2")
    made = [
        Announcement(agent=_agent("r"), interval=30.0),
        Announcement(agent=relay, interval=0.5, below=below, left_out=3),
        Announcement(agent=relay, interval=600.0, leaving=True),
    ]
    return list(map(encode, made))


def _change_announcement(data: bytes, rng: random.Random) -> bytes:
    return changed_json(data, rng) if rng.randrange(5) else changed_bytes(data, rng)


def _read_announcement(data: bytes) -> str:
    announced = decode_announcement(data)
    if decode_announcement(encode(announced)) != announced:
        raise AssertionError(f"encoded and decoded again, {announced} is another one")
    registry = AgentRegistry("u-a", max_agents=2)
    kept = registry.receive(announced, 0.0)
    known = registry.known(1.0)
    registry.gauges(2.0)
    return f"kept: {kept}, {len(known.agents)} agents"


def targets() -> list[Target]:
    """Those of this module."""
    return [
        Target("sync_question", _question_seeds, _change_question, _read_question, (FrameError,)),
        Target("sync_answer", _answer_seeds, _change_answer, _read_answer, (FrameError,)),
        Target("sync_stream", _stream_seeds, changed_bytes, _read_stream, (FrameError,)),
        Target("announcement", _announcement_seeds, _change_announcement, _read_announcement, (FrameError,)),
    ]
