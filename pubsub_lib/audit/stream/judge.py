"""Runs the pipeline of ``run`` for the windows that a follower closes (docs/audit.md, "Following")."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pubsub_lib.audit.ingest import input as journals
from pubsub_lib.audit.report.summary import Problem
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.session import adapt
from pubsub_lib.audit.stream import windows
from pubsub_lib.audit.stream.tables import Stream
from pubsub_lib.audit.stream.windows import Closed, Span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Judged(msgspec.Struct, frozen=True):
    """The new windows, and all problems of the domains by the journals read so far."""

    closed: Sequence[Closed]
    problems: Sequence[Problem] = ()


Judge = Callable[[Mapping[str, Sequence[Path]], Mapping[str, Span]], Judged]
"""Computes the verdicts of windows of domains from these files, and writes them."""


def spark_judge(spark: "SparkSession", settings: AuditSettings, out: Path, stream: Stream) -> Judge:
    """A judge that runs the pipeline over all files and keeps the closed windows in ``out``. It blocks until Spark's
    jobs are done, and raises Spark's errors, ConfigError and OSError.
    """

    def judge(files: Mapping[str, Sequence[Path]], spans: Mapping[str, Span]) -> Judged:
        from pubsub_lib.audit.report.evidence import Followed, problems
        from pubsub_lib.audit.rules.pipeline import audit

        spool = journals.Input(files, (), stream.torn)
        adapt(spark, spool.size)
        rows = journals.load(spark, spool)
        if spool.cacheable:
            rows = rows.persist()
        try:
            tables = audit(rows, settings, torn=journals.torn_ends(spark, spool))
            try:
                followed = {domain: Followed(span.end, span.begun) for domain, span in spans.items()}
                missing = problems(tables, settings, followed)
                return Judged(windows.write(tables, spans, settings, out), missing)
            finally:
                tables.unpersist()
        finally:
            rows.unpersist()

    return judge
