"""The driver on real sockets: what happens to connections, and what the other end notices."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import zmq
from _processes import free_port

from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import TransportError
from tests.unit.drivers.zmq.world import ALERT, GIVEN_UP, PATIENCE, World, eventually, world

BACK_SECONDS = 2.0
SMALL = Limits(max_frame_bytes=10_000, max_value_bytes=1000)


def test_an_oversized_frame_ends_the_connection_and_the_driver_is_back_within_two_seconds() -> None:
    with world() as on:
        stranger, sender = on.stranger(), on.sender()
        listener = on.listener("a", "b", to=(stranger.address, sender.address), limits=SMALL)
        listener.hears(lambda: stranger.send("a"), "a")
        listener.hears(lambda: sender.send("b"), "b")
        for times in (1, 2):
            stranger.send("a", b"x" * 50_000)
            eventually(lambda times=times: listener.counter("oversized") == times, "it was counted", BACK_SECONDS)  # type: ignore[misc]
            listener.hears(lambda: stranger.send("a"), "a", BACK_SECONDS)
        assert listener.counter("revived") == 2
        assert listener.counter("disconnected") == 2, "the other publisher's connection was disturbed"


def test_a_publisher_that_restarts_is_heard_again_and_is_not_taken_for_given_up() -> None:
    with world() as on:
        address = f"tcp://127.0.0.1:{free_port()}"
        first = on.sender(address)
        listener = on.listener("a", to=(address,))
        listener.hears(lambda: first.send("a"), "a")
        first.publisher.close()
        eventually(lambda: listener.counter("disconnected") == 1, "the loss was noticed")
        second = on.sender(address)
        listener.hears(lambda: second.send("a"), "a")
        assert listener.counter("reconnected") == 1
        assert listener.counter("revived") == 0


def test_both_halves_are_told_of_a_connection_and_of_the_next_one_and_may_use_it_at_once() -> None:
    with world() as on:
        address = f"tcp://127.0.0.1:{free_port()}"
        listener = on.listener("a", to=(address,))
        for times in (1, 2, 3):
            sender = on.sender(address)
            eventually(lambda times=times: listener.meetings == times, "the subscriber was told")  # type: ignore[misc]
            listener.subscriber.request_hello(f"nonce{times}", ["a"])
            eventually(lambda times=times: bool(listener.received.hellos(f"nonce{times}")), "it was answered")  # type: ignore[misc]
            assert sender.meetings
            sender.send("a")
            eventually(lambda times=times: listener.messages("a") == times, "what was sent after that came")  # type: ignore[misc]
            sender.publisher.close()


def test_a_publisher_that_is_named_and_restarts_is_not_taken_for_given_up() -> None:
    with world() as on:
        port = free_port()
        first = on.sender(f"tcp://127.0.0.1:{port}")
        listener = on.listener("a", to=(f"tcp://localhost:{port}",))
        listener.hears(lambda: first.send("a"), "a")
        first.publisher.close()
        second = on.sender(f"tcp://127.0.0.1:{port}")
        listener.hears(lambda: second.send("a"), "a")
        assert listener.counter("revived") == 0


def test_of_several_names_with_one_port_the_one_that_was_given_up_is_made_anew() -> None:
    """Both are resolved like a host's name. Nobody is behind the third, so that it is tried again all the time."""
    with world() as on:
        port = free_port()
        stranger, sender = on.stranger(f"tcp://127.0.0.1:{port}"), on.sender(f"tcp://127.0.0.2:{port}")
        names = tuple(f"tcp://127.{last}:{port}" for last in (1, 2, 3))
        listener = on.listener("a", "b", to=names, limits=SMALL)
        listener.hears(lambda: stranger.send("a"), "a")
        listener.hears(lambda: sender.send("b"), "b")
        for times in (1, 2):
            stranger.send("a", b"x" * 50_000)
            listener.hears(lambda: stranger.send("a"), "a", BACK_SECONDS)
            assert listener.counter("disconnected") == listener.counter("revived") == times, "another was disturbed"


