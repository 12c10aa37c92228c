"""The page opens in a browser without a network, shows the summary, and escapes every text from data."""

from pathlib import Path

import msgspec
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from pubsub_lib.audit.report.page import LIMIT, ROWS, page
from pubsub_lib.audit.report.report import save_summary
from pubsub_lib.audit.report.summary import Balance, Summary, nothing
from tests.browser import SCHEMES, WIDTHS, console, faults
from tests.unit.audit.pages import FAULTS, HOSTILE, summary

FIGURES = {"figure-balance", "figure-over-time", "figure-latencies", "figure-losses", "figure-timeline"}


def opened(browser: webdriver.Chrome, folder: Path, one: Summary) -> webdriver.Chrome:
    """Save the page as an audit does, open it, and check that the browser's console is empty."""
    save_summary(one, folder)
    browser.get((folder / "page.html").as_uri())
    assert console(browser) == []
    return browser


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("anomalies", [10, 10_000])
def test_page_has_figures_and_anomalies(browser: webdriver.Chrome, tmp_path: Path, anomalies: int) -> None:
    one = summary(anomalies)
    shown = opened(browser, tmp_path, one)
    assert (tmp_path / "page.html").stat().st_size < LIMIT
    assert {each.get_attribute("id") for each in shown.find_elements(By.CLASS_NAME, "plotly-graph-div")} == FIGURES
    for figure in FIGURES:
        assert shown.find_elements(By.CSS_SELECTOR, f"#{figure} .main-svg :is(.trace path, .hm image)"), figure
    kinds = shown.find_elements(By.CSS_SELECTOR, "#anomalies h3")
    assert len(kinds) == min(anomalies, len(FAULTS))
    assert [each.text for each in kinds[:3]] == [
        f"{kind} {of} {sum(each['verdict'] == kind for each in one.first)}"
        for kind, of in (("lost", "delivery"), ("corrupt", "delivery"), ("phantom", "strays"))
    ]
    details = shown.find_elements(By.CSS_SELECTOR, "#anomalies details")
    assert len(details) == min(anomalies, len(FAULTS) * ROWS)
    assert details[0].find_element(By.TAG_NAME, "summary").text == "replica replica <b>& · topic t <b>& · sequence 1"
    steps = [row.text.split()[0] for row in details[0].find_elements(By.CSS_SELECTOR, "tr")[1:]]
    assert steps == ["committed", "handed", "taken", "sent"]
    versions = "set ports / p1 <b>& version 8 (before: 7), delete ports / p2 version 9, 2 more"
    assert details[0].text.count(versions) == 5  # of the message, and of each step
    assert "never received it" in details[0].text
    links = {each.get_attribute("href") for each in shown.find_elements(By.CSS_SELECTOR, "#anomalies a")}
    assert (tmp_path / "anomaly").as_uri() + "/verdict=lost/" in links


@pytest.mark.long
def test_page_marks_begins_and_ends(browser: webdriver.Chrome, tmp_path: Path) -> None:
    shown = opened(browser, tmp_path, summary(30))
    for figure in ("figure-over-time", "figure-timeline"):
        legend = [each.text for each in shown.find_elements(By.CSS_SELECTOR, f"#{figure} .legendtext")]
        assert legend[-3:] == ["begin", "clean end", "killed"], figure
    marks = shown.find_elements(By.CSS_SELECTOR, "#figure-over-time .scatterlayer .point")
    assert len(marks) == 24 + 10 + 10
    words = [each.get_attribute("aria-label") for each in shown.find_elements(By.CSS_SELECTOR, "[role=img]")]
    assert len(words) == 2
    assert all("killed" in str(each) for each in words)
    first, *others = shown.find_elements(By.CSS_SELECTOR, "#runs tr")[1:]
    assert [each.text for each in first.find_elements(By.TAG_NAME, "td")] == [
        "replica replica 0 <b>&", "h <b>&", "not in the journals", "2026-09-21 14:13:25.000000", "killed"
    ]  # fmt: skip
    assert others[0].text.endswith("clean end")
    assert others[1].text.endswith("goes on")
    assert len(others) == ROWS - 1
    assert "summary.json has 30 of all 30" in shown.find_element(By.ID, "runs").text


