"""The wire without threads: real frames, exact topics, counted faults, hello replies only for the requester."""

import random
from collections.abc import Iterator

import pytest

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import InvalidValueError
from pubsub_lib.fault_injection import PERFECT, Loss
from pubsub_lib.testing.local import Local
from pubsub_lib.testing.local_time import LocalTime
from pubsub_lib.testing.local_wire import LocalSubscriber, LocalWire


class Scene:
    def __init__(self, local: Local) -> None:
        self.local = local
        self.time = LocalTime()
        self.wire = LocalWire(local.settings, local.store, self.time, random.Random(1))

    def listen(self, *topics: str, loss: Loss = PERFECT) -> tuple[LocalSubscriber, list[Envelope]]:
        received: list[Envelope] = []
        subscriber = LocalSubscriber(self.wire, loss, random.Random(2))
        subscriber.initialize(received.append, lambda: None)
        for topic in topics:
            subscriber.register_topic(topic)
        subscriber.daemonize()
        return subscriber, received

    def write(self, topic: str) -> None:
        with self.local.store.transaction() as tx:
            tx.set("a", topic, random.random(), topic=topic)

    def settle(self) -> None:
        for _ in range(20):
            self.time.step(0.1)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with Local() as local:
        yield Scene(local)


def data(received: list[Envelope]) -> list[str]:
    return [envelope.topic for envelope in received if envelope.messages]


def test_subscriber_receives_only_its_exact_topics(scene: Scene) -> None:
    one, received_one = scene.listen("tenant-1")
    _, received_all = scene.listen(ALL)
    for topic in ("tenant-1", "tenant-10"):
        scene.write(topic)
    scene.settle()
    assert data(received_one) == ["tenant-1"]
    assert data(received_all) == ["tenant-1", "tenant-10"]
    one.unregister_topic("tenant-1")
    scene.write("tenant-1")
    scene.settle()
    assert data(received_one) == ["tenant-1"]
    one.close()
    one.close()
    with pytest.raises(InvalidValueError):
        one.register_topic("a\0b")


def test_hello_reply_is_received_only_by_its_requester(scene: Scene) -> None:
    scene.write("t")
    requester, received = scene.listen("t")
    _, other = scene.listen("t")
    requester.request_hello("abc", ["t"])
    scene.settle()
    assert [envelope.hello.nonce for envelope in received if envelope.hello is not None and envelope.hello.nonce] == [
        "abc"
    ]
    assert not [envelope for envelope in other if envelope.hello is not None and envelope.hello.nonce]


def test_faults_change_the_bytes_and_are_counted(scene: Scene) -> None:
    cut, received = scene.listen("t", loss=Loss(corrupt=1.0))
    lost, nothing = scene.listen("t", loss=Loss(drop=1.0))
    late, later = scene.listen("t", loss=Loss(delay=1.0, max_delay=5.0))
    scene.write("t")
    scene.settle()
    assert (received, nothing) == ([], [])
    assert min(cut.counters()["truncated"], lost.counters()["lost"]) >= 1  # hellos too
    assert scene.time.now() < 5.0
    while scene.time.now() < 5.0:
        scene.time.step(1.0)
    assert data(later) == ["t"]
    assert late.counters()["received"] >= 1
    lost.set_loss(PERFECT)
    scene.write("t")
    scene.settle()
    assert data(nothing) == ["t"]


def test_publisher_sends_hellos_again_after_a_store_outage(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    from pubsub_lib.errors import StoreUnavailable

    def down(topics: object) -> None:
        raise StoreUnavailable("the database is down")

    requester, received = scene.listen("t")
    with monkeypatch.context() as patched:
        patched.setattr(scene.local.store, "read_heads", down)
        requester.request_hello("abc", ["t"])
        scene.settle()
        assert received == []
    requester.request_hello("def", ["t"])
    while not received:
        scene.time.step()
    assert received[-1].hello is not None
