"""The trace of links: links get the source's trace, and are sent without one when the source fails."""

import logging

import pytest

from pubsub_lib.core.model import MAX_TRACE_CHARACTERS, Link
from pubsub_lib.publisher.trace_context import with_trace
from tests.unit.core.builders import History

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def links() -> list[Link]:
    return History().some(3)


def test_every_link_of_the_transaction_gets_the_trace(links: list[Link]) -> None:
    traced = with_trace(links, lambda: TRACE)
    assert [link.trace for link in traced] == [TRACE] * 3
    assert [link.point for link in traced] == [link.point for link in links]


def test_without_a_trace_the_links_are_not_copied(links: list[Link]) -> None:
    assert with_trace(links, lambda: "") is links


@pytest.mark.parametrize("bad", ["t" * (MAX_TRACE_CHARACTERS + 1), "ä", "\ud800"])
def test_an_invalid_trace_is_left_out(links: list[Link], bad: str, caplog: pytest.LogCaptureFixture) -> None:
    assert with_trace(links, lambda: bad) is links
    assert "is left out" in caplog.text


def test_an_exception_of_the_source_is_logged_and_links_are_kept(
    links: list[Link], caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> str:
        raise RuntimeError("no span")

    with caplog.at_level(logging.ERROR):
        assert with_trace(links, broken) is links
    assert "sent without a trace context" in caplog.text
