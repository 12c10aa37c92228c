"""One Spark session for all tests of the audit. Cases are batched: each is a domain of one table."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pubsub_lib.audit.ingest.input import Input, torn_ends
from pubsub_lib.audit.settings import AuditSettings, Listing
from pubsub_lib.audit.spark.session import adapt
from pubsub_lib.audit.spark.settled import together
from pubsub_lib.journal.rows import COLUMNS, Row, arrow_schema
from tests.unit.audit.generator import BOUND, GRACE, SILENCE, TORN, WINDOW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pubsub_lib.audit.rules.pipeline import Tables

LITTLE, MUCH = 0, 16 << 20
"""Sizes of journals: for little data the audit uses one partition."""
SETTINGS = AuditSettings(WINDOW, GRACE, BOUND, SILENCE)


class Audit(Protocol):
    """Audits many cases together (domain -> rows), like journals of the given size. ``listed``: see the pipeline."""

    def __call__(
        self, cases: Mapping[str, Sequence[Row]], size: int, listed: Mapping[str, Listing] | None = None,
        settings: AuditSettings = SETTINGS,
    ) -> "Tables": ...  # fmt: skip


@pytest.fixture
def little(spark: "SparkSession") -> Iterator["SparkSession"]:
    """The session as it is for little data."""
    adapt(spark, LITTLE)
    yield spark
    adapt(spark, MUCH)


@pytest.fixture(scope="session")
def audit(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """See :class:`Audit`."""
    from pubsub_lib.audit.rules.pipeline import FAST_PATH_FROM
    from pubsub_lib.audit.rules.pipeline import audit as run

    def all_at_once(
        cases: Mapping[str, Sequence[Row]], size: int, listed: Mapping[str, Listing] | None = None,
        settings: AuditSettings = SETTINGS,
    ) -> "Tables":  # fmt: skip
        adapt(spark, size)
        domains = {row.run: domain for domain, rows in cases.items() for row in rows}
        torn: dict[str, list[tuple[str, int]]] = {}
        for one, last in TORN:
            if one in domains:
                torn.setdefault(domains[one], []).append((one, last))
        path = tmp_path_factory.mktemp("cases") / "cases.parquet"
        write_cases(path, cases)
        rows = together(spark.read.parquet(str(path)))
        ends = torn_ends(spark, Input({}, (), torn))
        return run(rows, settings, FAST_PATH_FROM if size == LITTLE else 0, ends, listed)

    return all_at_once


def write_cases(path: Path, cases: Mapping[str, Sequence[Row]]) -> None:
    schema = arrow_schema().append(pa.field("domain", pa.string()))
    rows = [row for found in cases.values() for row in found]
    columns: dict[str, list[object]] = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
    columns["changes"] = [[msgspec.structs.asdict(each) for each in row.changes] for row in rows]
    columns["domain"] = [domain for domain, found in cases.items() for _ in found]
    pq.write_table(pa.Table.from_pydict(columns, schema=schema), path)
