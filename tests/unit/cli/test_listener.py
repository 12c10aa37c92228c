"""Hearing what replicas hear, and asking services."""

import queue
import time

import pytest

from pubsub_lib.cli.listener import ask_services, listening
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import DriverError
from pubsub_lib.settings import Settings
from tests.e2e.service_host import LONG
from tests.unit.cli.world import World


def test_every_message_of_the_topics_and_answers_to_questions(world: World) -> None:
    came: queue.Queue[Envelope] = queue.Queue()
    with world.open() as store, listening(world.settings, store, ["a"], came.put) as tap:
        if world.host is not None:
            assert tap.addresses == (world.settings.bind_address,)
        answer = None
        asked = set()
        until = time.monotonic() + LONG
        while answer is None and time.monotonic() < until:
            asked.update(tap.ask(["a", "never"]))
            try:
                envelope = came.get(timeout=0.5)
            except queue.Empty:
                continue
            if envelope.hello is not None and envelope.hello.nonce in asked:
                answer = envelope.hello
        assert answer is not None
        assert set(answer.heads) == {"a", "never"}
        with store.transaction(origin="api-1") as tx:
            tx.set("t", "tapped", time.time(), topic="a")
        assert tx.commit is not None
        position = 0
        while position != tx.commit.point.position:
            heard = came.get(timeout=LONG)
            assert heard.topic in ("a", ALL)
            position = heard.messages[-1].link.point.position if heard.messages else 0
        assert tap.counters()["received"] >= 2


def test_live_services_answer_how_far_they_have_read(world: World) -> None:
    with world.open() as store:
        head = store.read_heads([]).store.position
        live = [each.uuid for each in store.directory.live()]
        answers = ask_services(world.settings, store, live, LONG if live else 0.3)
    # By polling there are no services; then the poller itself answers, which is no entry of the directory.
    assert set(live) <= set(answers)
    for uuid in live:
        hello = answers[uuid].hello
        assert hello.store is not None
        assert hello.store.position >= head or hello.age <= world.settings.timing.reading_age + 1
        assert 0 <= answers[uuid].seconds < LONG


def test_who_is_silent_costs_the_timeout_and_no_more(small: World) -> None:
    settings = Settings(store_url=small.url, driver="zmq_pubsub_driver", addresses=("tcp://127.0.0.1:1",))
    with small.open() as store:
        began = time.monotonic()
        assert ask_services(settings, store, ["nobody"], 0.3) == {}
        assert time.monotonic() - began >= 0.3


def test_a_driver_that_cannot_be_heard_from_another_process_is_refused(small: World) -> None:
    settings = Settings(store_url=small.url, driver="memory")
    refused = pytest.raises(DriverError, match="'cross_process', needed by pubsub-db")
    with small.open() as store, refused, listening(settings, store, [ALL], lambda _envelope: None):
        pass
