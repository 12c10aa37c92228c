"""What is measured, one at a time in a process of its own: the audit, and a bare chain of its joins and counts."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pubsub_lib.audit import input as audit_input
from pubsub_lib.audit.session import session, tuning
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.errors import PubSubError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BARE: Final = "bare"
AUDIT: Final = "audit"
_ID: Final = ["domain", "uuid", "topic", "sequence"]


class Measured(msgspec.Struct, frozen=True):
    """One run. ``seconds``: of the jobs, without the start of the JVM; ``processor``: of the JVM's threads;
    ``megabytes``: the most that the JVM had resident, in 10^6 bytes.
    """

    seconds: float
    processor: float
    megabytes: float
    verdicts: Mapping[str, int]


def measure(what: str, folder: Path, memory: str) -> Measured:
    """Run one of the two. Blocks; raises PubSubError."""
    gathered = audit_input.gather({"": [folder]}, folder)
    if gathered.empty or gathered.problems:
        raise PubSubError(f"{folder} does not hold the journals of this tool; remove it and run the tool again")
    size = sum(path.stat().st_size for paths in gathered.files.values() for path in paths)
    spark, _ = session(memory=memory, options=tuning(size))
    try:
        rows = audit_input.load(spark, gathered)
        process = _jvm(spark)
        before, begun = _processor(process), time.monotonic()
        verdicts = _bare(rows) if what == BARE else _audit(rows)
        seconds = time.monotonic() - begun
        return Measured(round(seconds, 1), round(_processor(process) - before, 1), _peak(process), verdicts)
    finally:
        spark.stop()


def _audit(rows: "DataFrame") -> dict[str, int]:
    """Every verdict of the pipeline, counted."""
    from pubsub_lib.audit.pipeline import audit

    tables = audit(rows, AuditSettings())
    found: dict[str, int] = {}
    for table in (tables.delivery, tables.strays, tables.store, tables.state):
        found.update({row["verdict"]: row["count"] for row in table.groupBy("verdict").count().collect()})
    return found


def _bare(rows: "DataFrame") -> dict[str, int]:
    """Read, join what was published with what was applied, group, count: no word of the definitions in it."""
    from pyspark.sql import functions as F  # noqa: N812

    data = rows.filter(F.col("kind") == "data")
    columns: Sequence[str] = (*_ID, "wall", "hash", "position")
    published = data.filter(F.col("outcome") == "sent").select(*columns)
    applied = data.filter((F.col("side") == "replica") & (F.col("outcome") == "applied")).select(
        *_ID, "name", F.col("wall").alias("applied"), F.col("hash").alias("applied_hash")
    )
    verdict = (
        F.when(F.col("wall").isNull(), "phantom")
        .when(F.col("applied").isNull(), "lost")
        .when(F.col("hash") != F.col("applied_hash"), "corrupt")
        .when(F.col("applied") - F.col("wall") > AuditSettings().bound, "late")
        .otherwise("ok")
    )
    joined = published.join(applied, _ID, "full").withColumn("verdict", verdict)
    counted = joined.groupBy("domain", "name", "uuid", "topic", "verdict").count()
    return {
        row["verdict"]: row["count"]
        for row in counted.groupBy("verdict").sum("count").toDF("verdict", "count").collect()
    }


def _jvm(spark: "SparkSession") -> Path:
    jvm = spark._jvm  # the bridge to Java
    assert jvm is not None
    return Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}")


def _processor(process: Path) -> float:
    """Seconds of user and system time; Linux counts in hundredths."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _peak(process: Path) -> float:
    (line,) = [line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM")]
    return round(int(line.split()[1]) * 1024 / 1e6)
