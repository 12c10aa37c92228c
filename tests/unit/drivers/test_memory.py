"""The memory driver beyond the conformance suite: buses, options, overflow, and the lossy link."""

import gc
import threading
from typing import Any

import pytest
from _processes import poll

from pubsub_lib.api import DriverSettings
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.errors import ConfigError, TransportError
from pubsub_lib.fault_injection import PERFECT, Loss
from pubsub_lib.subscriptions import Subscriptions
from pubsub_lib.testing.rig import Rig, scene
from pubsub_memory import MemoryBus, MemoryDriver, bus
from pubsub_memory.bus import Desk, Registry


def rig(**options: Any) -> Rig:
    return Rig(MemoryDriver, DriverSettings(options={"bus": MemoryBus(), **options}))


def test_a_bus_is_found_by_name_and_ends_with_its_last_user() -> None:
    registry = Registry()
    first = registry.bus("a")
    assert registry.bus("a") is first
    assert registry.bus("b") is not first
    first.name = "changed"
    del first
    gc.collect()
    assert registry.bus("a").name == "a"


def test_endpoints_connect_by_an_address_a_name_or_a_bus() -> None:
    held = bus("left")
    for settings in (
        DriverSettings(options={"bus": "left"}),
        DriverSettings(addresses=("memory://left",), options={"bus": "default"}),
        DriverSettings(bind_address="memory://left"),
        DriverSettings(options={"bus": held}),
    ):
        with scene(Rig(MemoryDriver, settings)) as on:
            listener = Rig(MemoryDriver, DriverSettings(options={"bus": "left"}))
            with scene(listener) as other:
                subscribed = other.subscriber("t")
                link = on.send("t")
                other.wait_for(subscribed, link)


@pytest.mark.parametrize(
    "options",
    [{"bus": ""}, {"bus": 3}, {"queue_limit": 0}, {"drop": 1.1}, {"max_delay": float("inf")}, {"colour": "red"}],
)
def test_invalid_options_are_config_errors(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"pubsub_memory"):
        MemoryDriver.subscriber(DriverSettings(options=options))


@pytest.mark.parametrize("publisher_first", [True, False])
def test_on_connected_is_called_in_either_order_of_joining(publisher_first: bool) -> None:
    with scene(rig()) as on:
        if publisher_first:
            sender, listener = on.publisher(), on.subscriber("t")
        else:
            listener, sender = on.subscriber("t"), on.publisher()
        listener.connected.until_more_than(0, on.rig.patience, "subscriber")
        sender.connected.until_more_than(0, on.rig.patience, "publisher")
        on.publisher()
        listener.connected.until_more_than(1, on.rig.patience, "subscriber")


def test_messages_beyond_the_queue_limit_are_dropped_and_counted() -> None:
    with scene(rig(queue_limit=10)) as on:
        listener = on.listening("t")
        inside, go, first = threading.Event(), threading.Event(), on.link("t")

        def hold(envelope: Envelope) -> None:
            if any(each.link.point == first.point for each in envelope.messages):  # not a late probe of `listening`
                inside.set()
                go.wait(10)

        listener.received.hook = hold
        for envelope in on.sender.envelopes(first, on.rig.settings):
            on.sender.publisher.send_event(envelope)
        assert inside.wait(10)
        later = [on.send("t") for _ in range(15)]
        assert listener.subscriber.counters()["overflow"] == 5
        listener.received.hook = lambda _: None
        go.set()
        for link in [first, *later[:10]]:
            on.wait_for(listener, link)
        on.fence(listener, "t")
        assert later[10].point not in listener.received.points("t")


def test_lost_messages_are_counted_and_faults_end_while_running() -> None:
    with scene(rig()) as on:
        network = on.rig.settings.options["bus"]
        assert isinstance(network, MemoryBus)
        listener = on.listening("t")
        network.set_loss(Loss(drop=1.0), seed=1)
        lost = [on.send("t") for _ in range(7)]
        network.set_loss(PERFECT)
        on.fence(listener, "t")
        assert listener.subscriber.counters()["lost"] == 7
        assert not {link.point for link in lost} & set(listener.received.points("t"))


def test_seed_determines_lost_messages_and_subscribers_differ() -> None:
    def run() -> list[list[int]]:
        with scene(rig(drop=0.5, seed=42)) as on:
            listeners = [on.subscriber("t") for _ in range(2)]
            sent = [on.send("t").point for _ in range(60)]
            network = on.rig.settings.options["bus"]
            assert isinstance(network, MemoryBus)
            network.set_loss(PERFECT)
            for listener in listeners:
                on.fence(listener, "t")
            return [[sent.index(point) for point in each.received.points("t") if point in sent] for each in listeners]

    first, second = run()
    assert first != second
    assert run() == [first, second]


