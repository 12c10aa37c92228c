"""Storms and hostile peers of ``tools/chaos``, the faults that a machine lacks, and a replica with a full disk."""

import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _chaos import striking
from _chaos.broker_peer import PIECE, BrokerPeer, Flood, subjects_of
from _chaos.brokers import cut_off
from _chaos.configuration import Configuration
from _chaos.hostile import LARGE, Garbage
from _chaos.messages import StormTask
from _chaos.plan import DEFAULT, Cast
from _chaos.storm import run, settings_of, topics_of
from _processes import free_port, poll
from chaos_app import left_out, parse

from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import FrameError


@pytest.mark.parametrize(("number", "followed"), [(1, 1), (2, 2), (500, 2), (10_000, 2)])
def test_storm_has_its_number_of_topics_and_follows_some(number: int, followed: int) -> None:
    topics = topics_of(StormTask("storm-1", (), 3, number, ("topic-1", "topic-2")))
    assert len(topics) == len(set(topics)) == number
    assert len({*topics} & {"topic-1", "topic-2"}) == followed


def test_garbage_is_never_a_valid_message_or_hello_request() -> None:
    garbage = Garbage("1")
    for _ in range(2000):
        with pytest.raises(FrameError):
            codec.decode(tuple(garbage.frames(b"Dt\0")))
        with pytest.raises(FrameError):
            codec.decode((b"Dt\0", garbage.message()))
        subscription = garbage.subscription()
        if subscription.startswith(b"H"):
            with pytest.raises(FrameError):
                codec.read_hello_request(subscription)
    assert Limits().max_frame_bytes < LARGE


class FakeBroker:
    """Accepts one connection after the other, answers ``+OK``, and keeps what it received."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(30.0)
        self.port: int = self.server.getsockname()[1]
        self.connection: socket.socket | None = None
        self.data = b""

    def received(self, end: bytes) -> bytes:
        """Read until the data ends so, and return all of it."""
        if self.connection is None:
            self.connection, _ = self.server.accept()
            self.connection.settimeout(30.0)
        while not self.data.endswith(end):
            self.data += self.connection.recv(65536)
        self.connection.sendall(b"+OK\r\n")
        return self.data

    def hang_up(self) -> None:
        """End the connection."""
        assert self.connection is not None
        self.connection.close()
        self.connection, self.data = None, b""


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    made = FakeBroker()
    with made.server:
        yield made
        if made.connection is not None:
            made.connection.close()


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("nats", b'CONNECT {"verbose":false}\r\nPUB pubsub.data.topic-1 3\r\nxyz\r\n'),
        ("redis", b"*3\r\n$7\r\nPUBLISH\r\n$19\r\npubsub_lib:Dtopic-1\r\n$3\r\nxyz\r\n"),
    ],
)
def test_peer_of_a_broker_publishes_and_connects_again(driver: str, expected: bytes, broker: FakeBroker) -> None:
    *_, subject = subjects_of(driver, ["topic-1"])
    with closing(BrokerPeer(driver, broker.port)) as peer:
        assert peer.publish(subject, b"xyz")
        assert broker.received(b"xyz\r\n") == expected
        broker.hang_up()
        assert poll(lambda: not peer.publish(subject, b"xyz"), 30.0), "the lost connection was not noticed"
        assert peer.publish(subject, b"xyz")
        assert broker.received(b"xyz\r\n") == expected
        broker.server.close()
        broker.hang_up()
        assert poll(lambda: not peer.publish(subject, b"xyz"), 30.0)
        assert not peer.publish(subject, b"xyz"), "nothing listens there"


def test_flood_ends_when_it_is_stopped(broker: FakeBroker) -> None:
    flood = Flood("redis", broker.port)
    try:
        beginning = b"*3\r\n$7\r\nPUBLISH\r\n$12\r\npubsub_lib:D\r\n$%d\r\n" % PIECE
        assert broker.received(b"\0").startswith(beginning)
    finally:
        flood.stop()
    assert broker.connection is not None
    with suppress(ConnectionResetError):  # it did not read the last answer
        while broker.connection.recv(65536):
            pass  # until the end of the connection
    flood.stop()


def test_slow_consumers_are_counted_in_the_log_of_the_broker(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("[7] Slow Consumer Detected: WriteDeadline of 1s exceeded\nSlow Consumer Detected\nother\n")
    broker: Any = SimpleNamespace(log=log)
    assert (cut_off("nats", broker), cut_off("redis", broker), cut_off("zmq", None)) == (2, 0, 0)


def test_subscribers_of_a_storm_use_the_driver_of_the_run(tmp_path: Path) -> None:
    over_zmq = settings_of(StormTask("storm-1", ("tcp://127.0.0.1:7",), 1, 1, ()))
    assert (over_zmq.driver, over_zmq.addresses) == ("zmq_pubsub_driver", ("tcp://127.0.0.1:7",))
    file = Configuration(Cast(driver="nats"), tmp_path).subscriber("storm-1", "sqlite://", 4222)
    over_nats = settings_of(StormTask("storm-1", (), 1, 1, (), str(file)))
    assert over_nats.driver == "nats_pubsub_driver"
    assert over_nats.driver_options["servers"] == ["nats://127.0.0.1:4222"]


def test_storm_that_connects_to_nothing_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_chaos.storm.PATIENCE", 0.05)
    sent: list[object] = []
    run(StormTask("storm-1", (f"tcp://127.0.0.1:{free_port()}",), 2, 1, ()), sent.append, lambda: None)
    assert sent == []


def test_garbage_comes_from_its_seed() -> None:
    def some(seed: str) -> list[bytes]:
        garbage = Garbage(seed)
        return [garbage.raw() for _ in range(20)]

    assert some("1") == some("1") != some("2")


def test_kinds_that_the_machine_lacks_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_chaos.striking.shutil.which", lambda _name: None)
    found = striking.missing(None)
    assert found == {
        "files": "prlimit is not installed; install the package util-linux",
        "clock": "libfaketime is not installed; install the package libfaketime",
    }
    monkeypatch.undo()
    assert "clock" not in striking.missing(Path("/lib/libfaketime.so.1"))


def test_only_chosen_kinds_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos_app.missing", lambda _faketime: {"clock": "no clock"})
    assert parse([]).only == DEFAULT
    found = left_out(parse([]), Cast(server=False))
    assert found == {**dict.fromkeys(("cut_database", "commit"), "needs a database server"), "slow": "needs a broker"}
    chosen = parse(["--only", "kill,clock", "--no-audit"])
    assert left_out(chosen, Cast(server=True)) == {"clock": "no clock"}
    assert left_out(parse(["--only", "kill"]), Cast(server=False)) == {}
