"""The three measurements, each in a separate process: the audit, a bare chain of its joins and counts, and only the
join of the chain. ``python -m _bench_audit.chain WHAT FOLDER MEMORY`` prints one as JSON.
"""

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pubsub_lib.audit.ingest import input as audit_input
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.session import session, tuning
from pubsub_lib.errors import PubSubError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AUDIT: Final = "audit"
BARE: Final = "bare"
JOIN: Final = "join"
_ID: Final = ["domain", "uuid", "topic", "sequence"]


class Measured(msgspec.Struct, frozen=True):
    """One run. ``seconds``: of the jobs, without the start of the JVM; ``processor``: seconds of the JVM's threads;
    ``megabytes``: the JVM's peak resident memory, in 10^6 bytes.
    """

    seconds: float
    processor: float
    megabytes: float
    verdicts: Mapping[str, int]


def measure(what: str, folder: Path, memory: str) -> Measured:
    """Run one measurement. Blocks; raises PubSubError."""
    gathered = audit_input.gather({"": [folder]}, folder)
    if gathered.empty or gathered.problems:
        raise PubSubError(f"{folder} does not hold the journals of this tool; remove it and run the tool again")
    size = sum(path.stat().st_size for paths in gathered.files.values() for path in paths)
    spark, _ = session(memory=memory, options=tuning(size))
    try:
        rows = audit_input.load(spark, gathered)
        process = _jvm(spark)
        before, begun = _processor(process), time.monotonic()
        verdicts = {AUDIT: _audit, BARE: _bare, JOIN: _join}[what](rows)
        seconds = time.monotonic() - begun
        return Measured(round(seconds, 1), round(_processor(process) - before, 1), _peak(process), verdicts)
    finally:
        spark.stop()


def _audit(rows: "DataFrame") -> dict[str, int]:
    """All work of ``pubsub-audit run`` until it prints its summary. Returns its verdicts, and an exit code that is not
    0.
    """
    from pubsub_lib.audit.report.aggregates import aggregate
    from pubsub_lib.audit.report.collect import collect
    from pubsub_lib.audit.rules.pipeline import audit

    settings = AuditSettings()
    tables = audit(rows, settings)
    summary = collect(tables, aggregate(tables, settings), settings)
    found = {each.verdict: each.count for each in summary.counts}
    return {**found, "exit code": summary.exit_code} if summary.exit_code else found


def _joined(rows: "DataFrame") -> "DataFrame":
    """Published messages joined with applied ones, each pair with a verdict, without using the audit's definitions."""
    from pyspark.sql import functions as F  # noqa: N812

    data = rows.filter(F.col("kind") == "data")
    columns: Sequence[str] = (*_ID, "wall", "hash", "written")
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
    return published.join(applied, _ID, "full").withColumn("verdict", verdict)


def _bare(rows: "DataFrame") -> dict[str, int]:
    """The minimum that every audit must read, join and count: records of each run, verdicts by replica and window,
    the result of each stream, percentiles of latencies.
    """
    from pyspark.sql import functions as F  # noqa: N812

    holes = F.max("number") - F.count("*")
    rows.groupBy("domain", "run").agg(holes, F.min("wall"), F.max("wall")).collect()
    joined = _joined(rows).persist()
    window = F.col("wall") - F.col("wall") % AuditSettings().window
    counted = joined.groupBy("domain", "name", window.alias("window"), "verdict").count().collect()
    ends = F.min("sequence"), F.max("sequence"), F.count("*"), F.count(F.when(F.col("verdict") == "ok", 1))
    joined.groupBy("domain", "name", "uuid", "topic").agg(*ends).collect()
    hops = F.col("wall") - F.col("written"), F.col("applied") - F.col("wall")
    percentiles = [F.percentile_approx(hop, [0.5, 0.95, 0.99, 0.999, 1.0]) for hop in hops]
    joined.groupBy("domain", "name").agg(*percentiles).collect()
    found: Counter[str] = Counter()
    for row in counted:
        found[row["verdict"]] += row["count"]
    return dict(found)


def _join(rows: "DataFrame") -> dict[str, int]:
    """The join and one count, as the minimum of an audit."""
    return {row["verdict"]: row["count"] for row in _joined(rows).groupBy("verdict").count().collect()}


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


if __name__ == "__main__":
    try:
        print(msgspec.json.encode(measure(sys.argv[1], Path(sys.argv[2]), sys.argv[3])).decode())
    except (PubSubError, OSError) as error:
        sys.exit(" ".join(str(error).split()))