def test_delayed_messages_arrive_without_later_messages() -> None:
    with scene(rig(delay=1.0, max_delay=0.05, seed=1)) as on:
        listener = on.subscriber("t")
        for link in [on.send("t") for _ in range(20)]:
            on.wait_for(listener, link)


def test_corrupted_messages_are_counted_as_truncated() -> None:
    with scene(rig()) as on:
        network = on.rig.settings.options["bus"]
        assert isinstance(network, MemoryBus)
        listener = on.listening("t")
        network.set_loss(Loss(corrupt=1.0))
        for _ in range(5):
            on.send("t")
        network.set_loss(PERFECT)
        on.fence(listener, "t")
        assert listener.subscriber.counters()["truncated"] == 5


def test_closed_publisher_gets_no_hello_request() -> None:
    with scene(rig()) as on:
        listener = on.listening("t")
        publisher = on.publisher()
        publisher.publisher.close()
        listener.subscriber.request_hello("nonce", ["t"])
        on.fence(listener, "t")
        assert publisher.asks == []


def test_publisher_closed_during_initialize_is_not_on_the_bus() -> None:
    class Slow(MemoryBus):
        def attach_desk(self, desk: Desk) -> None:
            publisher.close()
            super().attach_desk(desk)

    on_bus = Slow()
    publisher = MemoryDriver.publisher(DriverSettings(options={"bus": on_bus}))
    publisher.initialize(lambda ask: None, lambda: None)
    assert on_bus._desks == ()


@pytest.mark.parametrize("detach", ["detach_desk", "detach_inbox"])
def test_half_is_closed_before_it_leaves_the_bus(detach: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a half that joins at the same moment either leaves the bus itself, or is found on it."""
    on_bus = MemoryBus()
    settings = DriverSettings(options={"bus": on_bus})
    half = MemoryDriver.publisher(settings) if detach == "detach_desk" else MemoryDriver.subscriber(settings)
    closed = []
    monkeypatch.setattr(on_bus, detach, lambda left: closed.append(left._life.closed))
    half.close()
    assert closed == [True]


def test_old_hello_requests_are_dropped() -> None:
    with scene(rig()) as on:
        listener = on.listening("t")
        listener.subscriber._subscriptions = Subscriptions(64)  # type: ignore[attr-defined]
        listener.subscriber.register_topic("t")
        for number in range(100):
            listener.subscriber.request_hello(f"n{number}", ["t"])
        for number in range(100):
            on.sender.publisher.send_event(on.sender.hello(f"n{number}"))
        on.fence(listener, "t")
        assert not listener.received.hellos("n0")
        assert listener.received.hellos("n99")


def test_all_of_many_hello_requests_are_answered() -> None:
    """A replica of 40,000 topics sends 200 hello requests at a time."""
    with scene(rig()) as on:
        listener = on.listening("t")
        nonces = [f"nonce{number}" for number in range(200)]
        for nonce in nonces:
            listener.subscriber.request_hello(nonce, ["t"])
        for nonce in nonces:
            on.sender.publisher.send_event(on.sender.hello(nonce))
        listener.received.until(lambda: listener.received.hellos(nonces[-1]), "the last one is answered")
        assert [len(listener.received.hellos(nonce)) for nonce in nonces] == [1] * 200


def test_publisher_without_a_thread_is_not_initialized(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    publisher = MemoryDriver.publisher(DriverSettings(options={"bus": MemoryBus()}))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(TransportError, match="cannot start the thread 'pubsub-memory-asks'"):
            publisher.initialize(lambda ask: None, lambda: None)
    publisher.initialize(lambda ask: None, lambda: None)
    publisher.close()


def test_cut_bus_delivers_no_messages_and_no_hello_requests() -> None:
    on_bus = rig()
    net = on_bus.settings.options["bus"]
    assert isinstance(net, MemoryBus)
    with scene(on_bus) as on:
        listener, sender = on.listening("t"), on.sender
        net.cut()
        net.cut()
        before = listener.connected.count
        lost = on.send("t")
        listener.subscriber.request_hello("lost", ["t"])
        net.restore()
        net.restore()
        listener.subscriber.request_hello("asked", ["t"])
        on.fence(listener, "t")  # messages of one publisher keep their order, and come after its connection
        assert lost.point not in listener.received.points("t")
        assert poll(lambda: bool(sender.asks), on.rig.patience)  # and so do hello requests
        assert [each.nonce for each in sender.asks] == ["asked"]
        assert listener.connected.count == before + 1
