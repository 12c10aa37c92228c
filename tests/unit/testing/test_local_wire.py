"""The wire without threads: real frames, exact topics, counted faults, hello replies for the asker alone."""

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
        heard: list[Envelope] = []
        subscriber = LocalSubscriber(self.wire, loss, random.Random(2))
        subscriber.initialize(heard.append, lambda: None)
        for topic in topics:
            subscriber.register_topic(topic)
        subscriber.daemonize()
        return subscriber, heard

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


def data(heard: list[Envelope]) -> list[str]:
    return [envelope.topic for envelope in heard if envelope.messages]


def test_topics_are_exact(scene: Scene) -> None:
    one, heard_one = scene.listen("tenant-1")
    _, heard_all = scene.listen(ALL)
    for topic in ("tenant-1", "tenant-10"):
        scene.write(topic)
    scene.settle()
    assert data(heard_one) == ["tenant-1"]
    assert data(heard_all) == ["tenant-1", "tenant-10"]
    one.unregister_topic("tenant-1")
    scene.write("tenant-1")
    scene.settle()
    assert data(heard_one) == ["tenant-1"]
    one.close()
    one.close()
    with pytest.raises(InvalidValueError):
        one.register_topic("a\0b")


def test_an_own_hello_comes_to_its_asker_alone(scene: Scene) -> None:
    scene.write("t")
    asker, heard = scene.listen("t")
    _, other = scene.listen("t")
    asker.request_hello("abc", ["t"])
    scene.settle()
    assert [envelope.hello.nonce for envelope in heard if envelope.hello is not None and envelope.hello.nonce] == [
        "abc"
    ]
    assert not [envelope for envelope in other if envelope.hello is not None and envelope.hello.nonce]


def test_faults_are_done_to_the_bytes_and_counted(scene: Scene) -> None:
    cut, heard = scene.listen("t", loss=Loss(corrupt=1.0))
    lost, nothing = scene.listen("t", loss=Loss(drop=1.0))
    late, later = scene.listen("t", loss=Loss(delay=1.0, max_delay=5.0))
    scene.write("t")
    scene.settle()
    assert (heard, nothing) == ([], [])
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


def test_the_publisher_says_hello_again_when_the_store_answers_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pubsub_lib.errors import StoreUnavailable

    def down(topics: object) -> None:
        raise StoreUnavailable("the database is down")

    asker, heard = scene.listen("t")
    with monkeypatch.context() as patched:
        patched.setattr(scene.local.store, "read_heads", down)
        asker.request_hello("abc", ["t"])
        scene.settle()
        assert heard == []
    asker.request_hello("def", ["t"])
    while not heard:
        scene.time.step()
    assert heard[-1].hello is not None
