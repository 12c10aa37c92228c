"""Made statuses for the tests of the status page, and its colours in a browser."""

from html.parser import HTMLParser
from typing import Any, Final

import msgspec
from selenium import webdriver

from pubsub_lib.api import Client
from pubsub_lib.service.status import Entry, Status, Thread, Topic, Topics
from pubsub_lib.sync.agents import Agent, Agents

HOSTILE: Final = "<script>window.harmed=1</script><img src=x onerror=window.harmed=2>\"'&\x1b\u202e\u200f\n"
"""Markup, quotes, a control character, an end of line, and marks that change the writing direction."""
LONG: Final = "x" * 255
BACKGROUNDS: Final = {"light": "rgb(243, 245, 247)", "dark": "rgb(18, 24, 29)"}
"""The colours of the page behind its sections."""


class Words(HTMLParser):
    """The tags of a page, and its text with single spaces."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self._parts: list[str] = []
        self.feed(markup)
        self.text = " ".join("".join(self._parts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("bdi", "wbr", "code", "span"):
            self._parts.append(" ")

    def handle_data(self, data: str) -> None:
        self._parts.append(data)


def agent(**changes: Any) -> Agent:
    """A replica of two topics."""
    made = Agent(
        uuid="a1", name="agent-1", host="edge-1", version="0.1.0", topics=("t1", "t2"), topics_total=2,
        staleness=1.25, parent="relay-1", age=12.0,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def agents(*found: Agent, left_out: int = 0) -> Agents:
    """What the service of ``status`` knows."""
    return Agents(
        service="api-1", uuid="0123456789abcdef" * 2, role="origin", address="tcp://10.0.0.1:8866", version="0.1.0",
        agents=list(found), left_out=left_out,
    )  # fmt: skip


def status(**changes: Any) -> Status:
    """A service with two topics, beside another service."""
    topics = Topics(
        [Topic("ports", 12_345, 17.25, 9_223_372_036_854_775_807, 42), Topic("networks", 0, 0.0, None, None)],
        2, 12.5, 0.0, 1.5, 9_223_372_036_854_775_807,
    )  # fmt: skip
    made = Status(
        service="api-1",
        uuid="0123456789abcdef" * 2,
        version="0.1.0",
        driver="zmq_pubsub_driver",
        address="tcp://10.0.0.1:8866",
        running=93_784.0,
        made_at=1_700_000_000.0,
        problems=[],
        entries=[
            Entry("api-1", "0123456789abcdef" * 2, "tcp://10.0.0.1:8866", 8.25),
            Entry("api-2", "fedcba9876543210" * 2, "", -2.0),
        ],
        entries_total=2,
        entries_age=1.75,
        clients=None,
        clients_total=0,
        counters={
            "links": {"handed": 1000, "followed": 2, "took_over": 0, "unsent": 3},
            "sending": {"accepted": 9, "disconnected": 2, "answers": 77},
        },
        gauges={"leases": {"orphans": 1.0, "maintenance": 0.0}},
        threads=[Thread("changelog", 0.1, 0), Thread("recount", None, 4)],
        topics=topics,
    )
    return msgspec.structs.replace(made, **changes)


def hostile() -> Status:
    """A service whose texts from the database and the configuration are all hostile, or long."""
    texts = (HOSTILE, LONG)
    return status(
        service=HOSTILE,
        driver=HOSTILE,
        address=HOSTILE,
        problems=[f"the topic {each!r} is altered: {each}" for each in texts],
        entries=[Entry(each, each, each * 4, 5.0) for each in texts],
        clients=[Client(each, "", frozenset(texts)) for each in texts],
        clients_total=2,
        excluded=[(each, each) for each in texts],
        gauges={"broken": {"journal": 1.0}},
        topics=Topics([Topic(each, 2**63, 1e9, 2**63, 2**63) for each in texts], 2, 10.0, 5.0, None, None),
        agents=agents(*(agent(uuid=each, name=each, host=each, topics=texts, parent="") for each in texts)),
    )


def background(browser: webdriver.Chrome) -> str:
    """The colour behind the sections of the page that is open."""
    return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
