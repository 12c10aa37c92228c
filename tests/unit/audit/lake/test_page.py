"""The page of a lake: gaps, severity, sizes, no network."""

from datetime import date, timedelta
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from pubsub_lib.audit.lake.days import Day, Period, Report, Trend
from pubsub_lib.audit.lake.page import page, save_page
from pubsub_lib.audit.report.page import LIMIT
from pubsub_lib.audit.report.summary import Balance
from pubsub_lib.errors import ConfigError
from tests.browser import SCHEMES, WIDTHS, faults
from tests.unit.audit.pages import HOSTILE


def month(days: int = 30, domains: tuple[str, ...] = ("",), text: str = "x is gone") -> Report:
    """Every seventh day has no result, every fifth is incomplete, every sixth has losses."""
    found = []
    for number in range(days):
        day = str(date(2026, 11, 1) + timedelta(days=number))
        for place, domain in enumerate(domains):
            code = (32 if number % 5 == 4 else 0) + (1 if number % 6 == 5 else 0)
            balance = Balance(1000 + number, 1000 - code, number % 3, code % 32, 0, 0, code // 32)
            kinds = {"lost": code % 32, "late": number % 2}
            problems = [f"{text} {number}"] if code >= 32 else []
            times = (900 + number, 1500, 2000 + place, 9000)
            audited = Day(day, domain, code, balance, kinds, *times, 86_400, problems=problems)
            found.append(Day(day, domain) if number % 7 == 6 else audited)
    trends = [
        Trend(domain, 7, *(Period("2026-11-01", "2026-11-07", Balance(7000, 7000), 1, 900, 2100) for _ in range(2)))
        for domain in domains
    ]
    return Report("lake", found[0].day, found[-1].day, 33, found, trends, [f"{text}.parquet is damaged"])


@pytest.mark.long
def test_each_day_has_its_row_and_severity(browser: webdriver.Chrome, tmp_path: Path) -> None:
    save_page(month(), tmp_path / "page.html")
    browser.get((tmp_path / "page.html").as_uri())
    rows = browser.find_elements(By.CSS_SELECTOR, "#days tr")[1:]
    assert len(rows) == 30
    states = [row.find_element(By.CSS_SELECTOR, ".state").get_attribute("class") for row in rows]
    assert states[:7] == [f"state {each}" for each in ("good", "good", "good", "good", "unsure", "bad", "gap")]
    assert rows[6].text == "2026-11-07 no result – – – – – – – – – –"
    drawn = {each.get_attribute("id") for each in browser.find_elements(By.CLASS_NAME, "plotly-graph-div")}
    assert drawn == {"figure-failures", "figure-anomalies", "figure-latencies"}
    for figure in drawn:
        assert browser.find_elements(By.CSS_SELECTOR, f"#{figure} .main-svg .trace path"), figure
        shaded = browser.find_elements(By.CSS_SELECTOR, f"#{figure} .layer-below .shapelayer path")
        assert len(shaded) == 4, figure
    # Four gaps cut the line of each percentile into five pieces.
    assert len(browser.find_elements(By.CSS_SELECTOR, "#figure-latencies .scatterlayer .js-line")) == 2 * 5


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize(("width", "scheme"), list(zip(WIDTHS, SCHEMES, strict=True)))
def test_page_has_no_faults(browser: webdriver.Chrome, tmp_path: Path, scheme: str, width: int) -> None:
    save_page(month(30, ("", f"net {HOSTILE}"), HOSTILE), tmp_path / "page.html")
    assert faults(browser, (tmp_path / "page.html").as_uri(), width, scheme, tmp_path) == []
    assert browser.execute_script("return window.harmed") is None


@pytest.mark.long
def test_page_without_results_has_no_faults(browser: webdriver.Chrome, tmp_path: Path) -> None:
    empty = Report("lake", "2026-11-01", "2026-11-02", 32, [Day("2026-11-01", ""), Day("2026-11-02", "")], [], [])
    save_page(empty, tmp_path / "page.html")
    assert faults(browser, (tmp_path / "page.html").as_uri(), WIDTHS[-1], SCHEMES[0], tmp_path) == []
    assert browser.find_element(By.ID, "verdict").get_attribute("class") == "verdict unsure"


def test_page_loads_no_other_resources_and_is_bounded() -> None:
    whole = page(month(3660, ("", "net"), "<" * 5000))
    assert "default-src 'none'" in whole
    assert "<script src" not in whole
    assert len(whole.encode()) < LIMIT


def test_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be written \(Is a directory\); name another file"):
        save_page(month(), tmp_path)
