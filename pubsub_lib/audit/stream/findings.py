"""Writes what a follower finds in the store, the state and the publishers (docs/audit.md, "Following").

These findings have no window. They come from all journals that the follower has read, and from the store as it was
read last, so each result replaces the one before.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pubsub_lib.audit.durable import make, rename
from pubsub_lib.audit.report.summary import Count, exit_code
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.stream.spool import folder_of
from pubsub_lib.audit.stream.windows import Span
from pubsub_lib.errors import ConfigError

if TYPE_CHECKING:
    from pubsub_lib.audit.rules.pipeline import Tables

SUMMARY: Final = "summary.json"
TABLES: Final = ("store", "state", "publisher")
_NO_ANOMALY: Final = frozenset({"behind", "contradicted"})


class Findings(msgspec.Struct, frozen=True):
    """The findings of a domain. ``number``: 1 is the first result; ``until``: the end of the closed windows, in
    microseconds; ``anomalies``: the number of rows that are anomalies.
    """

    domain: str
    number: int
    until: int
    exit_code: int
    anomalies: int
    counts: list[Count]


def folder_of_findings(out: Path, domain: str, number: int) -> Path:
    """The folder of the tables of a result."""
    return out / "findings" / folder_of(domain) / f"result={number:09d}"


def last_findings(out: Path) -> list[Findings]:
    """The last result of each domain in the folder. Blocks while it reads their summaries. Raises ConfigError when one
    is damaged, and OSError.
    """
    found = (_last(folder) for folder in sorted(out.glob("findings/domain=*")))
    return [each for each in found if each is not None]


def _last(folder: Path) -> Findings | None:
    path = max(folder.glob(f"result=*/{SUMMARY}"), default=None)
    if path is None:
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Findings)
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{path} is not the result of a follower ({error}); restore it from a backup, or name a new --out"
        ) from error


def write_findings(
    tables: "Tables", spans: Mapping[str, Span], settings: AuditSettings, out: Path
) -> list[Findings]:  # fmt: skip
    """Write the findings of the domains with closed windows, and remove the results before. Returns the new ones.

    Blocks until Spark's jobs are done, and the folders are on the disk. Raises Spark's errors, ConfigError and OSError.
    """
    every = {name: getattr(tables, name).toArrow() for name in TABLES}
    found = []
    for domain, span in sorted(spans.items()):
        of_domain = {name: table.filter(pc.equal(table["domain"], domain)) for name, table in every.items()}
        before = _last(out / "findings" / folder_of(domain))
        one = summed(domain, before.number + 1 if before else 1, span.end, of_domain, settings)
        _keep(one, of_domain, out)
        found.append(one)
    return found


def summed(
    domain: str, number: int, until: int, tables: Mapping[str, pa.Table], settings: AuditSettings
) -> Findings:  # fmt: skip
    """The summary of the tables of one domain."""
    counts = [
        Count(domain, of, verdict, "", "", rows)
        for of, table in sorted(tables.items())
        for verdict, rows in sorted(_counted(table))
    ]
    code = exit_code({each.verdict for each in counts}, settings, incomplete=False, problems=())
    anomalies = sum(each.count for each in counts if each.verdict not in _NO_ANOMALY)
    return Findings(domain, number, until, code, anomalies, counts)


def _counted(table: pa.Table) -> Iterable[tuple[str, int]]:
    counted = table.group_by("verdict").aggregate([([], "count_all")])
    return zip(counted["verdict"].to_pylist(), counted["count_all"].to_pylist(), strict=True)


def _keep(one: Findings, tables: Mapping[str, pa.Table], out: Path) -> None:
    target = folder_of_findings(out, one.domain, one.number)
    aside = out / ".findings"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for name, table in tables.items():
        if table.num_rows:
            (aside / name).mkdir()
            pq.write_table(table, aside / name / "part-0.parquet")
    (aside / SUMMARY).write_bytes(msgspec.json.format(msgspec.json.encode(one)))
    make(target.parent)
    rename(aside, target)
    for earlier in target.parent.glob("result=*"):
        if earlier.name < target.name:
            shutil.rmtree(earlier)
