"""The status page from data: in words, escaped, bounded, and in a browser."""

import re
from pathlib import Path

import msgspec
import pytest
from selenium import webdriver

from pubsub_lib.api import Client
from pubsub_lib.core.model import ALL
from pubsub_lib.service.status import MAX_ROWS, Entry, Topic, Topics
from pubsub_lib.service.status_page import MAX_NAMED, page, routes
from tests.browser import SCHEMES, WIDTHS, faults
from tests.unit.service.statuses import BACKGROUNDS, HOSTILE, Words, background, hostile, status

UUID = "0123456789abcdef" * 2
EMPTY = Topics((), 0, 3.0, 0.0, None, None)


def test_page_shows_services_leases_topics_and_links() -> None:
    markup = page(status())
    words = Words(markup).text
    for expected in (
        "publisher-service api-1 Ready",
        "Runs for 1 d 2 h",
        "Page made at 2023-11-14 22:13:20 UTC",
        "No problems.",
        "read 1.8 s ago",
        "api-1 this one 0123456789abcdef0123456789abcdef tcp://10.0.0.1:8866 8.2 s",
        "api-2 fedcba9876543210fedcba9876543210 none expired 2.0 s ago, unless renewed since the reading",
        "orphans publishes the commits of origins without a live service this service",
        "recounts the database not this service",
        "open connections of subscribers 7",
        "ports 9,223,372,036,854,775,807 42 12,345 17.2",
        "networks – – 0 0.0",
        "read from the database 1.5 s ago, for the hellos of this service",
        "averages over 12.5 s",
        "handed over by workers, or committed for them 1,000",
        "recount never 4",
    ):
        assert expected in words, words
    assert 'href="/metrics"' in markup
    assert 'href="/ready"' in markup
    assert "Clients" not in words


def test_page_names_what_the_service_does_not_know() -> None:
    words = Words(page(status())).text
    assert "does not know which replicas exist, nor how stale they are" in words
    assert "does not read which other service holds a lease" in words


def test_relay_without_a_database_claims_nothing_of_one() -> None:
    relay = status(
        role="relay", listens_to=("tcp://10.0.0.1:8866",), database=False, entries=[], entries_total=0, gauges={},
        entries_age=None, threads=[], counters={"relayed": {"links": 7, "oversized": 0, "questions": 3}},
    )  # fmt: skip
    words = Words(page(relay)).text
    assert "Listens to tcp://10.0.0.1:8866 Database none" in words
    assert "This relay has no database, so it has no entry in the directory and does not read it." in words
    assert "Position and objects are those of this relay, as of 1.5 s ago" in words
    assert "changes that were sent on 7" in words
    for wrong in ("was not read", "from the database", "Lease", "Threads", "handed over", "Clients"):
        assert wrong not in words, wrong
    unknown = msgspec.structs.replace(relay.topics, read_age=None)
    assert "Position and objects are not known yet." in Words(page(msgspec.structs.replace(relay, topics=unknown))).text


def test_standby_claims_nothing_of_messages_and_replicas() -> None:
    standby = status(
        role="standby", database=False, entries=[], entries_total=0, entries_age=None, driver="", address="",
        gauges={"standby": {"position": 1234.0}}, counters={"sync_channel": {"answered": 7, "bytes": 4096}},
    )  # fmt: skip
    words = Words(page(standby)).text
    assert "Role standby" in words
    assert "Its copy had the position 1,234 at the last reading." in words
    assert "syncs that were answered 7" in words
    assert "syncs that failed –" in words
    for wrong in ("Driver", "Address for replicas", "Replicas", "Topics", "Lease", "handed over", "relay", "Database"):
        assert wrong not in words, wrong


def test_problems_and_warnings_are_sentences() -> None:
    problems = ["the changelog is not being followed", "the entry in the directory is not renewed"]
    words = Words(page(status(problems=problems, excluded=[("api-1", UUID)], gauges={"broken": {"journal": 1.0}})))
    assert "Not ready: 2 problems" in words.text
    assert " ".join(problems) in words.text
    assert "The journal cannot be written" in words.text
    assert "Messages of 1 worker are not used" in words.text
    assert f"does not contain: api-1 (UUID {UUID}). See the service's log." in words.text
    assert "No problems." not in words.text


def test_excluded_workers_beyond_the_maximum_are_counted() -> None:
    workers = [("api-1", f"{number:032x}") for number in range(MAX_NAMED + 2)]
    words = Words(page(status(excluded=workers))).text
    assert f"Messages of {MAX_NAMED + 2} workers are not used" in words
    assert f"(UUID {MAX_NAMED - 1:032x}), and 2 more. See" in words
    assert f"{MAX_NAMED:032x}" not in words
    assert "No problems." not in words


