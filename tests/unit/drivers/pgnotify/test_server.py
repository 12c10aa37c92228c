"""The driver on a real PostgreSQL: it is woken by each commit, falls back to polling, and is woken again.

Polls have an interval of an hour while the driver listens, so that only a notification can bring a change.
"""

import logging
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from threading import Event
from typing import Any

import psycopg
import pytest
from _patience import longest
from _servers import PrivateServer
from sqlalchemy import make_url

from pubsub_lib import Publisher, Replica, Settings, Store, Timing
from pubsub_lib.api import DriverSettings
from pubsub_lib.core.model import Point
from pubsub_lib.store import administration
from pubsub_lib.testing.checks import eventually
from pubsub_lib.testing.rig import Collector, Connections
from pubsub_pgnotify import announcement
from pubsub_pgnotify.driver import NAME, PgNotifyDriver
from pubsub_sql.follower import SERVICE
from tests.unit.store.test_executor import idle_driver
from tests.unit.store.test_postgres_trip import data_segments

pytestmark = pytest.mark.postgresql

LONG = longest(120.0)
HOUR = 3600.0
OPTIONS = {"listening": HOUR, "fastest": 0.05, "slowest": 0.1, "max_backoff": 0.2}
ONLY_NOTIFIED = {"listening": HOUR, "fastest": HOUR, "slowest": HOUR, "max_backoff": HOUR}
_numbers = count()


def sql(url: str, *statements: str) -> list[Any]:
    """The first column of the last statement's rows."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as session:
        for each in statements:
            cursor = session.execute(each)
        return [row[0] for row in cursor.fetchall()] if cursor.description else []


class Listening:
    """A running subscriber of one topic, and a writer with a publisher of its own."""

    def __init__(self, url: str, stack: ExitStack, options: dict[str, Any]) -> None:
        self.received, self.connected = Collector(LONG), Connections()
        settings = Settings(store_url=url, driver=NAME, service_name="writer", driver_options={"max_backoff": 0.2})
        self.store = stack.enter_context(Store(settings))
        self.publisher = stack.enter_context(Publisher(settings, self.store))
        self.subscriber = PgNotifyDriver.subscriber(DriverSettings(store_url=url, options=options))
        stack.enter_context(closing(self.subscriber))
        self.subscriber.initialize(self.received, self.connected)
        self.subscriber.register_topic("t")
        self.subscriber.daemonize()
        self.connected.until_more_than(0, LONG, "subscriber")

    def commit(self) -> Point:
        with self.store.transaction() as tx:
            tx.set("table", "key", next(_numbers), topic="t")
        assert tx.commit is not None
        return tx.commit.point

    def until(self, point: Point) -> None:
        self.received.until(lambda: point in self.received.points("t"), f"the change {point} came")

    def __getitem__(self, counter: str) -> int:
        return self.subscriber.counters()[counter]


@contextmanager
def listening(url: str, options: dict[str, Any] = OPTIONS) -> Iterator[Listening]:
    with ExitStack() as stack:
        yield Listening(url, stack, options)


def backends(url: str, query: str) -> list[int]:
    """The server's processes whose last query begins so, for connections to this database."""
    database = make_url(url).database
    return sql(url, f"SELECT pid FROM pg_stat_activity WHERE datname = '{database}' AND query LIKE '{query}%'")


def test_commit_wakes_the_subscriber(postgres_url: str) -> None:
    with listening(postgres_url, ONLY_NOTIFIED) as on:
        for _ in range(20):
            on.until(on.commit())
        assert on["notifications"] >= 20
        assert on["foreign"] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's count of segments is Linux's")
def test_commit_costs_the_subscriber_one_round_trip(postgres_url: str) -> None:
    with listening(postgres_url, ONLY_NOTIFIED) as on:
        on.until(on.commit())
        reading = idle_driver(on.subscriber._store._readers)  # type: ignore[attr-defined]
        before = data_segments(reading)
        for number in range(1, 6):
            on.until(on.commit())
            assert data_segments(reading) - before == number


