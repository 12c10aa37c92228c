"""The driver on real sockets: lost connections, and their effects at the other end."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq
from _processes import free_port, pause

from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import TransportError
from pubsub_lib.send_queue import QueuedMessage, SendQueue
from pubsub_zmq.options import ZmqOptions
from pubsub_zmq.publisher import ZmqPublisher
from pubsub_zmq.sockets import Monitor
from pubsub_zmq.subscription_budget import TABLE
from tests.unit.drivers.zmq.world import ALERT, GIVEN_UP, PATIENCE, World, eventually, without_guard, world

BACK_SECONDS = 2.0
SMALL = Limits(max_frame_bytes=10_000, max_value_bytes=1000)


def test_driver_reconnects_within_two_seconds_after_an_oversized_frame() -> None:
    with world() as on:
        raw_socket, sender = on.raw_socket(), on.sender()
        listener = on.listener("a", "b", to=(raw_socket.address, sender.address), limits=SMALL)
        listener.wait_for_message(lambda: raw_socket.send("a"), "a")
        listener.wait_for_message(lambda: sender.send("b"), "b")
        took = []
        for times in (1, 2):
            began = time.monotonic()
            raw_socket.send("a", b"x" * 50_000)
            eventually(lambda times=times: listener.counter("oversized") == times, "it was counted")  # type: ignore[misc]
            listener.wait_for_message(lambda: raw_socket.send("a"), "a")
            took.append(time.monotonic() - began)
        assert min(took) < BACK_SECONDS, took  # a busy machine may delay one of them
        assert listener.counter("revived") == 2
        assert listener.counter("disconnected") == 2, "the other publisher's connection was disturbed"


def test_restarted_publisher_is_received_again_and_not_counted_as_given_up() -> None:
    with world() as on:
        address = f"tcp://127.0.0.1:{free_port()}"
        first = on.sender(address)
        listener = on.listener("a", to=(address,))
        listener.wait_for_message(lambda: first.send("a"), "a")
        first.end()
        eventually(lambda: listener.counter("disconnected") == 1, "the loss was detected")
        second = on.sender(address)
        listener.wait_for_message(lambda: second.send("a"), "a")
        assert listener.counter("reconnected") == 1
        assert listener.counter("revived") == 0


def test_on_connected_is_called_at_both_halves_for_each_connection() -> None:
    with world() as on:
        address = f"tcp://127.0.0.1:{free_port()}"
        listener = on.listener("a", to=(address,))
        for times in (1, 2, 3):
            sender = on.sender(address)
            eventually(lambda times=times: listener.counter("connected") == times, "it connected")  # type: ignore[misc]
            listener.subscriber.request_hello(f"nonce{times}", ["a"])
            eventually(lambda times=times: bool(listener.received.hellos(f"nonce{times}")), "it was answered")  # type: ignore[misc]
            # No wait: the thread that received the reply had counted the connection, and called back at once.
            assert listener.meetings == times
            eventually(lambda sender=sender: bool(sender.meetings), "the publisher's half, too")  # type: ignore[misc]
            sender.send("a")
            eventually(lambda times=times: listener.messages("a") == times, "the message sent after that came")  # type: ignore[misc]
            sender.end()


def test_restarted_publisher_with_a_host_name_is_not_counted_as_given_up() -> None:
    with world() as on:
        port = free_port()
        first = on.sender(f"tcp://127.0.0.1:{port}")
        listener = on.listener("a", to=(f"tcp://localhost:{port}",))
        listener.wait_for_message(lambda: first.send("a"), "a")
        first.end()
        second = on.sender(f"tcp://127.0.0.1:{port}")
        listener.wait_for_message(lambda: second.send("a"), "a")
        assert listener.counter("revived") == 0


def test_given_up_connection_is_made_again_and_names_with_its_port_are_not() -> None:
    """Both are resolved like a host's name. No publisher has the third address, so that it is retried all the time."""
    with world() as on:
        port = free_port()
        raw_socket, sender = on.raw_socket(f"tcp://127.0.0.1:{port}"), on.sender(f"tcp://127.0.0.2:{port}")
        names = tuple(f"tcp://127.{last}:{port}" for last in (1, 2, 3))
        listener = on.listener("a", "b", to=names, limits=SMALL)
        listener.wait_for_message(lambda: raw_socket.send("a"), "a")
        listener.wait_for_message(lambda: sender.send("b"), "b")
        for times in (1, 2):
            raw_socket.send("a", b"x" * 50_000)
            eventually(lambda times=times: listener.counter("revived") == times, "it was made again")  # type: ignore[misc]
            listener.wait_for_message(lambda: raw_socket.send("a"), "a")
            assert listener.counter("disconnected") == listener.counter("revived") == times, "another was disturbed"


