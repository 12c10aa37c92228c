"""The polling driver beyond the conformance suite: reads and their times, outages, trimming, other histories."""

import logging
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.api import DriverSettings
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, EMPTY, ZERO, Change, Head, Heads, Link, Point
from pubsub_lib.errors import ConfigError, StoreUnavailable, TransportError
from pubsub_lib.store import Store
from pubsub_sql import PollingDriver
from pubsub_sql.follower import SERVICE, ChangelogFollower, Pace
from pubsub_sql.subscriber import PollingSubscriber


class Changelog:
    """A store's changelog in memory, which answers as the real one does (see the tests on real databases below)."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.trimmed = 0
        self.calls: list[str] = []
        self.heads: dict[str, Point] = {}
        self.store_id = bytes(16)
        self.during_heads: Callable[[], object] = lambda: None

    @property
    def point(self) -> Point:
        return self.links[-1].point if self.links else ZERO

    def commit(self, *topics: str, value: bytes = b"1", nonce: int = 0) -> list[Link]:
        before, position = self.point, self.point.position
        point = Point(position + len(topics), nonce or 1000 + position)
        made = [
            Link(
                topic,
                self.heads.get(topic, ZERO),
                point,
                [Change("table", f"{topic}/key", "set", position + number, value)],
                1,
                0,
                before,
                len(topics),
            )
            for number, topic in enumerate(topics, 1)
        ]
        self.links += made
        self.heads |= dict.fromkeys(topics, point)
        return made

    def read_heads(self, topics: Collection[str], /) -> Heads:
        self.calls.append("heads")
        found = {topic: self.heads.get(topic) for topic in topics}
        heads = {topic: Head(at, 1, 0) if at else EMPTY for topic, at in found.items()}
        answer = Heads(self.point, heads, self.store_id)
        self.during_heads()
        return answer

    def read_links(self, after: Point | None, maximum: int, /) -> tuple[list[Link], Point, bool]:
        self.calls.append("links")
        begin = after or ZERO
        left = [link for link in self.links[self.trimmed :] if link.point.position > begin.position]
        complete = (left[0].tx_prev if left else self.point) == begin
        whole: list[Link] = []
        for _, transaction in groupby(left, key=lambda link: link.point):
            links = list(transaction)
            if whole and len(whole) + len(links) > maximum:
                break
            whole += links
        return whole, self.point, complete

    def close(self) -> None:
        self.calls.append("close")


class Reading:
    """A follower of a changelog with a clock that the test sets."""

    def __init__(self, *topics: str, limits: Limits = Limits(), batch: int = 3) -> None:  # noqa: B008 - frozen
        self.log = Changelog()
        self.topics = set(topics)
        self.follower = ChangelogFollower(limits, batch)
        self.now = 0.0

    def poll(self, *asks: HelloRequest) -> list[Envelope]:
        self.log.calls.clear()
        return list(self.follower.poll(self.log, lambda: self.topics, asks, lambda: self.now))

    def points(self) -> list[tuple[str, int]]:
        return [(each.topic, m.link.point.position) for each in self.poll() for m in each.messages]


def test_rule_15_every_envelope_has_the_id_in_the_last_reading() -> None:
    reading = Reading("a")
    reading.poll()
    for store_id in (bytes(16), b"1" * 16):
        reading.log.store_id = store_id
        reading.log.commit("a")
        assert [each.store_id for each in reading.poll(HelloRequest("n", ("a",)))] == [store_id] * 2
    reading.log.trimmed = len(reading.log.links) + 1
    reading.log.commit("a")
    reading.log.commit("a")
    reading.log.store_id = bytes(16)
    assert [each.store_id for each in reading.poll()] == [bytes(16)], "the hello after a jump"


def test_the_first_poll_starts_at_the_head() -> None:
    reading = Reading("a")
    reading.log.commit("a")
    assert reading.poll() == []
    reading.log.commit("a")
    assert reading.points() == [("a", 2)]


def test_poll_of_an_idle_store_reads_only_the_heads() -> None:
    reading = Reading("a")
    for _ in range(3):
        reading.poll()
        assert reading.log.calls == ["heads"]


def test_poll_that_expects_links_does_not_read_the_heads_before() -> None:
    reading = Reading("a")
    reading.follower.expects_links = True
    reading.poll()
    assert reading.log.calls == ["heads"], "the first poll"
    for _ in range(7):
        reading.log.commit("a")
    assert reading.points() == [("a", each) for each in range(1, 8)]
    assert reading.log.calls == ["links"] * 3
    assert reading.points() == []
    assert reading.log.calls == ["links"]
    reading.log.commit("a")
    links, answer = reading.poll(HelloRequest("n", ("a",)))
    assert (links.topic, links.sequence, answer.hello is not None) == ("a", 8, True)
    assert reading.log.calls == ["heads", "links"]


def test_poll_that_expects_links_takes_the_id_of_its_reading() -> None:
    reading = Reading("a")
    reading.poll()
    reading.follower.expects_links = True
    reading.log.store_id = b"1" * 16
    reading.log.commit("a")
    (envelope,) = reading.poll()
    assert envelope.store_id == b"1" * 16


def test_poll_that_expects_links_finds_another_history() -> None:
    reading = Reading("a")
    reading.log.commit("a")
    reading.poll()
    reading.follower.expects_links = True
    reading.log.links.clear()
    reading.log.heads.clear()
    reading.log.commit("a", nonce=5)
    (envelope,) = reading.poll()
    assert envelope.hello is not None
    assert envelope.hello.heads["a"].point == reading.log.point
    assert reading.follower.counts["jumps"] == 1


def test_poll_reads_only_new_links_of_a_long_changelog() -> None:
    reading = Reading("a")
    for _ in range(1000):
        reading.log.commit("a")
    reading.poll()
    reading.log.commit("a")
    reading.poll()
    assert reading.log.calls == ["heads", "links"]


def test_only_registered_topics_are_delivered() -> None:
    reading = Reading("a")
    reading.poll()
    reading.log.commit("a", "b", "ab")
    assert reading.points() == [("a", 3)]
    reading.topics.add(ALL)
    reading.log.commit("b")
    assert reading.points() == [("b", 4)]


def test_topic_registered_during_a_reading_misses_no_later_link() -> None:
    reading = Reading("a")
    reading.poll()
    reading.log.commit("a")

    def meanwhile() -> None:
        reading.log.during_heads = lambda: None
        reading.topics.add("b")
        reading.log.commit("b")

    reading.log.during_heads = meanwhile
    assert reading.points() + reading.points() == [("a", 1), ("b", 2)]


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True), max_size=20), st.integers(1, 5))
def test_every_link_is_delivered_once_in_order_and_numbered_per_topic(commits: list[list[str]], batch: int) -> None:
    reading = Reading("a", "b", batch=batch)
    reading.poll()
    expected = [link for topics in commits for link in reading.log.commit(*topics) if link.topic in reading.topics]
    got = [envelope for _ in range(len(commits) + 1) for envelope in reading.poll()]
    assert [message.link for envelope in got for message in envelope.messages] == expected
    following = {"a": 1, "b": 1}
    for envelope in got:
        assert (envelope.service, envelope.uuid) == (SERVICE, reading.follower.uuid)
        assert envelope.sequence == following[envelope.topic]
        following[envelope.topic] += len(envelope.messages)
    assert reading.poll() == []


def test_a_large_link_is_a_run_of_messages() -> None:
    reading = Reading("a", limits=Limits(max_frame_bytes=2000))
    reading.poll()
    changes = [Change("t", f"k{n}", "set", n, b"x" * 500) for n in range(1, 10)]
    reading.log.links.append(Link("a", ZERO, Point(9, 9), changes, 9, 0, ZERO, 1))
    got = reading.poll()
    assert {message.parts for envelope in got for message in envelope.messages} == {len(got)}
    assert len(got) > 2


def test_change_larger_than_a_frame_is_counted_and_others_are_delivered() -> None:
    reading = Reading("a", limits=Limits(max_frame_bytes=2000))
    reading.poll()
    reading.log.commit("a", value=b"x" * 5000)
    reading.log.commit("a")
    assert reading.points() == [("a", 2)]
    assert reading.follower.counts["oversized"] == 1


def test_trimmed_changelog_is_skipped_and_reported_by_a_hello() -> None:
    reading = Reading("a", "b")
    reading.poll()
    reading.log.commit("a")
    reading.log.commit("a")
    reading.log.trimmed = 1
    (envelope,) = reading.poll()
    assert envelope.hello is not None
    assert envelope.hello.heads == {"a": Head(reading.log.point, 1, 0), "b": EMPTY}
    assert (envelope.hello.store, envelope.hello.nonce) == (reading.log.point, "")
    assert reading.follower.counts["jumps"] == 1
    reading.log.commit("b")
    assert reading.points() == [("b", 3)]


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("overtaken", [0, 1, 2, 3])
def test_other_history_is_detected_at_any_position(kept: int, overtaken: int) -> None:
    reading = Reading("a")
    reading.poll()
    for _ in range(3):
        reading.log.commit("a")
    reading.poll()
    del reading.log.links[kept:]  # restored from a backup
    reading.log.heads = {"a": reading.log.point}
    for _ in range(overtaken):
        reading.log.commit("a", nonce=77 + len(reading.log.links))
    got = reading.poll()
    assert reading.follower.counts["jumps"] == 1
    assert [envelope.hello is not None for envelope in got] == [True]
    reading.log.commit("a")
    assert len(reading.points()) == 1


def test_hello_reply_has_the_heads_and_the_age_of_their_reading() -> None:
    reading = Reading("a")
    reading.poll()
    reading.log.commit("a")

    def slow() -> None:
        reading.now += 0.75

    reading.log.during_heads = slow
    data, answer = reading.poll(HelloRequest("nonce", ("a", "unknown", ALL)))
    assert data.messages
    hello = answer.hello
    assert hello is not None
    assert (answer.topic, hello.nonce, hello.store, hello.age) == (ALL, "nonce", Point(1, 1000), 0.75)
    assert hello.heads == {"a": Head(Point(1, 1000), 1, 0), "unknown": EMPTY}
    assert hello.sequences == {"a": 1, "unknown": 0}


def test_hello_reply_includes_only_links_delivered_before_it() -> None:
    reading = Reading("a")
    reading.poll()
    reading.log.during_heads = lambda: reading.log.commit("a")
    reading.log.commit("a")
    delivered, hellos = ZERO, 0
    for envelope in reading.poll(HelloRequest("nonce", ("a", ALL))):
        for message in envelope.messages:
            delivered = message.link.point
        if envelope.hello is not None:
            assert envelope.hello.store is not None
            assert ZERO.position < envelope.hello.store.position <= delivered.position
            hellos += 1
    assert hellos == 1


def test_pace_polls_faster_with_changes_and_slower_without() -> None:
    pace = Pace(fastest=0.1, slowest=1.6, max_backoff=10)
    assert [pace.changed() for _ in range(6)] == [0.8, 0.4, 0.2, 0.1, 0.1, 0.1]
    slower = [pace.idle() for _ in range(20)]
    assert slower == sorted(slower)
    assert slower[-1] == 1.6
    assert [pace.failed() for _ in range(9)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10]
    pace.changed()
    assert pace.failed() == 0.2


# -- the thread ------------------------------------------------------------------------------------------------------


class Flaky(Changelog):
    """A changelog whose database fails at times."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.failures = threading.Semaphore(0)

    def read_heads(self, topics: Collection[str], /) -> Heads:
        if self.error is not None:
            self.failures.release()
            raise self.error
        return super().read_heads(topics)