def test_a_publisher_that_stands_still_for_a_while_is_heard_again() -> None:
    """The system answers for it, so the connection stays; that it says nothing is noticed by the missing hellos."""
    with world() as on:
        remote = on.remote()
        listener = on.listener("a", to=(remote.address,), **ALERT)
        listener.hears(lambda: remote.send("a"), "a")
        remote.process.send_signal(signal.SIGSTOP)
        remote.send("a")
        before = listener.messages("a")
        remote.process.send_signal(signal.SIGCONT)
        eventually(lambda: listener.messages("a") > before, "what was to be sent meanwhile came")


def test_a_subscriber_that_takes_nothing_any_more_is_given_up() -> None:
    with world() as on:
        sender = on.sender(**ALERT)
        process = subprocess.Popen([sys.executable, "-c", SUBSCRIBER, sender.address])
        try:
            eventually(lambda: sender.publisher.counters()["connected"] == 1, "it connected")
            process.send_signal(signal.SIGSTOP)

            def given_up() -> bool:
                sender.send("a", b"x" * 200_000)  # until the system's buffers are full, and beyond
                return sender.publisher.counters()["disconnected"] >= 1

            eventually(given_up, "it was given up", GIVEN_UP + PATIENCE)
        finally:
            process.kill()
            process.wait()


