"""Made statuses for the tests of the status page, and the checks of a page in a browser."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from selenium import webdriver

from pubsub_lib.api import Client
from pubsub_lib.service.status import Entry, Status, Thread, Topic, Topics

HOSTILE: Final = "<script>window.harmed=1</script><img src=x onerror=window.harmed=2>\"'&\x1b\u202e\u200f\n"
"""Markup, quotes, a control character, an end of line, and marks that change the writing direction."""
LONG: Final = "x" * 255
SCHEMES: Final = ("light", "dark")
WIDTHS: Final = (1280, 400)

_WIDE: Final = """
const sections = [...document.querySelectorAll("section")];
return sections.filter(each => each.scrollWidth > each.clientWidth).map(each => each.id);
"""
_CONTRASTS: Final = """
const channel = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const parsed = text => text.match(/[\\d.]+/g).map(Number);
const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const behind = element => {
  for (let at = element; at; at = at.parentElement) {
    const color = parsed(getComputedStyle(at).backgroundColor);
    if (color.length === 3 || color[3] === 1) return color;
    if (color[3] > 0) throw new Error("a translucent background");
  }
  throw new Error("no background");
};
const found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const element = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim()) continue;
  const pair = [luminance(parsed(getComputedStyle(element).color)), luminance(behind(element))].sort((a, b) => b - a);
  found.push([element.tagName, walk.currentNode.data.slice(0, 40), (pair[0] + 0.05) / (pair[1] + 0.05)]);
}
return found;
"""


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
        gauges={"leases": {"orphans": 1.0, "maintenance": 0.0}, "excluded": {"workers": 0.0}},
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
        gauges={"excluded": {"workers": 2.0}, "broken": {"journal": 1.0}},
        topics=Topics([Topic(each, 2**63, 1e9, 2**63, 2**63) for each in texts], 2, 10.0, 5.0, None, None),
    )


def shown(browser: webdriver.Chrome, url: str, width: int, scheme: str) -> None:
    """Open a page with this width, light or dark."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(url)


def faults(browser: webdriver.Chrome, width: int, scheme: str) -> Sequence[object]:
    """What is wrong with the page that is shown: overflow, errors in the console, texts with a low contrast."""
    found: list[object] = list(browser.get_log("browser"))  # type: ignore[no-untyped-call]
    inner, scrolled = browser.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
    if (inner, scrolled > inner) != (width, False):
        found.append(f"a window of {inner} px instead of {width} px, and contents of {scrolled} px")
    wide = browser.execute_script(_WIDE)
    found += [f"the contents of the section {each!r} are wider than the section" for each in wide]
    contrasts = browser.execute_script(_CONTRASTS)
    found += [each for each in contrasts if each[2] < 4.5]
    dark = browser.execute_script("return getComputedStyle(document.body).backgroundColor") != "rgb(243, 245, 247)"
    if len(contrasts) < 30 or dark != (scheme == "dark"):
        found.append(f"{len(contrasts)} texts, and a background that is {'dark' if dark else 'light'}")
    return found