class Running:
    """A polling subscriber of a fake changelog. With a large ``slowest``, only hello requests and topics wake it."""

    def __init__(self, log: Flaky, slowest: float) -> None:
        self.log = log
        self.envelopes: list[Envelope] = []
        self.changed = threading.Condition()
        self.subscriber = PollingSubscriber(
            lambda: log, Limits(), fastest=0.001, slowest=slowest, batch=100, max_backoff=0.01
        )
        self.subscriber.initialize(self.take, lambda: None)
        self.subscriber.daemonize()

    def take(self, envelope: Envelope) -> None:
        with self.changed:
            self.envelopes.append(envelope)
            self.changed.notify_all()

    def answered(self, nonce: str) -> bool:
        self.subscriber.request_hello(nonce, [ALL])
        with self.changed:
            return self.changed.wait_for(
                lambda: any(each.hello and each.hello.nonce == nonce for each in self.envelopes), 10
            )

    def receives(self, link: Link) -> bool:
        def has() -> bool:
            return any(message.link == link for each in self.envelopes for message in each.messages)

        with self.changed:
            return self.changed.wait_for(has, 10)


@pytest.fixture
def lazy() -> Iterator[Running]:
    """A subscriber that polls only when it is woken."""
    running = Running(Flaky(), slowest=3600.0)
    yield running
    running.subscriber.close()


