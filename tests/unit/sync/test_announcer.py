"""The announcer over real sockets: several servers, servers that hang or are of another program, and the end."""

import logging
import random
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from _processes import poll

from pubsub_lib.errors import ClosedError, ConfigError, StoreUnavailable
from pubsub_lib.sync.agent_registry import Known
from pubsub_lib.sync.agents import Agent
from pubsub_lib.sync.announcer import (
    EARLY_PART,
    FIRST_PART,
    LEAVE_TIMEOUT,
    NAME_LOOK,
    NAME_WAIT,
    Announcer,
    agents_url,
)
from pubsub_lib.sync.urls import ChannelUrl, channel_urls, known_urls
from tests.unit.sync.some_agents import agent
from tests.unit.sync.test_agents_server import Served
from tests.unit.sync.test_client import free_url, response, server

LONG = 120.0


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.endpoint.close()


def url_of(served: Served) -> str:
    return f"http://127.0.0.1:{served.endpoint.port}"


def known(served: Served) -> list[str]:
    return [each.name for each in served.route._registry.known(time.monotonic()).agents]


def announcer(urls: str, interval: float = 10.0, own: Agent | None = None) -> Announcer:
    return Announcer(urls, interval, lambda: own or agent(), rng=random.Random(1))


def announce(made: Announcer) -> float:
    """One announcement. Returns the seconds until the next one."""
    made._begun = True
    now = time.monotonic()
    return made.step(now) - now


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("http://h:1", "http://h:1/agents"),
        ("http://h:1/sync", "http://h:1/agents"),
        ("https://h/net/sync", "https://h:443/net/agents"),
        ("https://h/net/", "https://h:443/net/agents"),
    ],
)
def test_announcements_go_beside_the_path_of_syncs(url: str, wanted: str) -> None:
    assert str(agents_url(channel_urls(url)[0])) == wanted


