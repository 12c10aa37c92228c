"""The metrics file has the numbers of the summary, and is written in one step."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pubsub_lib.audit.report.metrics import write_metrics
from pubsub_lib.audit.report.summary import nothing
from tests.unit.audit.pages import BEGIN, HOSTILE, SECOND, summary


def written(file: Path) -> dict[tuple[str, ...], float]:
    """Name and values of labels, by the labels' names -> value, as Prometheus reads it."""
    families = text_string_to_metric_families(file.read_text())
    samples = [each for family in families for each in family.samples]
    return {(each.name, *[each.labels[name] for name in sorted(each.labels)]): each.value for each in samples}


def test_every_number_of_the_summary(tmp_path: Path) -> None:
    write_metrics(summary(10), tmp_path / "audit.prom")
    found = written(tmp_path / "audit.prom")
    assert [each.name for each in tmp_path.iterdir()] == ["audit.prom"]
    assert found["pubsub_audit_exit_code",] == 63
    assert found["pubsub_audit_time_seconds",] == (BEGIN + 7200 * SECOND) / SECOND
    assert found["pubsub_audit_problems",] == 3
    results = {labels[2]: value for labels, value in found.items() if labels[0] == "pubsub_audit_deliveries"}
    assert results == {
        "expected": 1_000_010, "delivered": 999_963, "repaired": 7, "lost": 10, "pending": 10, "excused": 15,
        "unknown": 5,
    }  # fmt: skip
    assert found["pubsub_audit_verdicts", "", "", "", "delivery", "lost"] == 1
    assert found["pubsub_audit_latency_seconds", "", "publish_apply", "0.999"] == pytest.approx(0.021)
    assert found["pubsub_audit_latency_seconds", "", "commit_publish", "1"] == pytest.approx(1.234567)
    assert found["pubsub_audit_negative_latencies", "", "receive_apply"] == 2
    assert found["pubsub_audit_detector_missed", ""] == 5


def test_every_fault_has_a_sample_so_that_alerts_can_resolve(tmp_path: Path) -> None:
    write_metrics(nothing(["no journals in x"]), tmp_path / "audit.prom")
    faults = {labels[1]: value for labels, value in written(tmp_path / "audit.prom").items() if len(labels) == 2}
    assert faults == {"loss": 0, "corrupt": 0, "divergence": 0, "late": 0, "policy": 0, "incomplete": 1}


def test_hostile_texts_of_data_are_escaped(tmp_path: Path) -> None:
    one = summary(3, HOSTILE + '"\n}')
    write_metrics(one, tmp_path / "audit.prom")
    assert written(tmp_path / "audit.prom")
