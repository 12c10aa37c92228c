"""Figures: red marks faults that need an operator, and nothing else."""

import colorsys
import re
from itertools import pairwise
from typing import Any

import pytest

from pubsub_lib.audit.report import figures
from pubsub_lib.audit.report.labels import HOPS, SUMS
from pubsub_lib.audit.report.summary import Balance, Losses
from tests.unit.audit.pages import BEGIN, SECOND, runs, summary

CAUSES = ("start", "expired", "behind", "history changed", "mismatched", "overflow", "asked", "connected")


def is_red(color: str) -> bool:
    hue, _, saturation = colorsys.rgb_to_hls(*(int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)))
    return saturation > 0.3 and (hue < 20 / 360 or hue > 340 / 360)


def reds(drawn: str) -> list[str]:
    return [color for color in re.findall(r"#[0-9a-f]{6}\b", drawn) if is_red(color)]


def sync(cause: str, place: int) -> dict[str, Any]:
    return {
        "domain": "", "name": "r", "cause": cause, "outcome": "delta", "began": BEGIN + place * SECOND, "took": 900,
        "count": 1, "size": 9, "needless": False, "topic": "t",
    }  # fmt: skip


def test_only_lost_is_red_among_the_sums() -> None:
    assert [name for name, color in SUMS.items() if is_red(color)] == ["lost"]


def test_a_balance_without_losses_is_not_red() -> None:
    assert reds(figures.balance({"": Balance(5, 3, 2)})) == []
    assert reds(figures.balance({"": Balance(5, 3, 1, 1), "b": Balance(1, 1)})) == [SUMS["lost"]]


def test_no_hop_is_red() -> None:
    rows = summary(1).latencies
    assert {row["hop"] for row in rows} == set(HOPS)
    assert reds(figures.latencies(rows)) == []


@pytest.mark.parametrize("number", range(1, len(CAUSES) + 1))
def test_no_sync_is_red_whatever_its_cause(number: int) -> None:
    drawn = figures.timeline([sync(cause, place) for place, cause in enumerate(CAUSES[:number])])
    assert drawn.count('"base"') == number
    assert reds(drawn) == []


def test_repaired_messages_are_not_red() -> None:
    parts = [place % 3 for place in range(50)]
    assert reds(figures.losses([Losses((), 0, 0, [0] * 50, parts)])) == []
    assert reds(figures.losses([Losses((), 0, 0, parts, [0] * 50)])) != []


def test_a_course_of_time_without_losses_is_not_red() -> None:
    slices = [{**each, "lost": 0} for each in summary(1).over_time]
    assert any(each["repaired"] for each in slices)
    assert reds(figures.over_time(slices)) == []
    assert reds(figures.over_time(slices, runs(9, ""))) == []


@pytest.mark.parametrize("bars", [False, True])
def test_axes_of_a_course_of_time_do_not_overlap(bars: bool) -> None:
    slices = [{**each, **({} if bars else dict.fromkeys(("lost", "repaired", "unknown"), 0))}
              for each in summary(1).over_time]  # fmt: skip
    for some in ([], runs(9, "")):
        drawn = figures.over_time(slices, some)
        domains = [tuple(map(float, each)) for each in re.findall(r'"domain":\[([\d.]+),([\d.]+)\]', drawn)]
        assert len(domains) == 1 + bars + bool(some)
        assert max(top for _, top in domains) == 1
        in_order = sorted(domains)
        assert all(0 <= bottom < top for bottom, top in in_order)
        assert all(one[1] < two[0] for one, two in pairwise(in_order))


def test_marks_are_where_a_run_began_and_how_it_ended() -> None:
    marks = {each["name"]: each for each in figures.ends(runs(9, ""), lambda run: str(run["side"]))}
    assert {name: len(each["x"]) for name, each in marks.items()} == {"begin": 7, "clean end": 3, "killed": 3}
    assert len({each["marker"]["symbol"] for each in marks.values()}) == 3
    assert marks["killed"]["x"][0] == "2026-09-21 14:13:25.000000"
    assert marks["killed"]["text"][0] == "killed: replica replica 0  · h "
    assert figures.ends([], lambda run: "") == []


def test_a_mark_outside_of_the_calendar_is_left_out() -> None:
    (run,) = runs(1, "")
    assert figures.ends([{**run, "began": 2**62, "last": 2**62}], lambda run: "") == []


def test_time_line_has_marks_only_of_its_replicas() -> None:
    of_other = [{**each, "name": "other"} for each in runs(9, "")]
    syncs = [sync("start", 1)]
    assert figures.timeline(syncs, of_other) == figures.timeline(syncs)
    own = [{**each, "name": "r"} for each in runs(9, "")]
    assert figures.timeline(syncs, own).count("triangle-right") == 1
