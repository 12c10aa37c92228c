"""The status page of a real service, in a browser and by plain HTTP."""

import http.client
import re
import urllib.request
from html import escape
from pathlib import Path

import pytest
from _processes import poll
from selenium import webdriver
from selenium.webdriver.common.by import By

from pubsub_lib import Store
from tests.browser import SCHEMES, WIDTHS, faults
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.unit.service.statuses import BACKGROUNDS, HOSTILE, background


def fetch(host: Host) -> str:
    """The page, its tags replaced by spaces."""
    with urllib.request.urlopen(f"http://{host.address}:{host.metrics_port}/status", timeout=LONG) as answer:
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        markup = answer.read().decode()
    return " ".join(re.sub(r"<wbr>", "", markup).replace("<", " <").split())


def words(host: Host) -> str:
    """The words of the page."""
    return " ".join(re.sub(r"<[^>]*>", "", fetch(host)).split())


def status_of(host: Host, name: str) -> int:
    """The status of a request with this Host header."""
    connection = http.client.HTTPConnection(host.address, host.metrics_port, timeout=LONG)
    try:
        connection.request("GET", "/status", headers={"Host": name})
        return connection.getresponse().status
    finally:
        connection.close()


def test_page_shows_what_a_worker_committed(host: Host) -> None:
    host.change("lease = 2", "lease = 600")  # one that ends on a busy machine is a problem that the page shows
    host.service()
    with Watched(host.settings) as watched, Store(host.database) as store:
        worker = host.worker()
        last = write(worker, 20)
        with store.transaction(origin="api-1") as tx:
            tx.set("item", "hostile", 1, topic=HOSTILE)
        watched.must_come_to(last + 1, store)
        service = store.directory.live()[0]
        page = words(host)
        assert "publisher-service api-1 Ready" in page
        assert f"api-1 this one {service.uuid} {host.settings.bind_address}" in page
        assert "orphans publishes the commits of origins without a live service this service" in page
        assert "No problems." in page
        assert re.search(r"open connections of subscribers [1-9]", page), page
        sequences = dict(re.findall(r"(t[01]) \S+ \S+ (\d+) \d+\.\d ", page))
        assert sum(map(int, sequences.values())) >= 20
        assert poll(lambda: f" {last + 1} 1 1 " in words(host), LONG), "the position of the last topic"
        assert escape(r"\x1b\u202e\u200f\n") in fetch(host)
        assert "<script" not in fetch(host)


def test_other_names_of_the_host_are_refused(host: Host) -> None:
    host.service()
    assert status_of(host, f"localhost:{host.metrics_port}") == 200
    assert status_of(host, "attacker.example") == 403


def test_page_can_be_turned_off(host: Host) -> None:
    host.change("metrics_address", "status_page = false\nmetrics_address")
    host.service()
    assert status_of(host, "localhost") == 404


@pytest.mark.long
def test_browser_shows_the_page_of_a_service(host: Host, browser: webdriver.Chrome, tmp_path: Path) -> None:
    host.service()
    write(host.worker(), 20)
    with Store(host.database) as store, store.transaction(origin="api-1") as tx:
        tx.set("item", "hostile", 1, topic=HOSTILE)
    page = f"http://{host.address}:{host.metrics_port}/status"
    for width in WIDTHS:
        for scheme in SCHEMES:
            assert faults(browser, page, width, scheme, tmp_path) == []
            assert background(browser) == BACKGROUNDS[scheme]
    assert browser.execute_script("return window.harmed") is None
    browser.find_element(By.LINK_TEXT, "/ready").click()
    assert browser.find_element(By.TAG_NAME, "body").text == "ready"
