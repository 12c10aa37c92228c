"""Queued messages share frames (rule W5); none is lost, reordered within a topic, or moved past a hello."""

import threading
from collections import defaultdict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ZERO
from pubsub_lib.errors import TransportError
from pubsub_lib.send_queue import WINDOW, QueuedMessage, SendQueue, counted_frames, frames
from tests.unit.drivers.zmq.world import envelope

UUIDS = ("aa" * 16, "bb" * 16)
LIMITS = Limits(max_frame_bytes=2000, max_value_bytes=200)


def outgoing(made: Envelope) -> QueuedMessage:
    return QueuedMessage(made, *codec.encode(made, LIMITS))


def hello(last: int) -> QueuedMessage:
    return outgoing(Envelope("world", UUIDS[0], "", 0, [], Hello({"a": last}, {}, ZERO, 0.0)))


@given(
    st.lists(
        st.tuples(st.sampled_from(UUIDS), st.sampled_from(("a", "b", "c", "")), st.integers(1, 3), st.integers(0, 200)),
        max_size=3 * WINDOW,
    )
)
def test_every_message_is_sent_once_in_order_and_hellos_keep_their_place(
    sent: list[tuple[str, str, int, int]],
) -> None:
    last: dict[tuple[str, str], int] = defaultdict(int)
    waiting = []
    for uuid, topic, step, size in sent:
        if topic == "":
            waiting.append(hello(last[UUIDS[0], "a"]))
            continue
        last[uuid, topic] += step if size % 50 == 0 else 1  # some sequences have gaps
        waiting.append(outgoing(envelope(topic, last[uuid, topic], uuid, b"x" * size)))
    got = [codec.decode(pair, LIMITS) for pair in frames(waiting, LIMITS)]
    streams: dict[tuple[str, str], list[int]] = defaultdict(list)
    wanted: dict[tuple[str, str], list[int]] = defaultdict(list)
    for item in waiting:
        if item.envelope.messages:
            wanted[item.envelope.uuid, item.envelope.topic].append(item.envelope.sequence)
    for one in got:
        if one.hello is not None:
            assert streams[UUIDS[0], "a"][-1:] == ([one.hello.sequences["a"]] if one.hello.sequences["a"] else [])
        for number, message in enumerate(one.messages, one.sequence):
            assert message.link.point.position == number, "a message does not have the number that its sender assigned"
            streams[one.uuid, one.topic].append(number)
    assert {key: value for key, value in streams.items() if value} == wanted
    assert sum(one.hello is not None for one in got) == sum(item.envelope.hello is not None for item in waiting)


@given(st.lists(st.sampled_from(["a", "b", "c", "hello"]), max_size=60))
def test_no_message_overtakes_a_hello_and_no_hello_a_message(kinds: list[str]) -> None:
    last: dict[str, int] = defaultdict(int)
    waiting: list[QueuedMessage] = []
    before: list[set[tuple[str, int]]] = []
    for kind in kinds:
        if kind == "hello":
            waiting.append(hello(len(before)))
            before.append({*last.items()})
        else:
            last[kind] += 1
            waiting.append(outgoing(envelope(kind, last[kind], UUIDS[0])))
    arrived: dict[str, int] = defaultdict(int)
    hellos: list[set[tuple[str, int]]] = []
    for one in (codec.decode(pair, LIMITS) for pair in frames(waiting, LIMITS)):
        if one.hello is not None:
            assert one.hello.sequences["a"] == len(hellos)
            hellos.append({*arrived.items()})
        else:
            assert one.sequence == arrived[one.topic] + 1, "a message is lost or sent twice"
            arrived[one.topic] += len(one.messages)
    assert hellos == before
    assert arrived == last


def test_a_message_overtakes_at_most_a_window() -> None:
    made = [outgoing(envelope("ab"[number % 2], number // 2 + 1, UUIDS[0])) for number in range(WINDOW + 10)]
    order = []
    for one in (codec.decode(pair, LIMITS) for pair in frames(made, LIMITS)):
        order += [(one.topic, one.sequence + number) for number in range(len(one.messages))]
    assert {*order[:WINDOW]} == {(each.envelope.topic, each.envelope.sequence) for each in made[:WINDOW]}


def test_messages_of_a_topic_share_a_frame_up_to_its_limit() -> None:
    waiting = [outgoing(envelope("a", number, UUIDS[0], b"x" * 150)) for number in range(1, 31)]
    got = list(frames(waiting, LIMITS))
    assert len(got) < 10
    assert all(len(body) <= LIMITS.max_frame_bytes for _, body in got)


def test_each_frame_comes_with_the_number_of_its_envelopes_without_hellos() -> None:
    numbers = (1, 2, 3, 7, 8)  # a gap ends a frame
    waiting = [hello(0), *(outgoing(envelope("a", number, UUIDS[0])) for number in numbers), hello(1)]
    assert [number for _, _, number in counted_frames(waiting, LIMITS)] == [0, 3, 2, 0]
    assert [pair for *pair, _ in counted_frames(waiting, LIMITS)] == [list(pair) for pair in frames(waiting, LIMITS)]
    assert [number for one in waiting[:2] for _, _, number in counted_frames([one], LIMITS)] == [0, 1]


def test_single_waiting_message_is_sent_as_it_was_encoded() -> None:
    item = outgoing(envelope("a", 1, UUIDS[0]))
    ((head, body),) = frames([item], LIMITS)
    assert head is item.head
    assert body is item.body


def test_put_raises_after_the_wait_when_full_and_at_once_when_closed() -> None:
    woken: list[int] = []
    box = SendQueue(2, lambda: woken.append(1), "mine")
    item = outgoing(envelope("a", 1, UUIDS[0]))
    box.put(item, 0)
    box.put(item, 0)
    assert woken == [1], "the thread is woken once for all queued items"
    with pytest.raises(TransportError, match=r"2 envelopes wait.*send_queue in \[mine\]"):
        box.put(item, 0.01)
    assert box.accepted == 2
    box.close()
    with pytest.raises(TransportError, match="closed"):
        box.put(item, 10)
    assert len(box.take()) == 2


def test_waiting_sender_continues_as_soon_as_there_is_room() -> None:
    box = SendQueue(1, lambda: None, "mine")
    item = outgoing(envelope("a", 1, UUIDS[0]))
    box.put(item, 0)
    waiting = threading.Thread(target=box.put, args=(item, 30))
    waiting.start()
    taken = 0
    while taken < 2:
        taken += len(box.take())
    waiting.join(10)
    assert not waiting.is_alive()


def test_pass_by_is_allowed_and_counted_only_when_the_queue_is_empty() -> None:
    queue = SendQueue(10, lambda: None, "mine")
    assert queue.pass_by()
    queue.put(hello(1), 0.0)
    assert not queue.pass_by()
    assert queue.accepted == 2
    queue.take()
    queue.close()
    assert not queue.pass_by()


def test_messages_of_different_stores_share_no_frame() -> None:
    made = [
        msgspec.structs.replace(envelope("a", number, UUIDS[0], b"x"), store_id=bytes([number // 3] * 16))
        for number in range(1, 5)
    ]
    got = [codec.decode(pair, LIMITS) for pair in frames([outgoing(each) for each in made], LIMITS)]
    assert [(each.store_id, len(each.messages)) for each in got] == [(bytes(16), 2), (b"\x01" * 16, 2)]
