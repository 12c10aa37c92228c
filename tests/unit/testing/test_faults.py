"""Fault injection for any driver: the contract still holds, faults are counted, and the seed determines them."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.fault_injection import PERFECT, Loss
from pubsub_lib.store import Store
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_lib.testing.faults import FaultySubscriber, faulty
from pubsub_lib.testing.rig import scene
from pubsub_memory import MemoryBus, MemoryDriver
from pubsub_sql import PollingDriver


class TestWrappedMemory(DriverConformance):
    """Without faults, a wrapped driver passes the conformance suite."""

    @pytest.fixture
    def rig(self) -> Rig:
        bus = MemoryBus()
        settings = DriverSettings(options={"bus": bus})
        return Rig(faulty(MemoryDriver), settings, inject=bus.send, cut=bus.cut, restore=bus.restore)


def positions(loss: Loss, seed: int, count: int) -> tuple[list[int], dict[str, int]]:
    """Send positions 1..count through a memory driver with faults, and wait for all expected messages."""
    with scene(Rig(MemoryDriver, DriverSettings(options={"bus": MemoryBus()}))) as on:
        inner = MemoryDriver.subscriber(on.rig.settings)
        wrapped = FaultySubscriber(inner, loss, seed)
        came: list[int] = []
        changed = threading.Condition()

        def take(envelope: object) -> None:
            with changed:
                came.extend(message.link.point.position for message in envelope.messages)  # type: ignore[attr-defined]
                changed.notify_all()

        wrapped.initialize(take, lambda: None)
        wrapped.register_topic("t")
        wrapped.daemonize()
        try:
            for _ in range(count):
                on.send("t")

            def ended() -> bool:
                counts = wrapped.counters()
                pushed = counts["received"] == count
                expected = count - counts["lost"] - counts["fault_corrupt"] + counts["fault_duplicate"]
                return pushed and len(came) == expected

            with changed:
                # Counters change without a callback, so check repeatedly and at every envelope.
                for _ in range(1000):
                    if ended():
                        break
                    changed.wait(0.01)
                else:
                    raise AssertionError(f"seed {seed}: {len(came)} came, {wrapped.counters()}")
            return came, dict(wrapped.counters())
        finally:
            wrapped.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_dropped_envelopes_are_counted(seed: int) -> None:
    came, counts = positions(Loss(drop=0.3), seed, 200)
    assert counts["lost"] == counts["fault_drop"] == 200 - len(came) > 20
    assert came == sorted(came)
    assert positions(Loss(drop=0.3), seed, 200)[0] == came


def test_duplicated_envelopes_come_twice() -> None:
    came, counts = positions(Loss(duplicate=0.3), 3, 200)
    assert sum(number == 2 for number in Counter(came).values()) == counts["fault_duplicate"] > 20


def test_reordered_envelopes_all_come() -> None:
    came, counts = positions(Loss(reorder=0.3, max_delay=0.05), 4, 200)
    assert sorted(came) == list(range(1, 201))
    assert came != sorted(came)
    assert counts["fault_reorder"] > 20


def test_delayed_envelopes_all_come() -> None:
    came, counts = positions(Loss(delay=0.3, max_delay=0.05), 5, 200)
    assert sorted(came) == list(range(1, 201))
    assert counts["fault_delay"] > 20


def test_corrupted_envelopes_are_never_delivered() -> None:
    came, counts = positions(Loss(corrupt=0.3), 6, 200)
    assert counts["truncated"] == counts["fault_corrupt"] == 200 - len(came) > 20


def test_faults_change_while_running() -> None:
    with scene(Rig(MemoryDriver, DriverSettings(options={"bus": MemoryBus()}))) as on:
        wrapped = FaultySubscriber(MemoryDriver.subscriber(on.rig.settings), Loss(drop=1.0))
        received = threading.Event()
        wrapped.initialize(lambda envelope: received.set(), lambda: None)
        wrapped.register_topic("t")
        wrapped.daemonize()
        on.send("t")
        for _ in range(1000):
            if wrapped.counters()["lost"] == 1:
                break
            received.wait(0.01)
        assert not received.is_set()
        wrapped.set_loss(PERFECT)
        on.send("t")
        assert received.wait(10)
        wrapped.close()


def test_any_driver_can_be_wrapped(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/net.db"
    with Store(url) as store:
        driver = faulty(PollingDriver, Loss(duplicate=1.0))
        assert driver.name == "faulty-db_polling_pubsub_driver"
        assert driver.capabilities == PollingDriver.capabilities
        wrapped = driver.subscriber(DriverSettings(store_url=url, options={"fastest": 0.002, "slowest": 0.02}))
        twice = threading.Semaphore(0)
        wrapped.initialize(lambda envelope: _release(twice), lambda: None)
        wrapped.register_topic("t")
        wrapped.daemonize()
        for number in range(100):
            with store.transaction() as tx:
                tx.set("table", "key", number, topic="t")
            if twice.acquire(timeout=0.2):
                break
        assert twice.acquire(timeout=10)
        wrapped.close()


def _release(semaphore: threading.Semaphore) -> None:
    semaphore.release()