def test_a_subscriber_that_is_paused_for_longer_than_a_silence_gets_what_was_kept_for_it() -> None:
    """The silence is that after which a subscriber gives up a publisher; what is kept is what it has not taken yet."""
    with world() as on:
        sender = on.sender(**{**ALERT, "tcp_user_timeout": 30}, send_hwm=1000)
        process = subprocess.Popen([sys.executable, "-c", COUNTER, sender.address], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            out = process.stdout

            def hears() -> bool:
                sender.send("a")
                return bool(select.select([out], [], [], 0.01)[0])

            eventually(hears, "it hears")
            assert out.readline() == "ready\n"
            process.send_signal(signal.SIGSTOP)
            paused = time.monotonic()
            for _ in range(100):
                sender.send("a", b"x" * 200_000)  # more than the system's buffers take

            def over() -> bool:
                return time.monotonic() > paused + 2 * GIVEN_UP or sender.publisher.counters()["disconnected"] > 0

            eventually(over, "the pause is over")
            assert sender.publisher.counters()["disconnected"] == 0
            process.send_signal(signal.SIGCONT)
            assert out.readline() == "100\n"
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


COUNTER = """
import sys, zmq
socket = zmq.Context().socket(zmq.SUB)
socket.subscribe(b"")
socket.connect(sys.argv[1])
socket.rcvtimeo = 20_000
socket.recv_multipart()
print("ready", flush=True)
count = 0
while count < 100:
    count += len(socket.recv_multipart()[1]) > 200_000
print(count, flush=True)
"""


SUBSCRIBER = """
import sys, zmq
socket = zmq.Context().socket(zmq.SUB)
socket.subscribe(b"")
socket.connect(sys.argv[1])
while True:
    socket.recv()
"""


def test_what_a_slow_subscriber_loses_is_counted() -> None:
    with world() as on:
        limits = Limits(max_frame_bytes=300_000, max_value_bytes=250_000)
        sender = on.sender(send_hwm=5, limits=limits)
        listener = on.listener("a", to=(sender.address,), receive_hwm=5, limits=limits)
        listener.hears(lambda: sender.send("a"), "a")
        stuck, inside = threading.Event(), threading.Event()

        def hook(_: object) -> None:
            inside.set()
            stuck.wait(30)

        listener.received.hook = hook
        sender.send("a")
        assert inside.wait(10)
        for _ in range(400):
            sender.send("a", b"x" * 200_000)
        eventually(lambda: sender.publisher.counters()["frames"] >= 400, "all was handed to ZeroMQ")
        listener.received.hook = lambda envelope: None
        stuck.set()
        eventually(lambda: bool(sender.send("a")) and listener.counter("lost") > 0, "the loss was seen")
        numbers = listener.numbers("a")
        assert numbers == sorted(set(numbers))
        # Read after the numbers were, so that what came meanwhile cannot hide a hole.
        holes = numbers[-1] - numbers[0] + 1 - len(numbers)
        assert holes > 0
        assert listener.counter("lost") >= holes


def test_a_subscriber_that_stands_still_behind_a_full_queue_goes_on() -> None:
    """With ZMTP's heartbeats libzmq would end its process (see sockets.py). Here its publisher gives it up."""
    with world() as on:
        limits = Limits(max_frame_bytes=300_000, max_value_bytes=250_000)
        sender = on.sender(send_hwm=5, limits=limits, **ALERT)
        listener = on.listener("a", to=(sender.address,), receive_hwm=5, limits=limits, **ALERT)
        listener.hears(lambda: sender.send("a"), "a")
        for times in (1, 2):
            stuck, inside = threading.Event(), threading.Event()

            def stand(_: object, stuck: threading.Event = stuck, inside: threading.Event = inside) -> None:
                inside.set()
                stuck.wait(60)

            def entered(inside: threading.Event = inside) -> bool:
                return inside.is_set() or not sender.send("a")

            def given_up(times: int = times) -> bool:
                sender.send("a", b"x" * 200_000)
                return sender.publisher.counters()["disconnected"] >= times

            listener.received.hook = stand
            eventually(entered, "it stands")
            eventually(given_up, "the publisher gave it up", GIVEN_UP + PATIENCE)
            listener.received.hook = lambda envelope: None
            stuck.set()
            listener.hears(lambda: sender.send("a"), "a")
            eventually(lambda times=times: listener.counter("reconnected") >= times, "it came back")  # type: ignore[misc]


def test_twenty_subscribers_that_start_at_once_get_twenty_own_hellos() -> None:
    with world() as on:
        sender = on.sender()
        started = threading.Barrier(20)
        found = []
        lock = threading.Lock()

        def start(number: int) -> None:
            started.wait(10)
            listener = on.listener("a", to=(sender.address,))
            listener.subscriber.request_hello(f"nonce-{number}", ["a"])
            with lock:
                found.append((number, listener))

        threads = [threading.Thread(target=start, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(found) == 20
        for number, listener in found:
            listener.received.until(lambda: listener.received.hellos(f"nonce-{number}"), f"hello reply {number}")  # noqa: B023
        for number, listener in found:
            own = [each.hello.nonce for each in listener.received.envelopes if each.hello is not None]
            assert own == [f"nonce-{number}"]


def test_a_burst_of_subscriptions_reaches_the_publisher_whole() -> None:
    with world() as on:
        sender = on.sender()
        topics = [f"topic-{number}" for number in range(20_000)]
        listener = on.listener(*topics, to=(sender.address,))
        listener.hears(lambda: sender.send(topics[-1]), topics[-1])
        for topic in topics[::100]:
            sender.send(topic)
        listener.received.until(lambda: all(listener.messages(topic) for topic in topics[::100]), "each topic is heard")


def test_addresses_are_added_and_removed_while_running() -> None:
    with world() as on:
        one, two = on.sender(), on.sender()
        listener = on.listener("a", to=(one.address,))
        listener.hears(lambda: one.send("a"), "a")
        listener.subscriber.register_listen_address(two.address)
        listener.subscriber.register_topic("b")
        listener.hears(lambda: two.send("b"), "b")
        listener.subscriber.unregister_listen_address(one.address)
        eventually(lambda: one.publisher.counters()["disconnected"] == 1, "the first connection ended")
        one.send("a")
        listener.hears(lambda: two.send("b"), "b")
        assert listener.counter("revived") == 0
        listener.subscriber.register_listen_address(one.address)
        listener.hears(lambda: one.send("a"), "a")


def test_a_second_publisher_on_a_tcp_port_is_told_who_has_it() -> None:
    with world() as on:
        first = on.sender()
        with pytest.raises(TransportError) as caught:
            on.sender(first.address)
        assert f"cannot bind '{first.address}'" in str(caught.value)
        assert f"held by process {os.getpid()} (" in str(caught.value)
        assert isinstance(caught.value.__cause__, zmq.ZMQError)


def test_a_second_publisher_on_an_ipc_path_is_refused_and_the_first_lives_on(tmp_path: Path) -> None:
    with world() as on:
        address = f"ipc://{tmp_path}/socket"
        first = on.sender(address)
        listener = on.listener("a", to=(address,))
        listener.hears(lambda: first.send("a"), "a")
        with pytest.raises(TransportError, match=f"'{address}' is held by process {os.getpid()} "):
            on.sender(address)
        listener.hears(lambda: first.send("a"), "a")
        first.publisher.close()
        second = on.sender(address)
        listener.hears(lambda: second.send("a"), "a")


def test_a_publisher_killed_on_an_ipc_path_leaves_it_free(tmp_path: Path) -> None:
    with world() as on:
        address = f"ipc://{tmp_path}/socket"
        remote = on.remote(address)
        with pytest.raises(TransportError, match=f"is held by process {remote.process.pid} "):
            on.sender(address)
        remote.close()
        on.sender(address)


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("tcp://192.0.2.1:8866", "this host has no such address"),
        ("ipc:///no/such/folder/socket", "create its folder"),
    ],
)
def test_an_address_that_cannot_be_bound_is_named_with_the_way_out(address: str, hint: str) -> None:
    with world() as on, pytest.raises(TransportError, match=hint) as caught:
        on.sender(address)
    assert address.removeprefix("ipc://") in str(caught.value)


def test_messages_sent_alone_and_in_bursts_keep_their_order() -> None:
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        listener.hears(lambda: sender.send("a"), "a")
        for size in (1, 1, 2, 1, 50, 1, 300, 1) * 5:
            for _ in range(size):
                sender.send("a")
            # Until they are there it is quiet: the next one is sent by its sender, what comes behind it is queued.
            listener.received.until(lambda: listener.numbers("a")[-1:] == [sender.sequences["a"]], "the last one came")
        numbers = listener.numbers("a")
        assert numbers == list(range(numbers[0], sender.sequences["a"] + 1))
        counters = sender.publisher.counters()
        assert counters["sent"] >= sender.sequences["a"]
        assert counters["send_errors"] == listener.counter("lost") == 0


def test_messages_that_wait_share_frames_and_keep_their_order() -> None:
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", "b", to=(sender.address,))
        listener.hears(lambda: sender.send("a"), "a")
        listener.hears(lambda: sender.send("b"), "b")
        for _ in range(5000):
            last = {topic: sender.send(topic) for topic in ("a", "b")}
        # Of both: within a window one topic may overtake another.
        listener.received.until(
            lambda: all(listener.numbers(topic)[-1:] == [last[topic]] for topic in last), "the last ones came"
        )
        for topic in ("a", "b"):
            numbers = listener.numbers(topic)
            assert numbers == list(range(numbers[0], sender.sequences[topic] + 1))
        counters = sender.publisher.counters()
        assert counters["frames"] < counters["sent"]
        assert listener.counter("lost") == 0


def test_a_goodbye_arrives_although_the_publisher_closes_at_once() -> None:
    with world() as on:
        sender = on.sender()
        listener = on.listener("", to=(sender.address,))
        listener.hears(lambda: sender.send("a"), "a")
        sender.send("a")
        sender.goodbye()
        sender.publisher.close()
        listener.received.until(
            lambda: any(each.hello is not None and each.hello.goodbye for each in listener.received.envelopes),
            "the goodbye came",
        )
        assert listener.numbers("a")[-1] == sender.sequences["a"]


def test_a_question_about_many_topics_is_cut_and_its_answers_carry_the_askers_nonce() -> None:
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        topics = [f"topic-{number:06}" for number in range(5000)]
        listener.subscriber.request_hello("many", topics)

        def answered() -> bool:
            return {topic for hello in listener.received.hellos("many") for topic in hello.sequences} == set(topics)

        listener.received.until(answered, "every topic was answered")
        assert len(sender.asks) > 1


def test_a_subscription_longer_than_a_question_ends_its_connection_and_no_other() -> None:
    """Each byte of it would cost the publisher forty, for as long as its subscriber likes."""
    with world() as on:
        sender, stranger = on.sender(), zmq.Context[zmq.Socket[bytes]]()
        listener = on.listener("a", to=(sender.address,))
        listener.hears(lambda: sender.send("a"), "a")
        greedy = stranger.socket(zmq.SUB)
        try:
            greedy.subscribe(b"H" + b"x" * 3000)
            greedy.connect(sender.address)
            eventually(lambda: sender.publisher.counters()["disconnected"] == 1, "it was disconnected")
        finally:
            greedy.close(0)
            stranger.term()
        listener.hears(lambda: sender.send("a"), "a")
        assert listener.counter("disconnected") == 0


def test_questions_are_answered_at_the_publishers_pace_whoever_asks() -> None:
    with world() as on:
        sender = on.sender(questions_per_second=10)
        listener = on.listener("a", to=(sender.address,), answer_time=60.0)
        began = time.monotonic()
        for number in range(25):
            listener.subscriber.request_hello(f"nonce-{number}", ["a"])
        eventually(lambda: len(sender.asks) >= 20, "most were answered")
        answered = len(sender.asks)
        assert answered <= 10 + 10 * (time.monotonic() - began)
        eventually(lambda: len(sender.asks) == 25, "all were answered")


def test_much_that_is_subscribed_to_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pubsub_zmq.publisher._MUCH_SUBSCRIBED", 100_000)
    with world() as on:
        sender = on.sender()
        topics = [f"{number:06}{'x' * 194}" for number in range(1000)]
        listener = on.listener(*topics[:400], to=(sender.address,))
        listener.hears(lambda: sender.send(topics[399]), topics[399])
        assert not caplog.records
        for topic in topics[400:]:
            listener.subscriber.register_topic(topic)
        eventually(lambda: "bytes of different topics and hello requests" in caplog.text, "it was reported")
        for topic in topics:
            listener.subscriber.unregister_topic(topic)
        listener.subscriber.register_topic("a")
        listener.hears(lambda: sender.send("a"), "a")
        # The socket sends by a subscription before the publisher has taken note of it.
        # What is left: the topic, and the hellos to every subscriber.
        left = len(codec.subscription("a")) + len(codec.topic_frame(ALL))
        eventually(lambda: sender.publisher._subscribed == left, "what was taken back weighs nothing")


def test_an_answered_question_is_taken_back_from_the_publisher() -> None:
    with world() as on:
        stranger, sender = on.stranger(), on.sender()
        listener = on.listener("a", to=(sender.address, stranger.address), answer_time=0.5)
        listener.subscriber.request_hello("nonce", ["a"])
        listener.received.until(lambda: listener.received.hellos("nonce"), "the one publisher answered")
        # The other stays silent: asked, prefix first, and taken back when the time is over.
        stranger.was_told(lambda told: told == b"\0Hnonce\0")
        told = [each for each in stranger.told if each[1:2] == b"H"]
        assert told[0] == b"\1Hnonce\0"
        assert [each[:1] for each in told] == [b"\1", b"\1", b"\0", b"\0"]


def test_nothing_is_left_open_after_close() -> None:
    def open_now() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def once(on: World) -> None:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        listener.hears(lambda: sender.send("a"), "a")

    with world() as on:
        once(on)
    before = open_now()
    threads = threading.active_count()
    for _ in range(3):
        with world() as on:
            once(on)
    assert open_now() == before
    assert threading.active_count() == threads


def test_closing_does_not_wait_for_a_peer_that_takes_nothing() -> None:
    with world() as on:
        sender = on.sender()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        stuck = context.socket(zmq.SUB)
        stuck.setsockopt(zmq.RCVHWM, 1)
        stuck.subscribe(b"")
        stuck.connect(sender.address)
        eventually(lambda: sender.publisher.counters()["connected"] == 1, "it connected")
        for _ in range(200):
            sender.send("a", b"x" * 100_000)
        sender.goodbye()
        began = time.monotonic()
        sender.publisher.close()
        assert time.monotonic() - began < BACK_SECONDS
        stuck.close(0)
        context.term()
