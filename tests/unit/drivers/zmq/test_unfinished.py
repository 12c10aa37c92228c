"""A message that does not end takes bounded memory: its connection is ended, and the others continue."""

import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from pubsub_zmq.reading_progress import ReadingProgress
from pubsub_zmq.unfinished import FREE, MAX_TOGETHER, MAX_UNFINISHED, Unfinished, excess
from tests.unit.drivers.zmq.alone import must_pass_alone
from tests.unit.drivers.zmq.strangers import PART, flood
from tests.unit.drivers.zmq.test_inflow_guard import connected
from tests.unit.drivers.zmq.test_subscription_budget import resident
from tests.unit.drivers.zmq.world import Listener, Sender, eventually, world

MEMORY_OF_A_PART = 64
CONNECTION = 7
MUCH = MAX_UNFINISHED + 1


class Rig:
    """An Unfinished without connections, and the progress of its sending thread."""

    def __init__(self) -> None:
        self.progress = ReadingProgress()
        self.wakes = 0
        self.unfinished = Unfinished(1, self.progress, {}, self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    def judged(self, number: int, *, empty: bool = True) -> int:
        """The bytes of the connection that count, after the kernel received this number of bytes in all."""
        found = self.unfinished.judged({CONNECTION: number}).get(CONNECTION, 0)
        if empty:
            self.progress.found_empty()
        return found


def test_bytes_count_when_all_that_waited_was_read_without_a_message_of_them() -> None:
    rig = Rig()
    assert rig.judged(MUCH, empty=False) == 0, "just arrived"
    assert rig.judged(2 * MUCH) == 0, "the thread has not read all that waited"
    assert rig.judged(2 * MUCH) == 2 * MUCH


def test_bytes_of_messages_that_were_read_do_not_count() -> None:
    rig = Rig()
    rig.judged(MUCH, empty=False)
    rig.progress.read(CONNECTION, MUCH)
    rig.progress.found_empty()
    assert rig.judged(2 * MUCH) == 0
    assert rig.judged(2 * MUCH) > MUCH / 2, "those that came later do"


def test_message_proves_that_all_before_it_were_whole() -> None:
    """A replica's subscriptions that others have already are not reported, and its hello request is."""
    rig = Rig()
    rig.judged(MUCH)
    rig.progress.read(CONNECTION, 1)
    assert rig.judged(MUCH + 1) == 0
    assert rig.judged(MUCH + 1) == 0


def test_message_that_had_arrived_before_proves_nothing() -> None:
    """A client sends a million subscriptions, which wait, and then a message without an end."""
    rig = Rig()
    rig.judged(1000, empty=False)
    rig.progress.read(CONNECTION, 1)
    rig.judged(MUCH, empty=False)
    rig.progress.read(CONNECTION, 1)
    assert rig.judged(2 * MUCH) == 0
    assert rig.judged(2 * MUCH) > 2 * MUCH - 1000


def test_messages_give_no_credit_for_later_bytes() -> None:
    rig = Rig()
    for each in range(1000):
        rig.progress.read(CONNECTION, 1000)
        rig.judged(4 * each, empty=False)
    rig.judged(MUCH)
    assert rig.judged(MUCH) > MUCH - 10_000


def test_new_connection_with_the_descriptor_of_an_ended_one_counts_from_zero() -> None:
    rig = Rig()
    rig.judged(MUCH)
    assert rig.judged(FREE + 1) == 0
    assert rig.judged(FREE + 1) == FREE + 1
    rig.unfinished.judged({})
    assert rig.judged(10) == 0


def test_thread_that_sleeps_is_woken_to_read_only_while_bytes_wait_to_be_judged() -> None:
    """It sleeps while no whole message arrives."""
    rig = Rig()
    for number, wakes in ((FREE, 0), (FREE + 1, 1), (FREE + 1, 2)):
        rig.unfinished.look({CONNECTION: number}, 0.0)
        assert rig.wakes == wakes
    rig.progress.found_empty()
    for _ in range(3):
        rig.unfinished.look({CONNECTION: FREE + 1}, 0.0)
    assert rig.wakes == 2


def test_connections_with_most_are_ended_until_the_others_have_little_together() -> None:
    assert excess({}) == []
    assert excess({1: MAX_UNFINISHED, 2: MUCH, 3: FREE + 1}) == [2]
    many = dict.fromkeys(range(1000), MAX_TOGETHER // 500 + FREE)
    assert excess(many) == list(range(500))
    assert excess(dict.fromkeys(range(10_000), FREE)) == []


@pytest.mark.parametrize(("other", "ended"), [(0, 1), (1, 0)])
def test_connection_of_another_port_is_not_ended(other: int, ended: int) -> None:
    """Of a database, for example, that sends a large answer."""
    counts = {"unfinished": 0}
    with connected() as (client, server):
        port = server.getsockname()[1] % 65_535 + other
        unfinished = Unfinished(port, progress := ReadingProgress(), counts, lambda: None)
        unfinished.look({server.fileno(): MUCH}, 0.0)
        progress.found_empty()
        unfinished.look({server.fileno(): MUCH}, 0.1)
        assert counts["unfinished"] == ended
        client.settimeout(0.0 if other else 10.0)
        if ended:
            assert client.recv(1) == b""
        else:
            with pytest.raises(BlockingIOError):
                client.recv(1)


def test_memory_of_ended_connections_is_returned_once_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroMQ frees it after some time."""
    times: list[float] = []
    now = 0.0
    monkeypatch.setattr("pubsub_zmq.unfinished.return_memory", lambda: times.append(now))
    with ExitStack() as stack:
        made = [stack.enter_context(connected()) for _ in range(3)]
        unfinished = Unfinished(1, progress := ReadingProgress(), {"unfinished": 0}, lambda: None)
        monkeypatch.setattr("pubsub_zmq.unfinished.is_of", lambda descriptor, port: True)
        brought: dict[int, int] = {}
        for step in range(100):
            if made:
                _, server = made.pop()
                brought[server.fileno()] = MUCH
            now = step / 10
            unfinished.look(brought, now)
            progress.found_empty()
            if step:
                brought = dict(list(brought.items())[-1:])
    assert times == [pytest.approx(2.1)]


def memory_during(connections: int, check: Callable[[int], None]) -> None:
    """Connections send a message without an end, in a process whose memory has no room of others."""
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        before = resident()
        with flood(sender.address, connections, PART, 20 * MAX_UNFINISHED) as strangers:
            assert strangers.stdout is not None
            while "done" not in strangers.stdout.readline():
                listener.wait_for_message(lambda: sender.send("a"), "a")
            check(resident(peak=True) - before)
            assert sender.publisher.counters()["unfinished"] == connections
            assert listener.counter("disconnected") == 0
            listener.wait_for_message(lambda: sender.send("a"), "a")
            eventually(lambda: resident() - before < 100, "the memory is returned")


def endless() -> None:
    """A half more than the limit allows, for what arrives until the connection is ended."""
    parts = MAX_UNFINISHED / len(PART)

    def check(grown: int) -> None:
        assert 100 < grown < 1.5 * parts * MEMORY_OF_A_PART / 2**20

    memory_during(1, check)


def test_message_without_an_end_takes_bounded_memory_and_ends_its_connection() -> None:
    stderr = must_pass_alone(endless)
    assert "the connection from 127.0.0.1 to port" in stderr
    assert stderr.count("without a whole message") == 1


def ask(listener: Listener, sender: Sender, nonce: str) -> None:
    """Request a hello, and wait until the sender has the request."""
    listener.subscriber.request_hello(nonce, ("topic-1",))
    eventually(lambda: any(each.nonce == nonce for each in sender.asks), "the request came")


def test_connection_that_sends_whole_messages_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger subscribes to what a listener has already, which is not reported, and sends hello requests."""
    monkeypatch.setattr("pubsub_zmq.unfinished.FREE", 1000)
    monkeypatch.setattr("pubsub_zmq.unfinished.MAX_UNFINISHED", 100_000)
    with world() as on:
        sender = on.sender()
        first = on.listener(*(f"topic-{each}" for each in range(300)), to=(sender.address,))
        first.wait_for_message(lambda: sender.send("topic-1"), "topic-1")
        second = on.listener(*(f"topic-{each}" for each in range(300)), to=(sender.address,))
        second.wait_for_message(lambda: sender.send("topic-1"), "topic-1")
        for each in range(120):
            for number in range(50):
                second.subscriber.unregister_topic(f"topic-{number}")
                second.subscriber.register_topic(f"topic-{number}")
            ask(second, sender, f"nonce-{each}")
        counters = sender.publisher.counters()
        assert (counters["unfinished"], counters["disconnected"]) == (0, 0)


def test_closed_connection_is_not_counted_as_ended() -> None:
    counts = {"unfinished": 0}
    unfinished = Unfinished(1, ReadingProgress(), counts, lambda: None)
    made = socket.socket()
    number = made.fileno()
    made.close()
    unfinished._end(number, MUCH)
    assert counts["unfinished"] == 0