@pytest.mark.long
def test_page_without_runs_has_no_marks(browser: webdriver.Chrome, tmp_path: Path) -> None:
    shown = opened(browser, tmp_path, msgspec.structs.replace(summary(5), runs=(), run_count=0))
    assert not shown.find_elements(By.CSS_SELECTOR, "#runs, a[href='#runs']")
    assert "killed" not in str(shown.find_element(By.CSS_SELECTOR, "[role=img]").get_attribute("aria-label"))


@pytest.mark.long
def test_page_shows_the_tree(browser: webdriver.Chrome, tmp_path: Path) -> None:
    shown = opened(browser, tmp_path, summary(5))
    (top,) = shown.find_elements(By.CSS_SELECTOR, "#tree .tree > ul")
    assert top.get_attribute("aria-label") == "Publishers"
    (api,) = top.find_elements(By.XPATH, "./li")
    relay, polling = api.find_elements(By.XPATH, "./ul/li")
    assert polling.text.startswith("<b>& replica, polls the database")
    lower, left = relay.find_elements(By.XPATH, "./ul/li")
    assert left.text.splitlines()[0] == "replica 0 <b>& replica"
    assert [each.text for each in left.find_elements(By.CSS_SELECTOR, ".fault")] == ["3 lost"]
    below = lower.find_element(By.XPATH, "./ul")
    assert below.get_attribute("aria-label") == "Below relay 2 <b>&"
    assert len(below.find_elements(By.XPATH, "./li")) == ROWS
    assert "… and 10 more below it in summary.json" in lower.text
    assert "summary.json has 34 of all 400" in shown.find_element(By.ID, "tree").text


def test_texts_of_data_do_not_become_markup(browser: webdriver.Chrome, tmp_path: Path) -> None:
    shown = opened(browser, tmp_path, summary(60, HOSTILE))
    assert shown.execute_script("return window.harmed") is None
    assert not shown.find_elements(By.CSS_SELECTOR, "img, main b:not(.numbers b, .tree b), iframe, object")
    assert HOSTILE[:40] in shown.find_element(By.ID, "keys").text
    assert "</script>" in shown.find_element(By.ID, "figure-losses").text.replace(" ", "")


@pytest.mark.long
@pytest.mark.parametrize(
    ("one", "state"),
    [(nothing(["no journals in x"]), "unsure"), (Summary(0, {"": Balance(5, 5)}, [], [], [], [], [], []), "good")],
)
def test_page_without_anomalies(browser: webdriver.Chrome, tmp_path: Path, one: Summary, state: str) -> None:
    shown = opened(browser, tmp_path, one)
    assert shown.title.startswith("Audit: ")
    assert shown.find_element(By.ID, "verdict").get_attribute("class") == f"verdict {state}"


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize(("width", "scheme"), list(zip(WIDTHS, SCHEMES, strict=True)))
def test_page_has_no_faults(browser: webdriver.Chrome, tmp_path: Path, scheme: str, width: int) -> None:
    save_summary(summary(5, HOSTILE), tmp_path)
    assert faults(browser, (tmp_path / "page.html").as_uri(), width, scheme, tmp_path) == []


@pytest.mark.long
def test_empty_page_has_no_faults(browser: webdriver.Chrome, tmp_path: Path) -> None:
    save_summary(nothing(["no journals in x"]), tmp_path)
    assert faults(browser, (tmp_path / "page.html").as_uri(), WIDTHS[-1], SCHEMES[0], tmp_path) == []


def test_page_size_is_bounded_for_long_texts() -> None:
    assert len(page(summary(10_000, "<" * 500, problems=5000)).encode()) < LIMIT


def test_sentence_about_missing_evidence_is_shown_to_its_end() -> None:
    sentence = f"the journal {'x' * 200} is damaged; copy it again"
    assert sentence in page(nothing([sentence]))


def test_page_loads_no_other_resources() -> None:
    whole = page(summary(10))
    assert "default-src 'none'" in whole
    assert "<script src" not in whole
    assert '<link rel="stylesheet"' not in whole


def test_links_of_the_page_use_the_given_folder() -> None:
    assert 'href="../out%20%22/anomaly/verdict=lost/"' in page(summary(1), '../out "/')
