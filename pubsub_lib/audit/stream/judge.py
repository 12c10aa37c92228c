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
from pubsub_lib.audit.stream.findings import Findings, write_findings
from pubsub_lib.audit.stream.followed_store import FollowedStore
from pubsub_lib.audit.stream.tables import Stream
from pubsub_lib.audit.stream.windows import Closed, Span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Judged(msgspec.Struct, frozen=True):
    """The new windows, and all problems and findings of the domains by the journals read so far."""

    closed: Sequence[Closed]
    problems: Sequence[Problem] = ()
    findings: Sequence[Findings] = ()


Judge = Callable[[Mapping[str, Sequence[Path]], Mapping[str, Span]], Judged]
"""Computes the verdicts of windows of domains from these files, and writes them."""


def spark_judge(
    spark: "SparkSession", settings: AuditSettings, out: Path, stream: Stream, store: FollowedStore | None = None
) -> Judge:  # fmt: skip
    """A judge that runs the pipeline over all files, and over the ``store``, which it reads after them. It keeps the
    closed windows and the findings in ``out``. It blocks until Spark's jobs are done, and raises Spark's errors,
    ConfigError and OSError, StoreError when the store cannot be read, and JournalError when that cannot be written.
    """

    def judge(files: Mapping[str, Sequence[Path]], spans: Mapping[str, Span]) -> Judged:
        from pubsub_lib.audit.report.evidence import Followed, problems
        from pubsub_lib.audit.rules.pipeline import audit

        stored = store.read() if store is not None else None
        if stored is not None:
            files = {domain: [*of_domain, stored.path] for domain, of_domain in files.items()}
        spool = journals.Input(files, (), stream.torn)
        adapt(spark, spool.size)
        rows = journals.load(spark, spool)
        if spool.cacheable:
            rows = rows.persist()
        try:
            until = {domain: span.end for domain, span in spans.items()}
            tables = audit(rows, settings, torn=journals.torn_ends(spark, spool), until=until)
            try:
                followed = {domain: Followed(span.end, span.begun) for domain, span in spans.items()}
                missing = problems(tables, settings, followed)
                if stored is not None and stored.lacking and not rows.filter("kind = 'data'").isEmpty():
                    missing += [Problem(domain, "empty store", stored.lacking) for domain in spans]
                closed = windows.write(tables, spans, settings, out)
                return Judged(closed, missing, write_findings(tables, spans, settings, out))
            finally:
                tables.unpersist()
        finally:
            rows.unpersist()

    return judge