def test_page_of_a_journal_that_cannot_be_written_has_a_problem() -> None:
    words = Words(page(status(gauges={"broken": {"journal": 1.0}}))).text
    assert "The journal cannot be written" in words
    assert "No problems." not in words


def test_empty_service_has_a_page() -> None:
    empty = status(entries=(), entries_total=0, entries_age=None, counters={}, gauges={}, topics=EMPTY)
    words = Words(page(empty)).text
    assert "The directory was not read yet." in words
    assert "No topic was written or sent yet." in words
    assert "Position and objects were not read from the database yet." in words
    busy = Topics((), 0, 0.0, None, None, None)
    assert "The topics are not known yet." in Words(page(status(topics=busy))).text


def test_many_rows_are_bounded_and_the_rest_is_counted() -> None:
    rows = [Topic(f"t{each}", each, 1.0, each, each) for each in range(MAX_ROWS)]
    entries = [Entry(f"api-{each}", "u", "a", 1.0) for each in range(MAX_ROWS)]
    clients = [Client(f"c{each}", "", frozenset(f"t{topic}" for topic in range(1000))) for each in range(MAX_ROWS)]
    many = status(
        topics=Topics(rows, 20_000, 10.0, 0.0, 0.0, 5),
        entries=entries, entries_total=250, clients=clients, clients_total=101,
    )  # fmt: skip
    words = Words(page(many)).text
    assert "19,900 more topics, which have the lowest rates, are left out; pubsub-db topics lists all." in words
    assert "150 more services are left out; pubsub-db status lists all." in words
    assert "1 more clients are left out" in words
    assert "t0, t1, t10, t100, t101 and 995 more" in words
    assert len(page(many)) < 100_000


def test_clients_show_their_topics() -> None:
    clients = [Client("all", "", frozenset([ALL])), Client("none", ""), Client("two", "", frozenset("ab"))]
    words = Words(page(status(clients=clients, clients_total=3))).text
    assert "all all none none two a, b" in words


def test_old_sequences_are_shown_with_their_age() -> None:
    assert "since its start, as of 5.0 s ago" in Words(page(hostile())).text


def test_texts_of_data_do_not_become_markup() -> None:
    markup = page(hostile())
    plain = page(status(clients=[], excluded=[("a", "b"), ("c", "d")], problems=["a"]))
    assert set(Words(markup).tags) <= set(Words(plain).tags)
    assert "script" not in Words(markup).tags
    assert markup.count("&lt;script&gt;") >= 9
    assert not [each for each in markup if not each.isprintable() and each != "\n"]
    assert "\\x1b\\u202e\\u200f\\n" in markup
    assert HOSTILE not in markup


def test_page_runs_nothing_and_loads_nothing() -> None:
    markup = page(status())
    assert "default-src 'none'" in markup
    assert not re.search(r"<(script|iframe|object|img|form)\b|https?:|url\(|@import", markup)


def test_headings_and_tables_are_semantic() -> None:
    tags = Words(page(hostile())).tags
    markup = page(hostile())
    assert [each for each in tags if each in ("h1", "h2", "h3")] == ["h1"] + ["h2"] * 5
    assert tags.count("table") == tags.count("caption") == tags.count("thead")
    assert '<html lang="en">' in markup
    assert re.findall(r"<th(?! scope=|ead)", markup) == []
    assert all(tag in tags for tag in ("header", "main", "nav", "footer"))


def test_page_is_loaded_again_only_on_request() -> None:
    ((path, route),) = routes(status).items()
    assert path == "GET /status"
    code, body, kind = route({})
    assert (code, kind) == (200, "text/html; charset=utf-8")
    assert b'http-equiv="refresh"' not in body
    assert b'href="?refresh=10"' in body
    again = route({"refresh": ["10"]})[1]
    assert b'http-equiv="refresh" content="10"' in again
    assert b'href="?refresh=0"' in again
    for other in ("0", "<", "1"):
        assert route({"refresh": [other]})[1] == body


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", ["usual", "hostile"])
def test_browser_shows_the_page(browser: webdriver.Chrome, tmp_path: Path, kind: str, scheme: str, width: int) -> None:
    made = hostile() if kind == "hostile" else status()
    (tmp_path / "page.html").write_text(page(made))
    assert faults(browser, (tmp_path / "page.html").as_uri(), width, scheme, tmp_path) == []
    assert background(browser) == BACKGROUNDS[scheme]
    assert browser.execute_script("return window.harmed") is None
