"""Planted faults of a page, one at a time: the check of pages must find each of them."""

from pathlib import Path

import pytest
from selenium import webdriver

from tests.browser import faults

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>A page</title>
<style>
body { color: #222222; background: #ffffff; }
@media (prefers-color-scheme: dark) { body { color: #eeeeee; background: #111111; } }
</style>
</head>
<body><main><h1>A page</h1><section id="part"><h2>A part</h2><p>Some words</p></section></main></body>
</html>
"""


def found(browser: webdriver.Chrome, folder: Path, markup: str, width: int = 400, scheme: str = "light") -> list[str]:
    page = folder / "page.html"
    page.write_text(markup)
    return [str(each) for each in faults(browser, page.as_uri(), width, scheme, folder)]


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_without_faults(browser: webdriver.Chrome, tmp_path: Path, scheme: str, width: int) -> None:
    assert found(browser, tmp_path, PAGE, width, scheme) == []
    assert (tmp_path / f"page-{width}-{scheme}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.quick_variants("color-contrast", "the contents of HTML", "ERR_FILE_NOT_FOUND")
@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("<p>", '<p style="color: #999999; background: #888888">', "color-contrast: "),
        ("<h2>A part</h2>", "<h4>A part</h4>", "heading-order: "),
        ("<p>", "<input><p>", "label: "),
        ('<html lang="en">', "<html>", "html-has-lang: "),
        ("<p>", "<p><img alt='' src='data:,'><a href='other.html'></a>", "link-name: "),
        ("<p>", '<p style="width: 600px">', "the contents of HTML are wider"),
        ('id="part">', 'id="part" style="overflow: auto"><p style="width: 600px">', "the contents of SECTION part are"),
        ("<p>", "<p><script>console.error('planted')</script>", "planted"),
        ("<p>", "<p><img alt='' src='missing.png'>", "ERR_FILE_NOT_FOUND"),
    ],
)
def test_planted_fault_is_found(browser: webdriver.Chrome, tmp_path: Path, right: str, wrong: str, fault: str) -> None:
    assert right in PAGE
    faults_found = found(browser, tmp_path, PAGE.replace(right, wrong, 1))
    assert [each for each in faults_found if fault in each], faults_found


def test_fault_in_one_scheme_is_found_in_that_one(browser: webdriver.Chrome, tmp_path: Path) -> None:
    markup = PAGE.replace("color: #eeeeee", "color: #444444")
    assert found(browser, tmp_path, markup, scheme="light") == []
    assert all("color-contrast: " in each for each in found(browser, tmp_path, markup, scheme="dark"))
    assert found(browser, tmp_path, markup, scheme="dark") != []


def test_page_that_shows_nothing_is_found(browser: webdriver.Chrome, tmp_path: Path) -> None:
    faults_found = found(browser, tmp_path, PAGE.replace("<body>", "<body hidden>"))
    assert "the picture of the page is empty" in faults_found
    assert "axe-core found nothing for its rule color-contrast" in faults_found
