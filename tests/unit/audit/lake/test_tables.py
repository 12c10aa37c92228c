"""Schemas, days and percentiles of a lake."""

from datetime import date

import pyarrow as pa
import pytest

from pubsub_lib.audit.lake.tables import DAY, KIND, ORDER, SCHEMAS, begin_of, day_of, percentiles
from pubsub_lib.audit.report import anomalies, summary

TYPES = {"string": pa.string(), "bigint": pa.int64()}


def test_table_of_anomalies_has_the_columns_of_an_audit() -> None:
    schema = SCHEMAS["anomaly"]
    assert schema.names == ["domain", "window", *list(anomalies.COLUMNS)[1:]]
    assert all(schema.field(name).type == TYPES[kind] for name, kind in anomalies.COLUMNS.items())
    assert anomalies.ORDER == ORDER
    assert {*KIND, *ORDER} <= {*schema.names}


def test_percentiles_are_those_of_an_audit() -> None:
    counts = [(5, 1), (-3, 1), (7, 97), (90, 1)]
    assert percentiles(counts) == {"p50": 7, "p95": 7, "p99": 7, "p999": 90}
    assert set(percentiles(counts)) == set(summary.PERCENTILES)
    assert percentiles([]) == {"p50": None, "p95": None, "p99": None, "p999": None}


@pytest.mark.parametrize(
    ("micros", "day"),
    [
        (0, date(1970, 1, 1)), (-1, date(1969, 12, 31)), (DAY, date(1970, 1, 2)), (2**62, None), (-(2**62), None),
        (begin_of(date(2026, 11, 26)), date(2026, 11, 26)), (begin_of(date(2026, 11, 26)) - 1, date(2026, 11, 25)),
    ],
)  # fmt: skip
def test_day_of_a_time(micros: int, day: date | None) -> None:
    assert day_of(micros) == day