def until_counted(replica: Replica, counter: str, number: int) -> None:
    pause = Event()
    eventually(
        lambda: replica.status().driver[counter] >= number or pause.wait(0.01), LONG, f"{number} {counter} are counted"
    )


def test_commit_calls_the_handler_of_a_replica_whose_polls_are_an_hour_apart(postgres_url: str) -> None:
    slow = Timing(max_idle_time=HOUR, poll_interval=HOUR)
    settings = Settings(
        store_url=postgres_url, driver=NAME, service_name="writer", timing=slow, driver_options=ONLY_NOTIFIED
    )
    with Store(settings) as store, Publisher(settings, store), Replica(settings, ["t"]) as replica:
        handled = {number: Event() for number in range(1, 6)}
        replica.on("table", lambda change: handled[change.new].set())
        replica.wait_synced(LONG)
        # A commit before LISTEN is read without a notification.
        until_counted(replica, "connections", 1)
        for number, event in handled.items():
            with store.transaction() as tx:
                tx.set("table", "key", number, topic="t")
            assert event.wait(LONG)
            # A poll for a hello request may read the change first, and two commits that wait for a NOTIFY share one.
            until_counted(replica, "notifications", number)


def test_many_commits_need_few_notifications_and_all_arrive(postgres_url: str) -> None:
    with listening(postgres_url) as on:
        points = [on.commit() for _ in range(200)]
        on.until(points[-1])
        assert on.received.points("t") == points
        counters = on.publisher.counters()
        assert counters["sent"] == 200
        assert counters["notifications"] <= 200


def survives(on: Listening, caplog: pytest.LogCaptureFixture, connections: int) -> None:
    """After a loss: the subscriber polls, listens again, reports it, and is woken."""
    on.connected.until_more_than(connections, LONG, "subscriber")
    on.until(on.commit())
    polls = on["polls"]
    for _ in range(3):
        on.until(on.commit())
    assert on["polls"] > polls
    assert on["lost_connections"] >= 1
    lines = [each.getMessage() for each in caplog.records if each.name == "pubsub_pgnotify.session"]
    assert [each for each in lines if each.startswith("listening for notifications does not work and is retried")]
    assert "listening for notifications works again" in lines


