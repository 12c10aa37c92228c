"""The generated journals for the audit that prepares the archive."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pubsub_lib.audit.ingest.input import gather, load
from pubsub_lib.audit.prepare import sample
from pubsub_lib.audit.report.aggregates import aggregate
from pubsub_lib.audit.report.collect import collect
from pubsub_lib.audit.settings import AuditSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_sample_has_faults_of_most_kinds_so_that_an_audit_takes_all_steps(
    little: "SparkSession", tmp_path: Path
) -> None:
    from pubsub_lib.audit.rules.pipeline import audit

    sample.write(tmp_path)
    gathered = gather({"": [tmp_path]}, tmp_path / "scratch")
    assert gathered.problems == []
    tables = audit(load(little, gathered), AuditSettings())
    found = collect(tables, aggregate(tables, AuditSettings()), AuditSettings())
    of = {(each.of, each.verdict) for each in found.counts}
    assert of >= {
        ("delivery", "ok"), ("delivery", "repaired"), ("delivery", "corrupt"), ("delivery", "duplicate_dropped"),
        ("delivery", "unknown"), ("state", "wrong_value"), ("store", "unpublished"),
    }  # fmt: skip
    assert found.silent == ["replica-replica"]
    assert found.skews
    assert found.losses
    assert found.keys
    assert all(each["trail"] for each in found.first)
