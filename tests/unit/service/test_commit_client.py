"""One connection of a worker: its messages in their order, and what cannot be sent."""

import socket
from collections.abc import Iterator

import pytest

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Change, Link, Point
from pubsub_lib.errors import FrameError
from pubsub_lib.service.commit_client import CommitClient
from pubsub_lib.store import host_messages
from pubsub_lib.store.group_commit import Attempt
from pubsub_lib.store.host_messages import Declined, Exchange, Finished, Frames, Prepared, Refused, Welcome, encode
from pubsub_lib.store.links import Commit
from pubsub_lib.store.verbs import Operation
from pubsub_lib.store.writer import Work

OWN = host_messages.hello("sqlite:/net.db", Limits())
WORK = Work((Operation("set", "t", "k", b"1"),), {("t", "r"): 3}, 7, "api")
COMMIT = Commit(Point(1, 7), 7, [])
REQUEST = encode(host_messages.request_of(WORK))


@pytest.fixture
def pair() -> Iterator[tuple[CommitClient, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    theirs.settimeout(10)
    client = CommitClient(ours, OWN)
    yield client, theirs
    client.close()
    theirs.close()


def replies(worker: socket.socket) -> list[host_messages.Reply]:
    return [host_messages.decode_reply(each) for each in Frames(10**6).feed(worker.recv(10**6))]


def test_request_is_received_in_parts_and_answered(pair: tuple[CommitClient, socket.socket]) -> None:
    client, worker = pair
    worker.sendall(encode(OWN))
    assert client.receive() is None
    assert replies(worker) == [Welcome()]
    for published in (False, True):
        worker.sendall(REQUEST[:9])
        assert client.receive() is None
        worker.sendall(REQUEST[9:])
        assert client.receive() == WORK
        assert client.prepare(COMMIT)
        client.finish(Attempt(COMMIT), published)
        assert replies(worker) == [Prepared(COMMIT.point, []), Finished(committed=True, published=published)]


def test_refused_worker_gets_the_reason_and_is_closed(pair: tuple[CommitClient, socket.socket]) -> None:
    client, worker = pair
    worker.sendall(encode(host_messages.hello("sqlite:/other.db", Limits())))
    assert client.receive() is None
    assert client.refused
    assert client.closed
    (reply,) = replies(worker)
    assert isinstance(reply, Refused)


@pytest.mark.parametrize(
    "sent", [REQUEST, encode(OWN) * 2, encode(OWN) + REQUEST * 2, encode(Welcome()), b"\0\0\0\1\xff", b"\xff" * 4]
)
def test_unexpected_message_is_refused(sent: bytes, pair: tuple[CommitClient, socket.socket]) -> None:
    client, worker = pair
    worker.sendall(sent)
    with pytest.raises(FrameError):
        client.receive()


def test_worker_that_shut_down_can_not_be_sent_the_point(pair: tuple[CommitClient, socket.socket]) -> None:
    client, worker = pair
    worker.shutdown(socket.SHUT_RDWR)
    assert not client.prepare(COMMIT)
    assert client.closed


def test_end_of_a_worker_closes(pair: tuple[CommitClient, socket.socket]) -> None:
    client, worker = pair
    worker.close()
    assert client.receive() is None
    assert client.closed


def long_commit(size: int) -> Commit:
    change = Change("t", "k", "set", 1, b"1" * size)
    return Commit(Point(1, 7), 7, [Link("x", Point(0, 0), Point(1, 7), [change], 1, 1, Point(0, 0), 1)])


def test_links_that_are_too_large_are_declined(pair: tuple[CommitClient, socket.socket]) -> None:
    client, worker = pair
    assert not client.prepare(long_commit(host_messages.MAX_REPLY))
    assert not client.closed
    assert replies(worker) == [Declined()]


def test_stopped_worker_with_a_full_buffer_is_left(pair: tuple[CommitClient, socket.socket]) -> None:
    """What was sent before is no point: the worker finds a part of the message."""
    client, worker = pair
    assert not client.prepare(long_commit(host_messages.MAX_REPLY - 1000))
    assert client.closed
    client.close()
    exchange = Exchange(WORK)
    while data := worker.recv(65536):
        exchange.feed(data)
    assert exchange.prepared is None
    assert not exchange.ended
