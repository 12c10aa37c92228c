"""A server whose queue of notifications is full, because a session that listens leaves its transaction open.

The real queue has 8 GiB. So a function of the database stands before the real ``pg_notify``, and raises what a server
with a full queue raises.
"""

import logging

import pytest
from _processes import poll
from sqlalchemy import make_url

from tests.unit.drivers.pgnotify.test_server import HOUR, LONG, listening, sql

pytestmark = pytest.mark.postgresql

POLLING = {"listening": 0.05, "fastest": 0.05, "slowest": HOUR, "max_backoff": HOUR}
"""Changes come by polls, while the connection that listens stays."""
IN_FRONT = """
CREATE FUNCTION in_front.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM in_front.full_queue) THEN
        RAISE WARNING 'NOTIFY queue is 100%% full'
            USING DETAIL = 'The server process with PID 4711 is among those with the oldest transactions.';
        RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000';
    END IF;
    PERFORM pg_catalog.pg_notify($1, $2);
END $$"""


@pytest.fixture
def guarded_url(postgres_url: str) -> str:
    """A database in which the rows of a table fill the queue."""
    database = make_url(postgres_url).database
    sql(postgres_url, "CREATE SCHEMA in_front", "CREATE TABLE in_front.full_queue (reason text)", IN_FRONT)
    sql(postgres_url, f"ALTER DATABASE {database} SET search_path = public, in_front, pg_catalog")
    return postgres_url


def test_a_full_queue_fails_no_commit_and_is_named_with_its_remedy(
    guarded_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pubsub_pgnotify"), listening(guarded_url, POLLING) as on:
        on.until(on.commit())
        assert poll(lambda: on.publisher.counters()["notifications"] == 1, LONG)
        sql(guarded_url, "INSERT INTO in_front.full_queue VALUES ('a listener in a transaction')")
        for _ in range(3):
            on.until(on.commit())
        assert poll(lambda: on.publisher.counters()["lost_connections"] >= 1, LONG)
        assert on.publisher.counters()["notifications"] == 1
        assert on["lost_connections"] == 0
        lines = [each.getMessage() for each in caplog.records if each.name == "pubsub_pgnotify.session"]
        failed = [each for each in lines if each.startswith("announcing changes by NOTIFY does not work")]
        assert len(failed) == 1
        assert "queue of notifications is full (too many notifications in the NOTIFY queue)" in failed[0]
        assert "pg_notification_queue_usage()" in failed[0]
        warned = [each for each in lines if "NOTIFY queue is 100% full" in each]
        assert "PID 4711" in warned[0]

        sql(guarded_url, "DELETE FROM in_front.full_queue")
        assert poll(lambda: on.publisher.counters()["notifications"] >= 2, LONG), "the last position waits for ever"
        assert "announcing changes by NOTIFY works again" in caplog.text
        before = on["notifications"]
        on.until(on.commit())
        assert poll(lambda: on["notifications"] > before, LONG)