@pytest.fixture
def quick() -> Iterator[Running]:
    running = Running(Flaky(), slowest=0.002)
    yield running
    running.subscriber.close()


def test_hello_request_polls_at_once(lazy: Running) -> None:
    assert lazy.answered("one")
    lazy.subscriber.register_topic("a")
    (link,) = lazy.log.commit("a")
    assert lazy.answered("two")
    assert lazy.receives(link)


def test_all_hello_requests_during_one_reading_are_answered(lazy: Running) -> None:
    """A replica of 40,000 topics sends 200 hello requests at a time."""
    assert lazy.answered("one")
    gate, inside = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        gate.wait(10)

    lazy.log.during_heads = hold
    lazy.subscriber.request_hello("slow", [ALL])
    assert inside.wait(10)
    nonces = [f"nonce{number}" for number in range(200)]
    for nonce in nonces:
        lazy.subscriber.request_hello(nonce, [ALL])
    gate.set()
    assert lazy.answered("last")
    answered = [each.hello.nonce for each in lazy.envelopes if each.hello is not None]
    assert [nonce for nonce in answered if nonce.startswith("nonce")] == nonces


def test_registering_a_topic_polls_at_once(lazy: Running) -> None:
    lazy.subscriber.register_topic("a")
    assert lazy.answered("one")
    (link,) = lazy.log.commit("a")
    lazy.subscriber.register_topic("b")
    assert lazy.receives(link)


