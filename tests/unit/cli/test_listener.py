"""Receiving the messages of replicas, and asking services."""

import queue
import time

import pytest

from pubsub_lib.cli.listener import ask_services, listening
from pubsub_lib.core.envelope import OBSERVER, Envelope
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import DriverError
from pubsub_lib.settings import Settings
from tests.e2e.service_host import LONG
from tests.unit.cli.world import World


def test_listener_receives_messages_and_hello_replies(world: World) -> None:
    received: queue.Queue[Envelope] = queue.Queue()
    with world.open() as store, listening(world.settings, store, ["a"], received.put) as listener:
        if world.host is not None:
            assert listener.addresses == (world.settings.bind_address,)
        assert all(nonce.startswith(OBSERVER) for nonce in listener.ask(["a"])), "no audit expects a journal of it"
        answer = None
        asked = set()
        until = time.monotonic() + LONG
        while answer is None and time.monotonic() < until:
            asked.update(listener.ask(["a", "never"]))
            try:
                envelope = received.get(timeout=0.5)
            except queue.Empty:
                continue
            if envelope.hello is not None and envelope.hello.nonce in asked:
                answer = envelope.hello
        assert answer is not None
        assert set(answer.heads) == {"a", "never"}
        with store.transaction(origin="api-1") as tx:
            tx.set("t", "listened", time.time(), topic="a")
        assert tx.commit is not None
        position = 0
        while position != tx.commit.point.position:
            envelope = received.get(timeout=LONG)
            assert envelope.topic in ("a", ALL)
            position = envelope.messages[-1].link.point.position if envelope.messages else 0
        assert listener.counters()["received"] >= 2


def test_live_services_answer_with_their_position(world: World) -> None:
    with world.open() as store:
        head = store.read_heads([]).store.position
        live = [each.uuid for each in store.directory.live()]
        answers = ask_services(world.settings, store, live, LONG if live else 0.3)
    # With polling there are no services; then the poller itself answers, which has no entry in the directory.
    assert set(live) <= set(answers)
    for uuid in live:
        hello = answers[uuid].hello
        assert hello.store is not None
        assert hello.store.position >= head or hello.age <= world.settings.timing.reading_age + 1
        assert 0 <= answers[uuid].seconds < LONG


def test_silent_service_costs_only_the_timeout(small: World) -> None:
    settings = Settings(store_url=small.url, driver="zmq_pubsub_driver", addresses=("tcp://127.0.0.1:1",))
    with small.open() as store:
        began = time.monotonic()
        assert ask_services(settings, store, ["unknown"], 0.3) == {}
        assert time.monotonic() - began >= 0.3


def test_listener_rejects_a_driver_without_cross_process_delivery(small: World) -> None:
    settings = Settings(store_url=small.url, driver="memory")
    rejected = pytest.raises(DriverError, match="'cross_process', needed by pubsub-db")
    with small.open() as store, rejected, listening(settings, store, [ALL], lambda _envelope: None):
        pass
