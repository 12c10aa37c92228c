"""Times and numbers as text for people."""

import pytest

from pubsub_lib.cli.formatting import Shown, cut, duration, hexadecimal, moment


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"), (0.0071, "7 ms"), (1.0, "1.0 s"), (119.94, "119.9 s"), (120, "2 min"), (7199, "120 min"),
        (7200, "2.0 h"), (172_800, "2.0 d"), (-3.21, "-3.2 s"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_moments_are_in_utc() -> None:
    assert moment(1_772_446_351.9) == "2026-03-02T10:12:31Z"
    assert moment(0.0) == ""


def test_digests_have_sixteen_digits() -> None:
    assert hexadecimal(255) == "00000000000000ff"


@pytest.mark.parametrize(
    ("text", "width", "wanted"),
    [("abc", 3, "abc"), ("東京都", 6, "東京都"), ("東京都", 5, "東京…"), ("東京都", 4, "東 …"),
     ("abcd", 3, "ab…"), ("abc", 1, "…"), ("abc", 0, ""), ("a\x1b[2Jb\n", 11, "a\\x1b[2Jb\\n")],
)  # fmt: skip
def test_cut_shortens_text_and_escapes_control_characters(text: str, width: int, wanted: str) -> None:
    assert cut(text, width) == wanted


def test_shown_value_is_text_for_people_and_unchanged_for_programs() -> None:
    shown = Shown([1, 2], lambda value: f"{len(value)} numbers")
    assert (shown.human_readable(), shown.machine_readable()) == ("2 numbers", [1, 2])