def test_paused_publisher_is_received_again() -> None:
    """Its system still answers, so the connection stays. A replica detects the pause by the missing hellos."""
    with world() as on:
        remote = on.remote()
        listener = on.listener("a", to=(remote.address,), **ALERT)
        listener.wait_for_message(lambda: remote.send("a"), "a")
        assert pause(remote.process.pid)
        remote.send("a")
        before = listener.messages("a")
        remote.process.send_signal(signal.SIGCONT)
        eventually(lambda: listener.messages("a") > before, "the message sent meanwhile came")


def test_publisher_closes_the_connection_to_a_stopped_subscriber() -> None:
    with world() as on:
        sender = on.sender(**ALERT)
        process = subprocess.Popen([sys.executable, "-c", SUBSCRIBER, sender.address])
        try:
            eventually(lambda: sender.publisher._budget.total == TABLE, "it connected and subscribed")
            assert pause(process.pid)

            def given_up() -> bool:
                sender.send("a", b"x" * 200_000)  # more than the system's buffers take
                return sender.publisher.counters()["disconnected"] >= 1

            eventually(given_up, "it was given up", GIVEN_UP + PATIENCE)
        finally:
            process.kill()
            process.wait()


def test_subscriber_paused_longer_than_max_silence_gets_the_buffered_frames() -> None:
    """After ``max_silence``, a subscriber closes the connection to a publisher. The publisher must wait longer."""
    with world() as on:
        sender = on.sender(**{**ALERT, "tcp_user_timeout": 30}, send_hwm=1000)
        process = subprocess.Popen([sys.executable, "-c", COUNTER, sender.address], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            out = process.stdout

            def receives() -> bool:
                sender.send("a")
                return bool(select.select([out], [], [], 0.01)[0])

            eventually(receives, "it receives")
            assert out.readline() == "ready\n"
            assert pause(process.pid)
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


def test_lost_messages_of_a_slow_subscriber_leave_a_gap_in_the_sequences() -> None:
    with world() as on:
        limits = Limits(max_frame_bytes=300_000, max_value_bytes=250_000)
        sender = on.sender(send_hwm=5, limits=limits)
        listener = on.listener("a", to=(sender.address,), receive_hwm=5, limits=limits)
        listener.wait_for_message(lambda: sender.send("a"), "a")
        stuck, inside = threading.Event(), threading.Event()

        def hook(_: object) -> None:
            inside.set()
            stuck.wait(30)

        listener.received.hook = hook
        sender.send("a")
        assert inside.wait(10)
        for _ in range(400):
            sender.send("a", b"x" * 200_000)
        eventually(lambda: sender.publisher.counters()["frames"] >= 400, "all frames were handed to ZeroMQ")
        listener.received.hook = lambda envelope: None
        stuck.set()

        def gap() -> bool:
            sender.send("a")
            numbers = listener.numbers("a")
            return numbers[-1] - numbers[0] + 1 > len(numbers)

        eventually(gap, "messages were lost")
        numbers = listener.numbers("a")
        assert numbers == sorted(set(numbers))


def test_blocked_subscriber_with_a_full_queue_continues() -> None:
    """With ZMTP's heartbeats, libzmq would end the process (see sockets.py). Here the publisher ends the connection."""
    with world() as on:
        limits = Limits(max_frame_bytes=300_000, max_value_bytes=250_000)
        sender = on.sender(send_hwm=5, limits=limits, **ALERT)
        listener = on.listener("a", to=(sender.address,), receive_hwm=5, limits=limits, **ALERT)
        listener.wait_for_message(lambda: sender.send("a"), "a")
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
            eventually(entered, "its callback blocks")
            eventually(given_up, "the publisher ended the connection", GIVEN_UP + PATIENCE)
            listener.received.hook = lambda envelope: None
            stuck.set()
            listener.wait_for_message(lambda: sender.send("a"), "a")
            eventually(lambda times=times: listener.counter("reconnected") >= times, "it connected again")  # type: ignore[misc]


def test_twenty_subscribers_that_start_at_once_get_twenty_hello_replies() -> None:
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


def test_subscriber_of_the_bare_prefix_receives_hello_replies_for_others() -> None:
    """ZeroMQ compares prefixes; see docs/wire-format.md."""
    with world() as on, zmq.Context() as context, context.socket(zmq.SUB) as curious:
        sender = on.sender()
        curious.setsockopt(zmq.LINGER, 0)
        curious.subscribe(b"H")
        curious.connect(sender.address)
        listener = on.listener("a", to=(sender.address,))

        def arrived() -> bool:
            listener.subscriber.request_hello("private", ["a"])
            return bool(curious.poll(200))

        eventually(arrived, "the hello reply arrived")
        assert curious.recv_multipart()[0].startswith(codec.private_frame("private"))


def test_publisher_receives_all_subscriptions_of_a_burst() -> None:
    with world() as on:
        sender = on.sender()
        topics = [f"topic-{number}" for number in range(20_000)]
        listener = on.listener(*topics, to=(sender.address,))
        listener.wait_for_message(lambda: sender.send(topics[-1]), topics[-1])
        for topic in topics[::100]:
            sender.send(topic)
        listener.received.until(
            lambda: all(listener.messages(topic) for topic in topics[::100]), "each topic is received"
        )


def test_addresses_are_added_and_removed_while_running() -> None:
    with world() as on:
        one, two = on.sender(), on.sender()
        listener = on.listener("a", to=(one.address,))
        listener.wait_for_message(lambda: one.send("a"), "a")
        listener.subscriber.register_listen_address(two.address)
        listener.subscriber.register_topic("b")
        listener.wait_for_message(lambda: two.send("b"), "b")
        listener.subscriber.unregister_listen_address(one.address)
        eventually(lambda: one.publisher.counters()["disconnected"] == 1, "the first connection ended")
        one.send("a")
        listener.wait_for_message(lambda: two.send("b"), "b")
        assert listener.counter("revived") == 0
        listener.subscriber.register_listen_address(one.address)
        listener.wait_for_message(lambda: one.send("a"), "a")


def test_bind_error_names_the_process_that_holds_the_tcp_port() -> None:
    with world() as on:
        first = on.sender()
        with pytest.raises(TransportError) as caught:
            on.sender(first.address)
        assert f"cannot bind '{first.address}'" in str(caught.value)
        assert f"held by process {os.getpid()} (" in str(caught.value)
        assert isinstance(caught.value.__cause__, zmq.ZMQError)


def test_second_publisher_on_an_ipc_path_is_refused_and_the_first_continues(tmp_path: Path) -> None:
    with world() as on:
        address = f"ipc://{tmp_path}/socket"
        first = on.sender(address)
        listener = on.listener("a", to=(address,))
        listener.wait_for_message(lambda: first.send("a"), "a")
        path = address.removeprefix("ipc://")
        with pytest.raises(TransportError, match=f"'{path}' is held by process {os.getpid()} "):
            on.sender(address)
        listener.wait_for_message(lambda: first.send("a"), "a")
        first.end()
        second = on.sender(address)
        listener.wait_for_message(lambda: second.send("a"), "a")


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
def test_bind_error_names_the_address_and_the_remedy(address: str, hint: str) -> None:
    with world() as on, pytest.raises(TransportError, match=hint) as caught:
        on.sender(address)
    assert address.removeprefix("ipc://") in str(caught.value)


def test_messages_sent_alone_and_in_bursts_keep_their_order() -> None:
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        for size in (1, 1, 2, 1, 50, 1, 300, 1) * 5:
            for _ in range(size):
                sender.send("a")
            # No message is sent until these have arrived. So the next one is sent by its sender, and later ones queue.
            listener.received.until(lambda: listener.numbers("a")[-1:] == [sender.sequences["a"]], "the last one came")
        numbers = listener.numbers("a")
        assert numbers == list(range(numbers[0], sender.sequences["a"] + 1))
        counters = sender.publisher.counters()
        assert counters["sent"] >= sender.sequences["a"]
        assert counters["send_errors"] == 0


class WaitingLock:
    """The lock of a publisher's socket, for which a sender waits while the sending thread uses the socket."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def acquire(self, blocking: bool = True) -> bool:
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_message_is_queued_only_when_many_were_sent_just_now(monkeypatch: pytest.MonkeyPatch) -> None:
    with world() as on:
        sender = on.sender()
        sender.settle()
        without_guard(sender)  # it compares with the real clock
        now, queued = 1000.0, list[QueuedMessage]()
        monkeypatch.setattr("pubsub_zmq.publisher.time", SimpleNamespace(monotonic=lambda: now))
        monkeypatch.setattr(SendQueue, "put", lambda _, item, wait: queued.append(item))
        monkeypatch.setattr(sender.publisher, "_socket_lock", WaitingLock(sender.publisher._socket_lock))
        sender.send("a")
        now += 0.0002  # one writer that publishes 5,000 transactions a second
        sender.send("a")
        assert (queued, sender.publisher.counters()["frames"]) == ([], 2)
        for _ in range(8):  # the topics of a group of transactions, and one more
            now += 0.00002
            sender.send("a")
        assert ([each.envelope.sequence for each in queued], sender.publisher.counters()["frames"]) == ([10], 9)
        now += 0.0002
        sender.send("a")
        assert (len(queued), sender.publisher.counters()["frames"]) == (1, 10)
        monkeypatch.undo()


def test_messages_that_wait_share_frames_and_keep_their_order() -> None:
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", "b", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        listener.wait_for_message(lambda: sender.send("b"), "b")
        for _ in range(5000):
            last = {topic: sender.send(topic) for topic in ("a", "b")}
        # Wait for both, because within a window one topic may overtake another.
        listener.received.until(
            lambda: all(listener.numbers(topic)[-1:] == [last[topic]] for topic in last), "the last ones came"
        )
        for topic in ("a", "b"):
            numbers = listener.numbers(topic)
            assert numbers == list(range(numbers[0], sender.sequences[topic] + 1))
        counters = sender.publisher.counters()
        assert counters["frames"] < counters["sent"]


def test_goodbye_arrives_when_the_publisher_closes_at_once() -> None:
    with world() as on:
        sender = on.sender()
        listener = on.listener("", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        sender.send("a")
        sender.goodbye()
        sender.publisher.close()
        listener.received.until(
            lambda: any(each.hello is not None and each.hello.goodbye for each in listener.received.envelopes),
            "the goodbye came",
        )
        assert listener.numbers("a")[-1] == sender.sequences["a"]


def test_hello_request_for_many_topics_is_split_and_its_replies_have_the_original_nonce() -> None:
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        topics = [f"topic-{number:06}" for number in range(5000)]
        listener.subscriber.request_hello("many", topics)

        def answered() -> bool:
            return {topic for hello in listener.received.hellos("many") for topic in hello.sequences} == set(topics)

        listener.received.until(answered, "every topic was answered")
        assert len(sender.asks) > 1


def test_too_long_subscription_ends_only_its_own_connection() -> None:
    """Each of its bytes would need forty bytes of the publisher's memory, for as long as the subscriber keeps it."""
    with world() as on:
        sender, context = on.sender(), zmq.Context[zmq.Socket[bytes]]()
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        greedy = context.socket(zmq.SUB)
        try:
            greedy.setsockopt(zmq.RECONNECT_IVL, -1)  # otherwise it is disconnected again and again
            greedy.subscribe(b"H" + b"x" * 3000)
            greedy.connect(sender.address)
            eventually(lambda: sender.publisher.counters()["disconnected"] == 1, "it was disconnected")
        finally:
            greedy.close(0)
            context.term()
        listener.wait_for_message(lambda: sender.send("a"), "a")
        assert listener.counter("disconnected") == 0


def test_publisher_limits_the_rate_of_hello_replies() -> None:
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


def test_large_size_of_subscriptions_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pubsub_zmq.subscription_budget.MUCH", 30_000)
    with world() as on:
        sender = on.sender(max_subscription_bytes=10_000_000)
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        assert sender.publisher._budget.total == 0, "a replica of this version"
        topics = [codec.subscription(f"{number:06}{'x' * 194}") for number in range(1000)]
        with zmq.Context() as context, context.socket(zmq.SUB) as old:
            old.linger = 0
            old.setsockopt(zmq.SNDHWM, 0)
            old.connect(sender.address)
            for topic in topics[:100]:
                old.subscribe(topic)
            eventually(lambda: sender.publisher._budget.total == sum(len(each) + TABLE for each in topics[:100]), "100")
            assert not caplog.records
            for topic in topics[100:]:
                old.subscribe(topic)
            eventually(lambda: "bytes of different topics and hello requests" in caplog.text, "it was reported")
            for topic in topics:
                old.unsubscribe(topic)
            eventually(lambda: sender.publisher._budget.total == 0, "ended subscriptions no longer count")
        listener.wait_for_message(lambda: sender.send("a"), "a")


def test_answered_hello_request_is_unsubscribed() -> None:
    with world() as on:
        raw_socket, sender = on.raw_socket(), on.sender()
        listener = on.listener("a", to=(sender.address, raw_socket.address), answer_time=3.0)
        eventually(lambda: listener.counter("connected") == 2, "both are connected, before the time of the request")
        listener.subscriber.request_hello("nonce", ["a"])
        listener.received.until(lambda: listener.received.hellos("nonce"), "the one publisher answered")
        # The other publisher does not answer. It receives the prefix of replies, whose end comes after answer_time, and
        # the request, of which ZeroMQ keeps nothing.
        raw_socket.wait_for_frame(lambda frame: frame == b"\0Hno")
        frames = [each for each in raw_socket.frames if b"H" in each[:2]]
        assert frames == [b"\1Hno", codec.hello_request_frame("nonce", ["a"]), b"\0Hno"]


def test_older_replica_that_asks_by_a_subscription_is_answered() -> None:
    with world() as on, zmq.Context() as context, context.socket(zmq.SUB) as old:
        sender = on.sender()
        old.linger = 0
        old.connect(sender.address)
        old.subscribe(codec.private_frame("n"))
        old.subscribe(codec.hello_request_frame("n", ["a"]))
        assert old.poll(round(PATIENCE * 1000))
        assert old.recv_multipart()[0].startswith(codec.private_frame("n"))


def test_nothing_is_left_open_after_close() -> None:
    def open_now() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def once(on: World) -> None:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")

    with world() as on:
        once(on)
    before = open_now()
    threads = threading.active_count()
    for _ in range(3):
        with world() as on:
            once(on)
    # Not equality: an earlier test's file or thread may still end.
    eventually(lambda: open_now() <= before and threading.active_count() <= threads, "nothing is left open")


def test_close_does_not_wait_for_a_blocked_subscriber() -> None:
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
        sender.publisher.close()
        # While the subscriber is still blocked. The maximum time of a call is in the conformance suite.
        eventually(lambda: not any(each.is_alive() for each in sender.publisher._threads), "its threads ended")
        stuck.close(0)
        context.term()


def test_long_burst_of_frames_is_no_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket's thread is in one step for 100 s, and sends a frame each second."""
    now = 0.0
    stood: list[float] = []

    class Socket:
        def send(self, _part: bytes, _flags: int) -> None:
            nonlocal now
            now += 0.5
            stood.append(publisher.sending_for(now))

    monkeypatch.setattr("pubsub_zmq.publisher.time", SimpleNamespace(monotonic=lambda: now))
    publisher = ZmqPublisher("tcp://127.0.0.1:*", Limits(), ZmqOptions())
    publisher._busy_since = 0.0
    publisher._send_frames(Socket(), [(b"head", b"body")] * 100)  # type: ignore[arg-type]
    assert now == 100.0
    assert max(stood) == 1.0
    assert publisher.sending_for(now + 3.0) == 3.0


def test_a_sender_that_stays_in_a_call_on_the_socket_is_a_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is sent past the queue is not sent by the thread that the publisher started for it."""
    with world() as on:
        sender = on.sender()
        sender.settle()
        without_guard(sender)
        stood: list[float] = []
        monkeypatch.setattr(
            sender.publisher,
            "_send_frames",
            lambda *_: stood.append(sender.publisher.sending_for(time.monotonic() + 7)),
        )
        sender.send("a")
        assert len(stood) == 1
        assert stood[0] >= 7
        assert sender.publisher.sending_for(time.monotonic()) < 7


def test_descriptor_of_the_monitor_signals_each_event_after_a_look() -> None:
    """The receiving thread polls it. A handshake that it does not signal would not be followed by hello requests."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sub, port = context.socket(zmq.XSUB), free_port()
    sub.setsockopt(zmq.RECONNECT_IVL, 10)
    monitor = Monitor(sub)
    signal = select.poll()
    signal.register(monitor.fileno(), select.POLLIN)
    try:
        assert list(monitor.events()) == []
        sub.connect(f"tcp://127.0.0.1:{port}")
        for _ in range(5):
            seen: set[int] = set()
            xpub = context.socket(zmq.XPUB)
            eventually(partial(bound, xpub, port), "bound")
            for last in (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED):
                while last not in seen:
                    assert signal.poll(1000 * PATIENCE), f"no signal of {last!r}"
                    seen.update(event for event, _, _ in monitor.events())
                xpub.close(0)
    finally:
        monitor.close()
        context.destroy(0)


def bound(socket: "zmq.Socket[bytes]", port: int) -> bool:
    """Whether the port, which its last owner may not have closed yet, could be bound."""
    try:
        socket.bind(f"tcp://127.0.0.1:{port}")
    except zmq.ZMQError:
        return False
    return True
