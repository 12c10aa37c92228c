"""The documentation is built as a site, strictly: every page and every link's target; pages can be read."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import SCHEMES, WIDTHS, faults

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LOOKED_AT = ("index", "tutorial", "configuration", "reference/replica")
"""Pages with lists, code, tables and docstrings."""


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


def test_the_site_is_built_strictly_and_can_be_read(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    site = tmp_path / "site"
    done = build(DOCS, site)
    assert done.returncode == 0, done.stderr
    pages = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*") if page.suffix in (".md", ".rst")}
    assert {page.relative_to(site) for page in site.rglob("*.html")} >= pages
    reference = (site / "reference" / "replica.html").read_text()
    assert "Block until everything up to" in reference, "docstrings are in it"
    assert 'href="../using.html#handlers"' in (site / "examples" / "README.html").read_text()
    browser = request.getfixturevalue("browser")  # now: without a browser, only the rest is skipped
    for name in LOOKED_AT:
        page = (site / name).with_suffix(".html").as_uri()
        for width, scheme in zip(WIDTHS, SCHEMES, strict=True):
            assert faults(browser, page, width, scheme, tmp_path) == [], f"{name}, {width} px, {scheme}"


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
