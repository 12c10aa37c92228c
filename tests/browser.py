"""A headless Chromium, driven by chromedriver, and what is wrong with a page in it."""

import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from _axe import script_path
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from pubsub_lib.errors import ConfigError

SCHEMES: Final = ("light", "dark")
WIDTHS: Final = (1280, 400)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
)  # fmt: skip
_PATIENCE: Final = 300.0
"""Seconds for axe-core on a busy machine; a page takes it less than one."""
_LEAST_VALUES: Final = 32
"""Different bytes in the picture of a page with texts. A picture of one colour has fewer than ten."""

_WIDE: Final = """
const scrolls = each => getComputedStyle(each).overflowX !== "visible";
const all = [document.documentElement, ...[...document.querySelectorAll("section")].filter(scrolls)];
return all.filter(each => each.scrollWidth > each.clientWidth).map(each => `${each.tagName} ${each.id}`.trim());
"""
_AXE: Final = """
const [tags, done] = arguments;
axe.run(document, {runOnly: tags, resultTypes: ["violations"], preload: false}).then(
  found => done({violations: found.violations, passed: found.passes.map(each => each.id)}),
  error => done({error: String(error)}),
);
"""
_TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_MUST_RUN: Final = {"color-contrast", "heading-order", "html-has-lang", "landmark-one-main", "region"}
"""Rules that every page of this project has something for: without them the checker did not see the page."""


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """The browser with an empty profile. Raises ConfigError when it is not installed: nothing is downloaded."""
    found = {program: shutil.which(program) for program in ("chromium", "chromedriver")}
    for program, path in found.items():
        if path is None:
            raise ConfigError(f"no {program} found; install the packages chromium and chromium-driver")
    options = Options()
    options.binary_location = str(found["chromium"])
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    os.environ["SE_OFFLINE"] = "true"
    running = webdriver.Chrome(options=options, service=Service(executable_path=str(found["chromedriver"])))
    try:
        running.set_script_timeout(_PATIENCE)
        yield running
    finally:
        running.quit()


def faults(browser: webdriver.Chrome, url: str, width: int, scheme: str, pictures: Path) -> list[object]:
    """Open a page with this width, light or dark, and return what is wrong with it.

    Contents wider than the window or than a section that scrolls, lines of the console, violations of axe-core, and an
    empty picture. The picture is saved in the folder ``pictures``. The page stays open.
    """
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(url)
    found: list[object] = console(browser)
    inner = browser.execute_script("return innerWidth")
    if inner != width:
        found.append(f"a window of {inner} px instead of {width} px")
    found += [f"the contents of {each} are wider than it" for each in browser.execute_script(_WIDE)]
    found += _violations(browser)
    picture = browser.get_screenshot_as_png()
    (pictures / f"{Path(urlsplit(url).path).stem}-{width}-{scheme}.png").write_bytes(picture)
    if len(set(_samples(picture))) < _LEAST_VALUES:
        found.append("the picture of the page is empty")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return found


def console(browser: webdriver.Chrome) -> list[Any]:
    """The lines of the console since the last call, without those of Chromium's own pages: its first tab may still load
    beside a busy machine.
    """
    lines: list[Any] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [each for each in lines if not each["message"].startswith("chrome://")]


def _violations(browser: webdriver.Chrome) -> list[str]:
    """Violations of WCAG 2.2 A and AA and of axe-core's best practices in the page that is open."""
    browser.execute_script(script_path().read_text())
    result: dict[str, Any] = browser.execute_async_script(_AXE, _TAGS)
    assert "error" not in result, result
    found = [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]}: {node['failureSummary']}"
        for rule in result["violations"]
        for node in rule["nodes"]
    ]
    missing = _MUST_RUN - {*result["passed"], *(rule["id"] for rule in result["violations"])}
    return found + [f"axe-core found nothing for its rule {rule}" for rule in sorted(missing)]


def _samples(png: bytes) -> bytes:
    """The filtered samples of a picture: of one colour, they are the first pixel's, zeros, and the filters' numbers."""
    place, packed = 8, b""
    while place < len(png):
        length, kind = struct.unpack_from(">I4s", png, place)
        if kind == b"IDAT":
            packed += png[place + 8 : place + 8 + length]
        place += 12 + length
    return zlib.decompress(packed)
