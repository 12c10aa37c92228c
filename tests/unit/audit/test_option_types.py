"""Types of options: accepted and rejected values."""

import argparse

import pytest

from pubsub_lib.audit.option_types import seconds


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("1e9", 1e9), ("-1", -1.0)])
def test_seconds_accepts_finite_numbers(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "1e308", "soon", ""])
def test_seconds_rejects_other_texts(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"^'{text}' is not a number of seconds$"):
        seconds(text)
