"""Pieces of HTML: texts are escaped, numbers and durations are readable."""

import pytest

from pubsub_lib.service.status_html import POLICY, ago, name, number, seconds, table, text
from pubsub_lib.service.status_style import STYLE


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("<b>&\"'", "&lt;b&gt;&amp;&quot;&#x27;"),
        ("a\x00\x1b[1m\n\u202e\u2066", "a\\x00\\x1b[1m\\n\\u202e\\u2066"),
        ("\ud800", "\\ud800"),
        ("\u05d0 é 漢", "\u05d0 é 漢"),
    ],
)
def test_texts_are_escaped(given: str, shown: str) -> None:
    assert text(given) == shown
    assert name(given) == f"<bdi>{shown}</bdi>"
    assert text(given).encode()


@pytest.mark.parametrize(
    ("given", "shown"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 0 s"), (3_725, "1 h 2 min"), (93_784.9, "1 d 2 h")],
)
def test_durations_have_two_units(given: float, shown: str) -> None:
    assert seconds(given) == shown
    assert ago(given) == f"{shown} ago"


def test_numbers_may_break_after_a_comma() -> None:
    assert number(1_234_567) == "1,<wbr>234,<wbr>567"
    assert number(2**63 - 1).replace("<wbr>", "") == "9,223,372,036,854,775,807"
    assert number(1000.0) == "1,<wbr>000"
    assert number(12, 1) == "12.0"
    assert number(None) == "–"
    assert ago(None) == "never"


def test_table_marks_headings_and_numbers() -> None:
    made = table("<i>x</i>", ("a", "b"), [("1", "2")], 1)
    assert "<caption><i>x</i></caption>" in made
    assert '<th scope="col">a</th><th scope="col" class="n">b</th>' in made
    assert '<tr><th scope="row">1</th><td class="n">2</td></tr>' in made


def test_policy_allows_this_style_only() -> None:
    assert "'unsafe-inline'" not in POLICY
    assert "style-src 'sha256-" in POLICY
    assert "url(" not in STYLE