def test_agent_is_announced_until_it_leaves(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub_lib.sync.announcer.TIMEOUT", LONG)
    monkeypatch.setattr("pubsub_lib.sync.announcer.LEAVE_TIMEOUT", LONG)
    made = announcer(url_of(served), 8.0)  # also of its patience, on a busy machine
    made.start()
    assert poll(lambda: served.route.counters()["accepted"] >= 2, LONG)
    assert known(served) == ["agent-1"]
    assert made.above == ("u-own", "u-above")
    made.close()
    assert known(served) == []
    made.close()
    assert made.counters()["failed"] == 0
    accepted = served.route.counters()["accepted"]
    assert made._loop.close(LONG)
    assert served.route.counters()["accepted"] == accepted


def test_many_agents_that_start_together_spread_their_announcements(served: Served) -> None:
    firsts, nexts = [], []
    for seed in range(40):
        made = Announcer(url_of(served), 100.0, agent, rng=random.Random(seed))
        firsts.append(made.step(1000.0) - 1000.0)
        nexts.append(announce(made))
    assert 0.0 <= min(firsts) < 10.0
    assert 15.0 < max(firsts) <= 100.0 * FIRST_PART
    assert 100.0 * (1 - EARLY_PART) <= min(nexts) < 80.0
    assert 95.0 < max(nexts) <= 100.0
    assert served.route.counters()["accepted"] == 40


def test_agent_waits_for_the_name_of_its_parent_and_is_announced_with_it(served: Served) -> None:
    names = [""]
    made = Announcer(
        url_of(served), 100.0, lambda: agent(parent=names[0]), rng=random.Random(1), named=lambda: names[0] != ""
    )

    def accepted() -> list[str]:
        return [each.parent for each in served.route._registry.known(time.monotonic()).agents]

    now = made.step(time.monotonic() + LONG)
    assert made.step(now) == now + NAME_LOOK
    assert accepted() == []
    names[0] = "relay-1"
    again = made.step(now + NAME_LOOK)
    assert accepted() == ["relay-1"]
    assert again > now + 50.0


def test_agent_whose_parent_is_silent_is_announced_without_it_and_later_with_it(served: Served) -> None:
    names = [""]
    made = Announcer(
        url_of(served), 100.0, lambda: agent(parent=names[0]), rng=random.Random(1), named=lambda: names[0] != ""
    )

    def accepted() -> list[str]:
        return [each.parent for each in served.route._registry.known(time.monotonic()).agents]

    begun = now = made.step(time.monotonic() + LONG)
    while not accepted():
        now = made.step(now)
    assert now - begun < NAME_WAIT + 2 * NAME_LOOK
    assert accepted() == [""]
    for _ in range(10):
        now = made.step(now)
    assert made.counters()["accepted"] == 1
    names[0] = "relay-1"
    assert made.step(now) > now + 50.0
    assert accepted() == ["relay-1"]
    assert made.counters()["accepted"] == 2


def test_unreachable_server_is_counted_and_logged_once(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    made = announcer(free_url())
    with caplog.at_level(logging.INFO):
        assert announce(made) <= 10.0
        assert announce(made) <= 10.0
        made._known = known_urls(url_of(served))
        announce(made)
    assert made.counters() == {"accepted": 1, "failed": 2}
    assert [each.getMessage().partition(":")[0] for each in caplog.records] == [
        "this agent cannot announce itself, so pubsub-db agents may not show it",
        "the services above know this agent again",
    ]
    assert all(each.levelno == logging.INFO for each in caplog.records)


def test_next_server_is_asked_when_one_fails_and_stays_the_first(served: Served) -> None:
    other = free_url()
    made = announcer(f"{other},{url_of(served)}")
    announce(made)
    assert made.counters() == {"accepted": 1, "failed": 0}
    assert str(made._urls[0]) == f"{url_of(served)}/agents"
    announce(made)
    assert served.route.counters()["accepted"] == 2


def test_server_that_is_known_at_the_time_is_announced_to(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica without sync_url learns the server from its parent's hellos."""
    monkeypatch.setattr("pubsub_lib.sync.announcer.LEAVE_TIMEOUT", LONG)
    named: list[ChannelUrl] = []

    def known_now() -> Sequence[ChannelUrl]:
        if not named:
            raise StoreUnavailable("the parent has named no sync channel")
        return named

    made = Announcer(known_now, 10.0, agent, rng=random.Random(1))
    announce(made)
    assert made.counters() == {"accepted": 0, "failed": 1}
    named.extend(channel_urls(url_of(served)))
    announce(made)
    assert made.counters() == {"accepted": 1, "failed": 1}
    assert known(served) == ["agent-1"]
    other = Served()
    named[:] = channel_urls(url_of(other))
    announce(made)
    assert known(other) == ["agent-1"], "the parent is another one now"
    made.close()
    assert known(other) == [], "it leaves where it announced itself last"
    other.endpoint.close()


def test_server_that_hangs_takes_one_turn_and_is_asked_last(served: Served) -> None:
    with server(b"", hold=True) as silent:
        made = announcer(f"{silent},{url_of(served)}", 2.0)  # also of its patience, on a busy machine
        announce(made)
        assert made.counters() == {"accepted": 0, "failed": 1}
        assert str(made._urls[0]) == f"{url_of(served)}/agents"
        made._interval = 600.0  # the good server has the time that it needs
        announce(made)
    assert known(served) == ["agent-1"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (response(b"{}"), "/agents is not a service of this library: the answer to an announcement cannot be read"),
        (response(b"use one of GET /metrics\n", "404 Not Found"), "/agents answers 404: use one of GET /metrics"),
        (response(b"\x1b[31m" + b"x" * 5000, "503 Busy"), r"/agents answers 503:  \[31mxxx"),
        (b"hello\r\n\r\n", "does not answer"),
        (response(b'{"above":["u-agent-1"]}'), "/agents is below this relay; correct sync_url"),
        (response(b'{"above":["u-x","u-agent-1"]}'), "/agents is below this relay; correct sync_url"),
    ],
)
def test_answer_of_another_program_is_a_failure(answer: bytes, words: str, caplog: pytest.LogCaptureFixture) -> None:
    with server(answer) as url, caplog.at_level(logging.INFO):
        made = announcer(url)
        announce(made)
    assert made.counters() == {"accepted": 0, "failed": 1}
    assert made.above == ()
    assert "\x1b" not in caplog.text
    (record,) = caplog.records
    assert re.search(words, record.getMessage())
    made.close()
    assert made.counters() == {"accepted": 0, "failed": 1}, "no server knows it, so it does not leave"


def test_relay_announces_those_below_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub_lib.sync.announcer.LEAVE_TIMEOUT", LONG)
    below = Known([agent("a"), agent("b")], 3)
    made = Announcer(url_of(served), 10.0, lambda: agent("relay-1", role="relay"), lambda: below)
    announce(made)
    assert known(served) == ["a", "b", "relay-1"]
    assert served.route.gauges()["left_out"] == 3.0
    made.close()
    assert known(served) == []


def test_agent_that_is_closed_meanwhile_is_a_failure() -> None:
    def closed() -> Agent:
        raise ClosedError("this replica is closed")

    made = Announcer(free_url(), 10.0, closed)
    assert announce(made) <= 10.0
    assert made.counters() == {"accepted": 0, "failed": 1}


@contextmanager
def silent_server() -> Iterator[tuple[str, threading.Event]]:
    """A server that accepts one connection and is silent, and whether that happened."""
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peers = []

        def serve() -> None:
            peer, _ = listener.accept()
            peers.append(peer)
            peer.recv(1)
            asked.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        thread.join(LONG)
        for peer in peers:
            peer.close()


def test_close_ends_a_running_announcement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub_lib.sync.announcer.TIMEOUT", LONG)
    with silent_server() as (url, asked):
        made = Announcer(url, 600.0, agent)
        made._begun = True
        made.start()
        assert asked.wait(LONG)
        begun = time.monotonic()
        made.close()
        assert made._loop.close(LONG)
        assert time.monotonic() - begun < LONG / 2, "not at its timeout"
    assert made.counters() == {"accepted": 0, "failed": 0}, "close() ended it"


def test_close_waits_a_second_at_most_for_a_server_that_hangs(served: Served) -> None:
    made = announcer(url_of(served))
    announce(made)
    with silent_server() as (url, _):
        made._urls = [agents_url(channel_urls(url)[0])]
        begun = time.monotonic()
        made.close()
        assert LEAVE_TIMEOUT * 0.9 < time.monotonic() - begun < LEAVE_TIMEOUT + 10.0
    assert made.counters() == {"accepted": 1, "failed": 1}
    assert made.step(0.0) <= 10.0, "a step that began before does nothing"
    assert known(served) == ["agent-1"]


def test_invalid_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="names neither http nor https"):
        announcer("relay:8867")
