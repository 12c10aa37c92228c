"""Publishers that the store contradicted are counted by the audit, and named in a table."""

import pytest

from pubsub_lib.audit.report.aggregates import aggregate
from pubsub_lib.audit.report.collect import collect
from pubsub_lib.audit.report.report import text
from pubsub_lib.audit.report.summary import Count
from tests.unit.audit.conftest import LITTLE, SETTINGS, Audit
from tests.unit.audit.generator import BEGIN
from tests.unit.audit.scenario import Scenario

UUID = "f" * 32


@pytest.mark.long
def test_contradicted_publishers_are_counted_and_named(audit: Audit) -> None:
    world = Scenario("d")
    world.follow()
    world.deliver(3)
    of = {"kind": "contradicted", "service": "api-1", "uuid": UUID, "topic": "t"}
    for number, cause in enumerate(("", "quarantined")):
        world.replica.record(BEGIN + number, **of, cause=cause, position=9 + number, nonce=7, prev_position=3)
    world.service.record(BEGIN, **of, cause="quarantined", position=9, nonce=7)
    tables = audit({"d": world.rows()}, LITTLE)
    found = {(row["side"], row["uuid"], row["position"], row["to_position"], row["cause"])
             for row in tables.publisher.collect()}  # fmt: skip
    assert found == {
        ("replica", UUID, 9, 3, ""), ("replica", UUID, 10, 3, "quarantined"), ("service", UUID, 9, 0, "quarantined"),
    }  # fmt: skip
    summary = collect(tables, aggregate(tables, SETTINGS), SETTINGS)
    assert Count("d", "publisher", "contradicted", "", "", 3) in summary.counts
    assert summary.exit_code == 0, "a restored backup causes it, too"
    assert any(line.split() == ["publisher", "contradicted", "3"] for line in text(summary))
