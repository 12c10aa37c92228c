"""Messages of one and of several frames, and no message at all, over real sockets."""

from collections.abc import Iterator

import pytest
import zmq

from pubsub_lib.zmq_frames import receive

Pair = tuple["zmq.Socket[bytes]", "zmq.Socket[bytes]"]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A sending and a receiving socket."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as sender, context.socket(zmq.PAIR) as receiver:
        receiver.bind("inproc://frames")
        sender.connect("inproc://frames")
        yield sender, receiver


def test_receive_returns_exactly_the_frames_of_each_message(pair: Pair) -> None:
    sender, receiver = pair
    messages = [[b"alone"], [b"topic", b"body"], [b"", b"", b"x" * 100_000], [b"last"]]
    for message in messages:
        sender.send_multipart(message)
    assert [receive(receiver) for _ in messages] == messages


def test_receive_does_not_wait(pair: Pair) -> None:
    with pytest.raises(zmq.Again):
        receive(pair[1])
