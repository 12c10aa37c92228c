"""The documentation is built as a site, strictly: every page and every link's target; pages can be read."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.browser import SCHEMES, WIDTHS, faults

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOREIGN = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
FOREIGN_CSS = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s;]+)""", re.IGNORECASE)
FOREIGN_SCRIPT = re.compile(
    r"""(?:\bfrom|\bimport|\bfetch\(|\bimport\(|\.src\s*=|\bopen\(["']GET["'],)\s*["'`]((?:https?:)?//[^"'`]+)"""
)
"""Where a script loads: other addresses in it are comments and licences."""
LOOKED_AT = ("index", "tutorial", "configuration", "reference/replica")
"""Pages with lists, code, tables and docstrings."""


class Loaded(HTMLParser):
    """Foreign hosts from which a page loads something; links that a reader follows are none."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []
        self._code = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._code = tag if tag in ("script", "style") else ""
        if tag != "a":
            addresses = [given.get(name, "") for name in ("src", "href", "srcset", "data", "poster", "action")]
            self.foreign += [each for each in addresses if FOREIGN.match(each)]
        self.foreign += FOREIGN_CSS.findall(given.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        self._code = ""

    def handle_data(self, data: str) -> None:
        if self._code == "script":
            self.foreign += FOREIGN_SCRIPT.findall(data)
        if self._code == "style":
            self.foreign += FOREIGN_CSS.findall(data)


def foreign(file: Path) -> list[str]:
    """The foreign addresses that a browser asks when it shows this file of a site."""
    text = file.read_text()
    if file.suffix == ".css":
        return FOREIGN_CSS.findall(text)
    if file.suffix == ".js":
        return FOREIGN_SCRIPT.findall(text)
    parser = Loaded()
    parser.feed(text)
    return parser.foreign


def build(docs: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    """Build the site as tools/docs does."""
    words = (ROOT / "tools" / "docs").read_text().split("-m sphinx ")[1].split(" -d ")[0].split()
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *words, "-d", str(site.parent / "doctrees"), str(docs), str(site)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "drivers")])},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.long
def test_the_site_is_built_strictly_and_can_be_read(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    site = tmp_path / "site"
    done = build(DOCS, site)
    assert done.returncode == 0, done.stderr
    pages = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*") if page.suffix in (".md", ".rst")}
    assert {page.relative_to(site) for page in site.rglob("*.html")} >= pages
    reference = (site / "reference" / "replica.html").read_text()
    assert "Block until everything up to" in reference, "docstrings are in it"
    assert 'href="../using.html#handlers"' in (site / "examples" / "README.html").read_text()
    files = [each for each in site.rglob("*") if each.suffix in (".html", ".css", ".js", ".svg")]
    assert {each.relative_to(site): found for each in files if (found := foreign(each))} == {}
    browser = request.getfixturevalue("browser")  # now: without a browser, only the rest is skipped
    for name in LOOKED_AT:
        page = (site / name).with_suffix(".html").as_uri()
        for width, scheme in zip(WIDTHS, SCHEMES, strict=True):
            assert faults(browser, page, width, scheme, tmp_path) == [], f"{name}, {width} px, {scheme}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<script type="module">import mermaid from "https://host.example/mermaid.mjs";</script>'),
        ("a.html", '<script src="//host.example/a.js"></script>'),
        ("a.html", '<link rel="preconnect" href="https://host.example">'),
        ("a.html", '<p><img alt="" src="HTTP://host.example/a.png"/></p>'),
        ("a.html", "<style>@import 'https://host.example/a.css';</style>"),
        ("a.html", '<p style="background: url(https://host.example/a.png)">'),
        ("a.css", "@font-face { src: url('https://host.example/a.woff2') }"),
        ("a.svg", '<svg xmlns="http://www.w3.org/2000/svg"><image href="https://host.example/a.png"/></svg>'),
        ("a.js", 'fetch("https://host.example/a.json")'),
    ],
)
def test_what_a_page_loads_from_a_foreign_host_is_found(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (found,) = foreign(tmp_path / name)
    assert "//host.example" in found
    (tmp_path / name).write_text(text.replace("https://", "").replace("HTTP://", "").replace("//host", "host"))
    assert foreign(tmp_path / name) == []
    (tmp_path / "a.html").write_text('<p>See <a href="https://host.example">there</a>, https://host.example</p>')
    assert foreign(tmp_path / "a.html") == []


@pytest.mark.long
def test_missing_link_targets_are_errors(tmp_path: Path) -> None:
    docs = tmp_path / "project" / "docs"
    docs.mkdir(parents=True)
    shutil.copy(DOCS / "conf.py", docs)
    shutil.copy(ROOT / "pyproject.toml", docs.parent)
    (docs / "other.md").write_text("# Other\n\n## Something\n")
    (docs / "index.md").write_text("# Page\n\n[right](other.md#something)\n\n```{toctree}\nother\n```\n")
    good = build(docs, tmp_path / "good")
    assert good.returncode == 0, good.stderr
    with (docs / "index.md").open("a") as page:
        page.write("\n[a page](nowhere.md)\n\n[a heading](other.md#no-such-heading)\n\n```{toctree}\nmissing\n```\n")
    (docs / "alone.md").write_text("# No link leads to this page\n")
    bad = build(docs, tmp_path / "bad")
    assert bad.returncode != 0
    for complaint in ("nowhere.md", "no-such-heading", "missing", "alone.md"):
        assert complaint in bad.stderr