def test_outage_is_logged_once_and_counted_and_polling_continues(
    quick: Running, caplog: pytest.LogCaptureFixture
) -> None:
    quick.subscriber.register_topic("a")
    assert quick.answered("one")
    with caplog.at_level(logging.INFO, "pubsub_sql"):
        for error in (StoreUnavailable("the database is down"), RuntimeError("an internal error")):
            caplog.clear()
            quick.log.failures = threading.Semaphore(0)  # without what the last round did not acquire
            quick.log.error = error
            for _ in range(5):
                assert quick.log.failures.acquire(timeout=10)
            (link,) = quick.log.commit("a")
            quick.log.error = None
            assert quick.receives(link)
            assert quick.answered(str(error))
            levels = [record.levelno for record in caplog.records]
            assert levels == [logging.WARNING, logging.INFO]
    assert quick.subscriber.counters()["store_errors"] >= 10


def test_hello_request_lost_in_an_outage_does_not_disturb_later_ones(quick: Running) -> None:
    assert quick.answered("one")
    quick.log.error = StoreUnavailable("down")
    quick.subscriber.request_hello("lost", [ALL])
    for _ in range(5):
        assert quick.log.failures.acquire(timeout=10)
    quick.log.error = None
    assert quick.answered("two")


def test_the_store_is_closed_by_its_thread(quick: Running) -> None:
    assert quick.answered("one")
    quick.subscriber.close()
    assert quick.log.calls[-1] == "close"
    with pytest.raises(TransportError, match="closed"):
        quick.subscriber.register_topic("a")


