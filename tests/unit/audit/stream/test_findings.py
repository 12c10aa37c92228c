"""The findings of a follower: the last result of each domain, whole or not at all."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pubsub_lib.audit.report.summary import Count
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.stream import findings
from pubsub_lib.audit.stream.findings import folder_of_findings, last_findings, write_findings
from pubsub_lib.audit.stream.windows import Span
from pubsub_lib.errors import ConfigError

if TYPE_CHECKING:
    from pubsub_lib.audit.rules.pipeline import Tables


def tables(**found: list[tuple[str, str]]) -> "Tables":
    """Tables of (domain, verdict)."""

    def table(name: str) -> Any:
        rows = [{"domain": domain, "verdict": verdict} for domain, verdict in found.get(name, [])]
        schema = pa.schema([("domain", pa.string()), ("verdict", pa.string())])
        return SimpleNamespace(toArrow=lambda: pa.Table.from_pylist(rows, schema=schema))

    return cast("Tables", SimpleNamespace(**{name: table(name) for name in ("store", "state", "publisher")}))


def test_last_result_of_a_domain_replaces_the_one_before(tmp_path: Path) -> None:
    first = tables(
        state=[("a", "missing"), ("a", "behind"), ("a", "missing"), ("b", "unknown"), ("c", "zombie")],
        store=[("a", "unpublished")],
        publisher=[("a", "contradicted")],
    )
    found = write_findings(first, {"a": Span(None, 60), "b": Span(None, 30)}, AuditSettings(), tmp_path)
    assert found == last_findings(tmp_path)
    assert [(each.domain, each.number, each.until, each.exit_code, each.anomalies) for each in found] == [
        ("a", 1, 60, 4, 3),
        ("b", 1, 30, 32, 1),
    ]
    assert found[0].counts == [
        Count("a", "publisher", "contradicted", "", "", 1),
        Count("a", "state", "behind", "", "", 1),
        Count("a", "state", "missing", "", "", 2),
        Count("a", "store", "unpublished", "", "", 1),
    ]
    folder = folder_of_findings(tmp_path, "a", 1)
    assert pq.read_table(folder / "state", partitioning=None)["verdict"].to_pylist() == ["missing", "behind", "missing"]
    (one,) = write_findings(tables(), {"a": Span(60, 120)}, AuditSettings(), tmp_path)
    assert (one.number, one.until, one.exit_code, one.counts) == (2, 120, 0, [])
    assert last_findings(tmp_path) == [one, found[1]]
    assert not folder.exists()


def test_result_before_stays_when_the_next_one_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    spans = {"a": Span(None, 60)}
    first = write_findings(tables(state=[("a", "zombie")]), spans, AuditSettings(), tmp_path)

    def full(*_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(findings, "rename", full)
        write_findings(tables(), spans, AuditSettings(), tmp_path)
    assert last_findings(tmp_path) == first
    (second,) = write_findings(tables(), spans, AuditSettings(), tmp_path)
    assert last_findings(tmp_path) == [second]


def test_damaged_result_is_named(tmp_path: Path) -> None:
    write_findings(tables(), {"a": Span(None, 60)}, AuditSettings(), tmp_path)
    (folder_of_findings(tmp_path, "a", 1) / "summary.json").write_bytes(b"{")
    with pytest.raises(ConfigError, match="is not the result of a follower"):
        last_findings(tmp_path)
