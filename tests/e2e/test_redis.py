"""Whole replicas over Redis: the server killed, a slow replica cut off, refusals; all end equal to the store."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from _children import Children, Line
from _processes import free_port, poll
from _redis_server import PrivateRedis

from pubsub_lib import Publisher, Replica, Settings, Store, Timing, loader
from pubsub_lib.api import DriverSettings, Subscriber
from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.model import ALL, ZERO, Change, Link, Point
from pubsub_lib.errors import DriverError, TransportError
from pubsub_redis.driver import RedisDriver
from tests.conftest import IN_CI
from tests.e2e.service_host import LONG

TOPICS = ("a", "b", "c")
TIMING = Timing(max_idle_time=2.0, message_delay_window=0.1, sync_jitter=0.01, sync_interval=0.01)
FAST = {"reconnect_interval": 0.02, "max_reconnect_interval": 0.2}
Held = dict[tuple[str, str], tuple[int, bytes]]


def settings(store_url: str, server: PrivateRedis, **options: Any) -> Settings:
    return Settings(
        store_url=store_url,
        driver="redis_pubsub_driver",
        service_name="writer",
        timing=TIMING,
        discovery_interval=0.0,
        driver_options={"url": server.url, **FAST, **options},
    )


def held(replica: Replica) -> Held:
    return {(each.table, each.key): (each.version, each.json) for each in replica.records()}


def stored(store: Store) -> Held:
    return {(each.table, each.key): (each.version, each.value) for each in store.objects() if each.topic in TOPICS}


def put(store: Store, number: int, size: int = 0) -> None:
    with store.transaction() as tx:
        tx.set("t", f"k{number % 50}", f"{number}{'x' * size}", topic=TOPICS[number % 3])
        if number % 7 == 0:
            tx.delete("t", f"k{(number + 25) % 50}", missing_ok=True)


def test_replicas_converge_when_the_server_is_killed_while_messages_flow(
    sqlite_url: str, private_redis: PrivateRedis
) -> None:
    config = settings(sqlite_url, private_redis)
    ceased = threading.Event()

    def write() -> None:
        number = 0
        while not ceased.is_set():
            number += 1
            put(store, number)
            time.sleep(0.002)

    with ExitStack() as ending:
        store = ending.enter_context(Store(sqlite_url))
        publisher = ending.enter_context(Publisher(config, store))
        some = ending.enter_context(Replica(config, TOPICS))
        every = ending.enter_context(Replica(config))
        for replica in (some, every):
            replica.wait_synced(LONG)
        writer = threading.Thread(target=write)
        writer.start()
        ending.callback(writer.join)
        ending.callback(ceased.set)
        for times in (1, 2, 3):
            received = some.status().driver["received"]
            assert poll(lambda received=received: some.status().driver["received"] > received + 5, LONG)  # type: ignore[misc]
            halves = (publisher.counters, lambda: some.status().driver, lambda: every.status().driver)
            for half in halves:
                assert poll(lambda half=half, times=times: half()["connected"] >= times, LONG)  # type: ignore[misc]
            private_redis.kill()
            for half in halves:
                assert poll(lambda half=half, times=times: half()["disconnected"] >= times, LONG)  # type: ignore[misc]
            private_redis.restart()
        received = some.status().driver["received"]
        assert poll(lambda: some.status().driver["received"] > received + 5, LONG), "not connected again"
        ceased.set()
        writer.join()
        head = store.read_heads(()).store.position
        for replica in (some, every):
            replica.wait_for(head, LONG)
            assert held(replica) == stored(store)
            status = replica.status()
            assert (status.faults.guarded, status.faults.mismatches) == (0, 0)
            assert poll(lambda replica=replica: not replica.status().polling, LONG)  # type: ignore[misc]


def follow(line: Line, config: Settings) -> None:
    """A replica in a process of its own."""
    with Replica(config, TOPICS) as replica:
        replica.wait_synced(LONG)
        line.send(os.getpid())
        replica.wait_for(line.wait(), LONG)
        assert poll(lambda: replica.status().driver["disconnected"] > 0, LONG), "it was not cut off"
        assert poll(lambda: replica.status().driver["connected"] > 1, LONG), "not connected again"
        line.send((held(replica), replica.status().faults))
        replica.wait_for(line.wait(), LONG)
        line.send((held(replica), sum(replica.status().counters.deltas.values())))
        line.wait()


def test_a_slow_replica_that_redis_cuts_off_converges(sqlite_url: str) -> None:
    with ExitStack() as ending:
        server = ending.enter_context(shared({"client-output-buffer-limit": "pubsub 256kb 128kb 1"}))
        client = ending.enter_context(server.client())
        config = settings(sqlite_url, server)
        with Store(sqlite_url) as store:
            put(store, 0)
        children = ending.enter_context(Children())
        child = children.fork(follow, config)
        pid = child.receive()
        store = ending.enter_context(Store(sqlite_url))
        publisher = ending.enter_context(Publisher(config, store))

        def connections() -> int:
            return len(client.client_list(_type="pubsub"))

        assert poll(lambda: connections() == 2, LONG)
        os.kill(pid, signal.SIGSTOP)
        try:
            number = 0
            while connections() == 2:
                number += 1
                put(store, number, size=50_000)
                assert number < 2000, "Redis did not end the connection of the slow replica"
        finally:
            os.kill(pid, signal.SIGCONT)
        child.send(store.read_heads(()).store.position)
        contents, faults = child.receive()
        assert contents == stored(store)
        assert (faults.guarded, faults.mismatches) == (0, 0)
        put(store, number + 1)
        child.send(store.read_heads(()).store.position)
        contents, deltas = child.receive()
        assert contents == stored(store)
        assert deltas > 0
        assert publisher.counters()["disconnected"] == 0
        child.send()


# -- the driver alone ------------------------------------------------------------------------------------------------


@contextmanager
def shared(options: Mapping[str, str]) -> Iterator[PrivateRedis]:
    """A server with these settings; skips as the fixtures do."""
    server = PrivateRedis(options)
    try:
        server.start()
    except Exception as error:
        if IN_CI or "cannot be downloaded" not in str(error):
            raise
        pytest.skip(str(error))
    with server:
        yield server


def envelope(number: int, topic: str = "a") -> Envelope:
    link = Link(topic, ZERO, Point(number, number), [Change("t", "k", "set", number, b"1")], 1, 1, ZERO, 1)
    return Envelope("writer", "0" * 32, topic, number, [Message(link)])


def sequences(each: Envelope) -> range:
    """The numbers of the messages in an envelope, which queued messages of a topic share."""
    return range(each.sequence, each.sequence + len(each.messages))


def listening(
    options: Mapping[str, Any], on_envelope: Callable[[Envelope], None] = lambda envelope: None
) -> Subscriber:
    connected = threading.Event()
    made = RedisDriver.subscriber(DriverSettings(options=options))
    made.initialize(on_envelope, connected.set)
    made.register_topic("a")
    made.daemonize()
    assert connected.wait(LONG)
    return made


def test_a_server_that_answers_no_more_is_noticed_and_no_sender_blocks(private_redis: PrivateRedis) -> None:
    """Stopped, it takes data until its buffers are full, and sends no FIN: as behind a dead cable."""
    options = {"url": private_redis.url, "ping_interval": 0.2, "timeout": 0.5, "send_queue": 50, **FAST}
    publisher = RedisDriver.publisher(DriverSettings(options=options))
    publisher.initialize(lambda ask: None, lambda: None)
    subscriber = listening(options)
    try:
        os.kill(private_redis.pid, signal.SIGSTOP)
        slowest, until, number = 0.0, time.monotonic() + LONG, 0
        while not (publisher.counters()["disconnected"] and subscriber.counters()["disconnected"]):
            number += 1
            began = time.monotonic()
            try:
                publisher.send_event(envelope(number))
            except TransportError:
                time.sleep(0.01)
            slowest = max(slowest, time.monotonic() - began)
            assert time.monotonic() < until, "the dead connection was not noticed"
        os.kill(private_redis.pid, signal.SIGCONT)
        assert slowest < 1.5
        assert poll(lambda: min(publisher.counters()["connected"], subscriber.counters()["connected"]) > 1, LONG)
    finally:
        os.kill(private_redis.pid, signal.SIGCONT)
        subscriber.close()
        publisher.close()


def test_a_publisher_that_closes_sends_everything_that_it_accepted(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server that does not run for a moment is no reason to leave it without messages.
    monkeypatch.setattr("pubsub_redis.connection._GOODBYE", LONG)
    monkeypatch.setattr("pubsub_redis.publisher._STOP", LONG)
    options = {"url": redis_server.url, "prefix": "goodbye:"}
    received: list[int] = []
    subscriber = listening(options, lambda each: received.extend(sequences(each)))
    for _ in range(5):
        received.clear()
        publisher = RedisDriver.publisher(DriverSettings(options=options))
        publisher.initialize(lambda ask: None, lambda: None)
        for number in range(1, 1001):
            publisher.send_event(envelope(number))
        publisher.close()
        assert poll(lambda: len(received) == 1000, LONG)
        assert received == list(range(1, 1001))
        counters = publisher.counters()
        assert (counters["sent"], counters["lost"], counters["unanswered"]) == (1000, 0, 0)
        assert counters["messages"] < 1000, "no envelopes shared a message"
    subscriber.close()


def test_an_envelope_on_the_channel_of_another_topic_is_foreign(redis_server: PrivateRedis) -> None:
    options = {"url": redis_server.url, "prefix": "forged:"}
    received: list[Envelope] = []
    subscriber = listening(options, received.append)
    publisher = RedisDriver.publisher(DriverSettings(options=options))
    publisher.initialize(lambda ask: None, lambda: None)
    publisher._channels.of_frame = lambda head, inboxes: b"forged:Da"  # type: ignore[attr-defined]
    publisher.send_event(envelope(1, "b"))
    assert poll(lambda: subscriber.counters()["foreign"] == 1, LONG)
    assert received == []
    publisher.close()
    subscriber.close()


# -- refusals --------------------------------------------------------------------------------------------------------


def refused(**options: Any) -> str:
    """The error of a publisher that cannot connect."""
    publisher = RedisDriver.publisher(DriverSettings(options={"connect_timeout": 4.0, **FAST, **options}))
    began = time.monotonic()
    with pytest.raises(TransportError) as caught:
        publisher.initialize(lambda ask: None, lambda: None)
    assert time.monotonic() - began < 10
    publisher.close()
    return str(caught.value)


def test_an_unreachable_server_is_named_with_what_to_do() -> None:
    url = f"redis://127.0.0.1:{free_port()}"
    assert refused(url=url).startswith(f"the Redis server {url} is unavailable (Error 111 connecting to ")
    assert refused(url=url).endswith("; start it, or correct url in [pubsub_redis]")


def test_passwords_and_rights_are_checked_and_named() -> None:
    with shared({"requirepass": "right"}) as server:
        assert "refused the user or the password" in refused(url=server.url)
        wrong = refused(url=server.url, password="wrong")
        assert "WRONGPASS" in wrong or "invalid username-password" in wrong
        assert wrong.endswith("correct user and password in [pubsub_redis]")
        listening({"url": server.url, "password": "right"}).close()
        with server.client() as client:
            rules = "on >pw -@all +hello +client +ping +publish +subscribe +psubscribe +unsubscribe +punsubscribe"
            channels = "resetchannels &pubsub_lib:D &pubsub_lib:Da &pubsub_lib:H* &pubsub_lib:ask"
            client.execute_command("ACL", "SETUSER", "replica", *rules.split(), *channels.split())
            client.execute_command("ACL", "SETUSER", "stranger", "on", ">pw", "+@all", "resetchannels")
        user = {"url": server.url, "user": "replica", "password": "pw"}
        subscriber = listening(user)
        subscriber.request_hello("nonce", ["a"])
        subscriber.register_topic("b")
        assert poll(lambda: subscriber.counters()["refused"] == 1, LONG)
        subscriber.close()
        assert "refused a command" in refused(url=server.url, user="stranger", password="pw")


def test_a_topic_that_the_server_refuses_leaves_the_others_at_each_connection(private_redis: PrivateRedis) -> None:
    options = {"url": private_redis.url, "user": "replica", "password": "pw", **FAST}
    received: list[int] = []
    with private_redis.client() as client:
        channels = "resetchannels &pubsub_lib:D &pubsub_lib:Da &pubsub_lib:Dc &pubsub_lib:H* &pubsub_lib:ask"
        client.execute_command("ACL", "SETUSER", "replica", "on", ">pw", "+@all", *channels.split())
        connected = threading.Semaphore(0)
        subscriber = RedisDriver.subscriber(DriverSettings(options=options))
        subscriber.initialize(lambda each: received.extend(sequences(each)), connected.release)
        for topic in (*TOPICS, ALL):
            subscriber.register_topic(topic)
        subscriber.daemonize()
        publisher = RedisDriver.publisher(DriverSettings(options={"url": private_redis.url, **FAST}))
        publisher.initialize(lambda ask: None, lambda: None)
        for number in (1, 2):
            assert connected.acquire(timeout=LONG)
            assert subscriber.counters()["refused"] == 2 * number, "topic b and the pattern of all topics"
            for topic in TOPICS:
                publisher.send_event(envelope(number, topic))
            assert poll(lambda number=number: received.count(number) == 2, LONG)  # type: ignore[misc]
            client.execute_command("CLIENT", "KILL", "USER", "replica")
        publisher.close()
        subscriber.close()


def test_tls_needs_a_certificate_that_the_authority_signed(tmp_path: Path) -> None:
    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl(*new, "-x509", "-subj", "/CN=test", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(*new, "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr")
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    sign = ("x509", "-req", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl(*sign, "-in", "server.csr", "-out", "server.pem")
    files = {f"tls-{name}": str(tmp_path / path) for name, path in (
        ("cert-file", "server.pem"), ("key-file", "server.key"), ("ca-cert-file", "ca.pem"))}  # fmt: skip
    port = free_port()
    with shared({"tls-port": str(port), "tls-auth-clients": "yes", **files}):
        url, ca = f"rediss://127.0.0.1:{port}", str(tmp_path / "ca.pem")
        assert "certificate verify failed" in refused(url=url)
        assert "is unavailable" in refused(url=url, ca_file=ca), "the server wants a certificate, too"
        own = {"cert_file": str(tmp_path / "server.pem"), "key_file": str(tmp_path / "server.key")}
        received: list[int] = []
        subscriber = listening({"url": url, "ca_file": ca, **own}, lambda each: received.extend(sequences(each)))
        publisher = RedisDriver.publisher(DriverSettings(options={"url": url, "ca_file": ca, **own}))
        publisher.initialize(lambda ask: None, lambda: None)
        for number in range(1, 200):
            publisher.send_event(envelope(number))
        assert poll(lambda: received == [*range(1, 200)], LONG)
        publisher.close()
        subscriber.close()


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] in ("redis", "pubsub_redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(DriverError, match=r"lacks a dependency .*; run: pip install pubsub-lib\[redis\]"):
        loader.load("redis_pubsub_driver")
