"""The warnings of a changed history."""

import logging

import pytest

from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.model import ALL, Point
from pubsub_lib.replica.history_log import log_history_change

BEFORE, AFTER = Point(3, 1), Point(4, 2)


@pytest.mark.parametrize(
    ("topic", "before", "sentence"),
    [
        ("t", BEFORE, "the topic 't' was at position 3 and is at position 4 of another history; commits"),
        (ALL, BEFORE, "the store was at position 3 and is at position 4 of another history; commits"),
        ("t", AFTER, "a deleted object of the topic 't' exists again at position 4 (a restored backup"),
    ],
    ids=["a topic", "everything", "an undone delete"],
)
def test_each_topic_is_logged_with_its_points(
    topic: str, before: Point, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        log_history_change(HistoryChange({topic: (before, AFTER)}))
    (record,) = caplog.records
    assert record.getMessage().startswith(f"the history of the store changed: {sentence}")
    assert (vars(record)["pubsub_topic"], vars(record)["pubsub_position"]) == (topic, 4)


def test_publisher_of_the_undone_point_and_its_quarantine_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    publisher = "api-1", "0" * 32
    with caplog.at_level(logging.WARNING):
        log_history_change(HistoryChange({"t": (BEFORE, AFTER)}, {"t": publisher}, (publisher,)))
    first, second = caplog.records
    assert f"the publisher 'api-1' with the UUID {'0' * 32} sent the last of them" in first.getMessage()
    assert second.getMessage().startswith(f"the publisher 'api-1' with the UUID {'0' * 32} sent changes that")
    assert vars(second)["pubsub_uuid"] == "0" * 32
