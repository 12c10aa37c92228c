"""Times as text: in UTC with microseconds, or the number when no calendar has it."""

import pytest

from pubsub_lib.audit.report.times import moment, time

WALL = 1_790_000_000_123_456


def test_time_is_utc_with_microseconds() -> None:
    assert time(WALL) == "2026-09-21 14:13:20.123456"
    assert moment(WALL) == "2026-09-21T14:13:20.123456Z"
    assert moment(0) == "1970-01-01T00:00:00.000000Z"


@pytest.mark.parametrize("wall", [2**62, -(2**62)])
def test_time_outside_of_the_calendar_stays_a_number(wall: int) -> None:
    assert time(wall) is None
    assert moment(wall) == str(wall)


def test_unknown_time_has_no_text() -> None:
    assert time(None) is None
