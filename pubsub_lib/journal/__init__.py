"""Journals: records of the messages and actions of every participant, for the audit (docs/audit.md, "Journals").

A :class:`~pubsub_lib.journal.writer.Journal` appends entries to a file; finished files become Parquet
(:mod:`~pubsub_lib.journal.compaction`); both forms are read as :class:`~pubsub_lib.journal.rows.Row`
(:mod:`~pubsub_lib.journal.reading`). Writing needs only msgspec and xxhash; Parquet needs the extra ``journal``.
"""

from pubsub_lib.journal.settings import JournalSettings
from pubsub_lib.journal.writer import Journal, open_journal

__all__ = ["Journal", "JournalSettings", "open_journal"]
