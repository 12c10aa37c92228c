"""Types of options: accepted and rejected values."""

import argparse

import pytest

from pubsub_lib.audit.option_types import moment, positive, seconds


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("1e9", 1e9), ("-1", -1.0)])
def test_seconds_accepts_finite_numbers(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "1e308", "soon", ""])
def test_seconds_rejects_other_texts(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"^'{text}' is not a number of seconds$"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01.5", 1_500_000),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31 23:59:59", -1_000_000),
        ("0001-01-01T00:00+23:59", -62_135_683_140_000_000),
    ],
)
def test_moment_is_utc_unless_it_has_an_offset(text: str, micros: int) -> None:
    assert moment(text) == micros


@pytest.mark.parametrize("text", ["", "soon", "09:30", "2026-13-01", "1764150000"])
def test_moment_rejects_other_texts(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"^'{text}' is not a time such as 2026-"):
        moment(text)


def test_positive_accepts_whole_numbers_from_1_on() -> None:
    assert positive("12") == 12
    for text in ("0", "-1", "1.5", "many", ""):
        with pytest.raises(argparse.ArgumentTypeError, match=f"^'{text}' is not a whole number from 1 on$"):
            positive(text)
