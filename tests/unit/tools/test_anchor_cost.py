"""``tools/bench anchor-cost`` compares a replica that compares itself with the store with one that does not."""

import argparse
import json

import pytest
from _measurements import anchor_cost, command


def test_anchor_cost_counts_comparisons_and_takes_every_commit(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--topics", "20", "--commits", "5", "--seconds", "3", "--rounds", "1", "-f", "json"]
    assert command.run("anchor-cost", given) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert set(found) == {"anchor", "comparison", "delay"}
    assert found["delay"]["often_seconds"] > 0 < found["delay"]["never_seconds"]


def test_anchor_cost_without_a_comparison_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchor_cost, "CAUSE", "another cause")
    assert command.run("anchor-cost", ["--topics", "2", "--commits", "1", "--seconds", "0.1", "--rounds", "1"]) == 3


def test_findings_are_medians_per_comparison() -> None:
    options = argparse.Namespace(topics=2, commits=1, rounds=3)
    often = [anchor_cost.Round(work, 4.0, 0.002) for work in (0.5, 0.9, 0.7)]
    never = [anchor_cost.Round(0.1, 0.0, 0.001)] * 3
    _, comparison, delay = anchor_cost.findings(often, never, options)
    assert comparison.figures["seconds"] == pytest.approx(0.15)
    assert comparison.figures["percent_of_a_core"] == pytest.approx(0.25)
    assert delay.figures["ratio"] == pytest.approx(2.0)
