"""Targets on the wire: the envelope's codec, hello requests, and a replica's state fed with hostile messages."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from _fuzz.mutation import changed_bytes, changed_list, changed_msgpack
from _fuzz.target import Target
from pubsub_lib.core import codec
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, ZERO
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import FrameError
from tests.unit.core.builders import History, envelope, hello, run_of

LIMITS = Limits()
FEED, TICK, DONE, FAILED, CONNECTED, WRITE = range(6)


def sample_history() -> History:
    """Transactions on two topics: creations, changes and a deletion."""
    made = History(1)
    for number in range(6):
        made.commit(("t", f"k{number % 3}", str(number)), ("u", "k", f'{{"a": [{number}, null]}}'))
    made.commit(("t", "k0", None))
    return made


def _envelopes(history: History) -> list[Envelope]:
    """Everything that a publisher sends: links, a large one in parts, hellos of all kinds."""
    counts = {"t": 0, "u": 0}
    sent = []
    for link in history.links:
        counts[link.topic] += 1
        sent.append(envelope(link, sequence=counts[link.topic]))
    sent.append(envelope(*run_of(history.links[0], 1), sequence=counts["t"] + 1))
    reading = history.reading()
    sent += [
        hello(reading, sequences=counts),
        hello(reading, nonce="nonce", sequences=counts),
        Envelope("api-1", sent[0].uuid, "", 0, (), Hello({}, {}, ZERO, 0.0, "nonce", serves=8867), history.store_id),
        Envelope("api-1", sent[0].uuid, "", 0, (), Hello({}, {}, ZERO, 0.0, "", True), history.store_id),
    ]
    return sent


def _frames(made: Envelope) -> list[bytes]:
    return list(codec.encode(made, LIMITS))


def _changed_frames(frames: list[Any], rng: random.Random) -> list[Any]:
    return changed_list(frames, rng, lambda frame, own: changed_msgpack(_bytes(frame), own))


def _bytes(frame: object) -> bytes:
    return frame if isinstance(frame, bytes) else repr(frame).encode()


def _list(data: bytes) -> list[Any]:
    try:
        found = msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


# -- the codec ---------------------------------------------------------------------------------------------------


def _codec_seeds() -> list[bytes]:
    return [msgspec.msgpack.encode(_frames(each)) for each in _envelopes(sample_history())]


def _change_message(data: bytes, rng: random.Random) -> bytes:
    return msgspec.msgpack.encode(_changed_frames(_list(data), rng))


def _decode(data: bytes) -> str:
    decoded = codec.decode([_bytes(each) for each in _list(data)], LIMITS)
    again = codec.decode(codec.encode(decoded, LIMITS), LIMITS)
    if again != decoded:
        raise AssertionError(f"encoded and decoded again, {decoded} is {again}")
    return "hello" if decoded.hello else f"{len(decoded.messages)} messages"


def _hello_request_seeds() -> list[bytes]:
    asked: tuple[list[str], ...] = ([], ["t"], [ALL], [f"topic-{number}" for number in range(30)])
    return [codec.hello_request_frame("nonce", topics) for topics in asked]


def _change_request(data: bytes, rng: random.Random) -> bytes:
    head, separator, topics = data.partition(b"\0")
    return head + separator + changed_msgpack(topics, rng) if rng.randrange(3) else changed_bytes(data, rng)


def _read_request(data: bytes) -> str:
    return f"{min(3, len(codec.read_hello_request(data, LIMITS).topics))} topics"


# -- a replica's state -------------------------------------------------------------------------------------------


def _state_seeds() -> list[bytes]:
    """Sequences of steps: a subscription, then [kind, seconds, frames]."""
    sent = [[FEED, 0.1, _frames(each)] for each in _envelopes(sample_history())]
    calm = [[TICK, 0.1, []], [DONE, 0.1, []], [CONNECTED, 0.1, []], [TICK, 20.0, []], [DONE, 0.1, []], [WRITE, 0.1, []]]
    late = [[TICK, 0.1, []], [FAILED, 0.1, []], [TICK, 60.0, []], [DONE, 0.5, []], [TICK, 90.0, []], [DONE, 0.1, []]]
    return [
        msgspec.msgpack.encode([topics, [*before, *sent, *after]])
        for topics in (["t", "u"], ["t"], [ALL])
        for before, after in ((calm, late), (late, calm), ([], calm))
    ]


def _change_steps(data: bytes, rng: random.Random) -> bytes:
    found = _list(data)
    topics, steps = found if len(found) == 2 and isinstance(found[1], list) else ([ALL], [])
    for _ in range(rng.randint(1, 4)):
        steps = changed_list(steps, rng, _change_step)
    return msgspec.msgpack.encode([topics, steps[:60]])


def _change_step(step: Any, rng: random.Random) -> Any:
    if not isinstance(step, list) or len(step) != 3 or not isinstance(step[2], list):
        return [rng.randrange(6), rng.choice((0.0, 0.1, 3.0, 700.0)), []]
    kind, seconds, frames = step
    if frames and rng.randrange(6):
        return [kind, seconds, _changed_frames(frames, rng)]
    return [rng.randrange(6), rng.choice((0.0, 0.1, 3.0, 700.0)), frames]


def _feed(data: bytes) -> str:
    found = _list(data)
    topics, steps = found if len(found) == 2 and isinstance(found[1], list) else ([], [])
    chosen = [each for each in topics if each in ("t", "u")] if isinstance(topics, list) else []
    run = _Run(chosen or [ALL])
    for step in steps:
        if isinstance(step, list) and len(step) == 3 and isinstance(step[2], list):
            run.step(step[0], step[1], [_bytes(each) for each in step[2]])
    counts = msgspec.to_builtins(run.state.tracker.counters)
    return ", ".join(sorted(_nonzero(counts)))


def _nonzero(counts: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in counts.items():
        if isinstance(value, dict):
            yield from _nonzero(value, f"{name}.")
        elif value:
            yield f"{prefix}{name}"


class _Run:
    """A replica's state with an honest store behind it, as its engine would drive it."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.history = sample_history()
        timing = Timing(sync_jitter=0.0, sync_interval=0.0, verify_interval=30.0)
        self.state = ReplicaState(timing, LIMITS, random.Random(1), Cache(), 0.0)
        self.now = 0.0
        self._sync: Any = None
        self._carry_out(lambda: self.state.subscribe(topics, self.now))

    def step(self, kind: object, seconds: object, frames: Sequence[bytes]) -> None:
        state = self.state
        if isinstance(seconds, float) and 0.0 <= seconds < 1e6:
            self.now += seconds
        if kind == FEED:
            try:
                received = codec.decode(frames, LIMITS)
            except FrameError:
                return
            self._carry_out(lambda: state.feed(received, self.now))
        elif kind == DONE and self._sync is not None:
            sync, self._sync = self._sync, None
            self._carry_out(lambda: state.sync_done(sync.number, self.history.answer(sync.wants), self.now))
        elif kind == FAILED and self._sync is not None:
            sync, self._sync = self._sync, None
            state.sync_failed(sync.number, self.now)
        elif kind == CONNECTED:
            state.connected(self.now)
        elif kind == WRITE:
            self.history.commit(("t", "k1", str(self.now)))
        else:
            self._carry_out(lambda: state.tick(self.now))

    def _carry_out(self, do: Callable[[], StepResult]) -> None:
        result = do()
        if result.sync is not None:
            self._sync = result.sync


def targets() -> list[Target]:
    """Those of this module."""
    return [
        Target("codec", _codec_seeds, _change_message, _decode, (FrameError,)),
        Target("hello_request", _hello_request_seeds, _change_request, _read_request, (FrameError,)),
        Target("replica_state", _state_seeds, _change_steps, _feed, ()),
    ]