def test_subscriber_survives_a_killed_server(private_postgres: PrivateServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pubsub_pgnotify"), listening(private_postgres.create_database()) as on:
        on.until(on.commit())
        private_postgres.kill()
        private_postgres.restart()
        survives(on, caplog, 1)
        assert on.publisher.counters()["lost_connections"] >= 1


@pytest.mark.parametrize("query", ["LISTEN", "PREPARE announce"])
def test_subscriber_survives_a_terminated_backend(
    query: str, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pubsub_pgnotify"), listening(postgres_url) as on:
        on.until(on.commit())
        (pid,) = backends(postgres_url, query)
        sql(postgres_url, f"SELECT pg_terminate_backend({pid}, 60000)")
        if query == "LISTEN":
            survives(on, caplog, 1)
        on.until(on.commit())
        losses = on["lost_connections"] + on.publisher.counters()["lost_connections"]
        assert losses == 1


def test_subscriber_polls_while_it_cannot_listen(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The role may have one connection, which reads the changelog."""
    role = f"role_{uuid.uuid4().hex}"
    with Store(postgres_url) as store:
        sql(
            postgres_url,
            f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}",
        )
        limited = make_url(postgres_url).set(username=role).render_as_string(hide_password=False)
        received = Collector(LONG)
        subscriber = PgNotifyDriver.subscriber(DriverSettings(store_url=limited, options=OPTIONS))
        try:
            with closing(subscriber):
                subscriber.initialize(received, lambda: None)
                subscriber.register_topic("t")
                subscriber.daemonize()
                subscriber.request_hello("n", ["t"])
                received.until(lambda: received.hellos("n"), "the first poll")
                for number in range(3):
                    with store.transaction() as tx:
                        tx.set("table", "key", number, topic="t")
                    received.until(lambda n=number: len(received.points("t")) == n + 1, "the change")  # type: ignore[misc]
                assert subscriber.counters()["connections"] == 0
        finally:
            sql(postgres_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    lines = [each.getMessage() for each in caplog.records if each.name == "pubsub_pgnotify.session"]
    assert len(lines) == 1, lines
    assert "too many connections for role" in lines[0]


def storm(url: str, channel: str, payload: str, number: int) -> None:
    """Send notifications, as any user of the database can. Equal ones of a transaction would be sent once."""
    sql(url, f"SELECT count(pg_notify('{channel}', {payload})) FROM generate_series(1, {number}) AS n")


def test_forged_notifications_cause_a_bounded_number_of_reads(postgres_url: str) -> None:
    with listening(postgres_url, {**OPTIONS, "fastest": HOUR, "slowest": HOUR}) as on:
        on.until(on.commit())
        channel = announcement.channel(on.store.store_id)
        polls, notifications = on["polls"], on["notifications"]
        for _ in range(4):
            storm(postgres_url, channel, "(n + 1000000) || ' 1'", 1000)
        storm(postgres_url, channel, "'x' || n", 1000)
        storm(postgres_url, channel, "repeat('9', 7000) || n", 10)
        storm(postgres_url, channel, "'0 ' || n", 1000)
        on.subscriber.request_hello("n", ["t"])
        on.received.until(lambda: on.received.hellos("n"), "the hello reply")
        while on["notifications"] < notifications + 6010:  # the reply may come between them
            nonce = f"n{next(_numbers)}"
            on.subscriber.request_hello(nonce, ["t"])
            on.received.until(lambda nonce=nonce: on.received.hellos(nonce), "the hello reply")  # type: ignore[misc]
            polls += 1
        assert on["foreign"] == 1010
        assert on["polls"] - polls <= 2, "one for the forged positions, and one for the hello request"


def test_change_arrives_during_a_storm_of_forged_notifications(postgres_url: str) -> None:
    with listening(postgres_url) as on:
        channel = announcement.channel(on.store.store_id)
        for _ in range(5):
            storm(postgres_url, channel, "(n + 1000000) || ' 1'", 1000)
            on.until(on.commit())


def test_stores_in_one_database_do_not_wake_each_other(postgres_url: str) -> None:
    sql(postgres_url, "CREATE SCHEMA other")
    other = f"{postgres_url}?options=-csearch_path%3Dother"
    with listening(postgres_url) as one, listening(other) as two:
        one.until(one.commit())
        before = one["notifications"]
        for _ in range(10):
            two.until(two.commit())
        one.until(one.commit())
        assert one["notifications"] == before + 1


def test_subscriber_follows_a_new_store_id(postgres_url: str) -> None:
    with listening(postgres_url) as on:
        on.until(on.commit())
        administration.new_id(postgres_url)
        on.subscriber.request_hello("n", ["t"])  # any poll reads the new id
        on.connected.until_more_than(1, LONG, "subscriber")
        for _ in range(3):
            on.until(on.commit())
        (envelope,) = [each for each in on.received.envelopes if each.hello is not None and each.hello.nonce == "n"]
        assert (envelope.service, envelope.store_id) == (SERVICE, on.store.store_id)


def test_program_that_commits_once_and_ends_has_notified(postgres_url: str) -> None:
    with listening(postgres_url, ONLY_NOTIFIED) as on:
        settings = Settings(store_url=postgres_url, driver=NAME, service_name="command")
        with Store(settings) as store, Publisher(settings, store), store.transaction() as tx:
            tx.set("table", "key", next(_numbers), topic="t")
        assert tx.commit is not None
        on.until(tx.commit.point)


def test_writers_transaction_holds_no_notification(postgres_url: str) -> None:
    """NOTIFY takes a lock of the whole server when its transaction commits."""
    with listening(postgres_url) as on:
        on.until(on.commit())
        notifying = backends(postgres_url, "PREPARE announce")
        assert len(notifying) == 1
        statements: Sequence[str] = sql(
            postgres_url,
            "SELECT query FROM pg_stat_activity"
            " WHERE application_name = 'pubsub_lib' AND datname = current_database()",
        )
        assert sum("notify" in each.lower() for each in statements) == 1