def test_opening_the_store_is_retried() -> None:
    log, tries = Flaky(), iter([StoreUnavailable("down"), StoreUnavailable("down"), None])

    def open_store() -> Flaky:
        error = next(tries)
        if error is not None:
            raise error
        return log

    running = Running.__new__(Running)
    running.log, running.envelopes, running.changed = log, [], threading.Condition()
    running.subscriber = PollingSubscriber(
        open_store, Limits(), fastest=0.001, slowest=0.002, batch=1, max_backoff=0.002
    )
    running.subscriber.initialize(running.take, lambda: None)
    running.subscriber.daemonize()
    try:
        with running.changed:
            for _ in range(1000):
                if "heads" in log.calls:
                    break
                running.changed.wait(0.01)
        assert running.answered("one")
        assert running.subscriber.counters()["store_errors"] == 2
    finally:
        running.subscriber.close()


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fastest": 0}, "fastest"),
        ({"batch": 0}, "batch"),
        ({"slowest": float("inf")}, "slowest"),
        ({"fastest": 2.0}, "below fastest"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_invalid_options_are_config_errors(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        PollingDriver.subscriber(DriverSettings(store_url="sqlite:///net.db", options=options))


@pytest.mark.parametrize("url", ["", "no url", "sqlite://", "oracle://host/name"])
def test_invalid_url_is_a_config_error_at_once(url: str) -> None:
    with pytest.raises(ConfigError):
        PollingDriver.subscriber(DriverSettings(store_url=url))


# -- real databases --------------------------------------------------------------------------------------------------


class Followed:
    """A polling subscriber on a real database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.changed = threading.Condition()
        self.envelopes: list[Envelope] = []
        options = {"fastest": 0.005, "slowest": 0.05, "max_backoff": 0.2}
        self.subscriber = PollingDriver.subscriber(DriverSettings(store_url=url, options=options))
        self.subscriber.initialize(self.take, lambda: None)
        self.subscriber.register_topic("a")
        self.subscriber.daemonize()

    def take(self, envelope: Envelope) -> None:
        with self.changed:
            self.envelopes.append(envelope)
            self.changed.notify_all()

    def waits(self, condition: Callable[[], object], seconds: float = 30) -> bool:
        with self.changed:
            return bool(self.changed.wait_for(condition, seconds))

    def hello(self, nonce: str) -> bool:
        """Request until answered: a hello request during an outage stays unanswered."""

        def answered() -> bool:
            return any(each.hello is not None and each.hello.nonce == nonce for each in self.envelopes)

        for _ in range(100):
            self.subscriber.request_hello(nonce, ["a", ALL])
            if self.waits(answered, 0.3):
                return True
        return False

    def values(self) -> list[bytes | None]:
        return [c.value for each in self.envelopes for m in each.messages for c in m.link.changes]


def put(url: str, *values: int, topics: tuple[str, ...] = ("a",)) -> None:
    """Write these values one after another, each to each topic in its own transaction."""
    with Store(url) as store:
        for value in values:
            for topic in topics:
                with store.transaction() as tx:
                    tx.set("table", f"{topic}/key", value, topic=topic)


def test_changes_are_followed_on_every_database(database_url: str) -> None:
    put(database_url, 0)
    followed = Followed(database_url)
    try:
        assert followed.hello("start")
        put(database_url, *range(1, 20), topics=("a", "b"))
        assert followed.waits(lambda: len(followed.values()) == 19)
        assert followed.values() == [b"%d" % number for number in range(1, 20)]
        assert followed.hello("end")
        last = followed.envelopes[-1].hello
        assert last is not None
        assert last.store is not None
        assert last.heads["a"].point.position == last.store.position - 1
    finally:
        followed.subscriber.close()


def test_restored_backup_is_detected(tmp_path: Path) -> None:
    path, backup = tmp_path / "net.db", tmp_path / "backup.db"
    url = f"sqlite:///{path}"
    put(url, 1)
    shutil.copy(path, backup)  # complete: the last close left no companion files
    put(url, 2)
    follower = ChangelogFollower(Limits(), 10)
    with Store(url, create=False) as store:
        assert list(follower.poll(store, lambda: {"a"}, (), lambda: 0.0)) == []
        for suffix in ("-wal", "-shm"):
            path.with_name(f"net.db{suffix}").unlink(missing_ok=True)
        backup.replace(path)
        put(url, 3)
        (envelope,) = follower.poll(store, lambda: {"a"}, (), lambda: 0.0)
        assert envelope.hello is not None
        assert follower.counts["jumps"] == 1
        assert follower.at == store.read_heads([]).store


def test_trimmed_links_are_detected_on_a_real_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/net.db"
    follower = ChangelogFollower(Limits(), 10)
    with Store(url) as store:
        assert list(follower.poll(store, lambda: {"a"}, (), lambda: 0.0)) == []
        put(url, *range(5))
        store.trim(keep_links=2)
        (envelope,) = follower.poll(store, lambda: {"a"}, (), lambda: 0.0)
        assert envelope.hello is not None
        assert envelope.hello.heads["a"] == store.read_heads(["a"]).topics["a"]


@pytest.mark.postgresql
def test_polling_survives_a_killed_server(private_postgres: Any) -> None:
    url = private_postgres.create_database()
    put(url, 0)
    followed = Followed(url)
    try:
        assert followed.hello("before")
        private_postgres.kill()
        with followed.changed:
            for _ in range(3000):
                if followed.subscriber.counters()["store_errors"]:
                    break
                followed.changed.wait(0.01)
        assert followed.subscriber.counters()["store_errors"]
        private_postgres.restart()
        put(url, 1)
        assert followed.hello("after")
        assert followed.waits(lambda: followed.values() == [b"1"])
    finally:
        followed.subscriber.close()
