"""Batches of the hop: no message of a worker's topic is lost, repeated or reordered."""

from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core.envelope import Envelope, Hello, Message
from pubsub_lib.core.model import ZERO, Link, Point
from pubsub_zmq.multiproc.batch import Batch

HELLO = Hello({}, {}, None, 0.0)


def message(topic: str, number: int) -> Message:
    return Message(Link(topic, ZERO, Point(number, number), [], 0, 0, ZERO, 1))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("tu"), st.integers(0, 3), st.integers(0, 2))))
def test_batch_keeps_order_and_gaps_of_a_workers_topic(
    steps: list[tuple[str, str, int, int]],
) -> None:
    batch = Batch()
    sequences: dict[tuple[str, str], int] = {}
    sent: dict[tuple[str, str], list[tuple[int, Message]]] = {}
    hellos = 0
    for number, (uuid, topic, count, gap) in enumerate(steps):
        name = (uuid, topic)
        first = sequences.get(name, 0) + 1 + gap
        messages = [message(topic, 10 * number + each) for each in range(count)]
        if messages:
            sequences[name] = first + count - 1
            sent.setdefault(name, []).extend(enumerate(messages, first))
            batch.add(Envelope("s", uuid, topic, first, messages))
        else:
            hellos += 1
            batch.add(Envelope("s", uuid, topic, 0, [], HELLO))
    came: dict[tuple[str, str], list[tuple[int, Message]]] = {}
    for envelope in batch.envelopes():
        if envelope.hello is not None:
            hellos -= 1
        else:
            name = (envelope.uuid, envelope.topic)
            came.setdefault(name, []).extend(enumerate(envelope.messages, envelope.sequence))
    assert came == sent
    assert hellos == 0


def test_batch_joins_messages_of_interleaved_workers() -> None:
    batch = Batch()
    for sequence in range(1, 6):
        for uuid in "abc":
            batch.add(Envelope("s", uuid, "t", sequence, [message("t", sequence)]))
    assert [(each.uuid, each.sequence, len(each.messages)) for each in batch.envelopes()] == [
        ("a", 1, 5),
        ("b", 1, 5),
        ("c", 1, 5),
    ]


def test_batch_joins_no_messages_of_different_stores() -> None:
    batch = Batch()
    for sequence, store_id in enumerate([bytes(16), bytes(16), b"\x01" * 16], 1):
        batch.add(Envelope("s", "a", "t", sequence, [message("t", sequence)], None, store_id))
    assert [(each.store_id, len(each.messages)) for each in batch.envelopes()] == [(bytes(16), 2), (b"\x01" * 16, 1)]
