"""The settings of a journal: folder, file sizes and retention."""

from typing import Annotated

import msgspec
from msgspec import Meta

from pubsub_lib.core.limits import Positive
from pubsub_lib.core.timing import Seconds


class JournalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Folder, file sizes and retention of a journal. Sizes in bytes, times in seconds."""

    folder: Annotated[
        str,
        Meta(
            description="Folder in which every writer, service and replica writes its journal for the audit; empty "
            "means none.",
            extra={"sample_default": "/var/lib/pubsub_lib/journals"},
        ),
    ] = ""
    mark_seconds: Annotated[
        Seconds, Meta(description="How often a mark record is written to a journal, also without events. In seconds.")
    ] = 2.0
    roll_bytes: Annotated[
        Positive, Meta(description="A journal file that reaches this size, in bytes, is converted to Parquet.")
    ] = 64 << 20
    roll_seconds: Annotated[
        Seconds, Meta(description="A journal file that reaches this age is converted to Parquet. In seconds.")
    ] = 300.0
    keep_bytes: Annotated[
        Positive,
        Meta(
            description="Maximum total size of the finished journal files in the folder, in bytes. The oldest are "
            "removed first."
        ),
    ] = 10 << 30
    keep_seconds: Annotated[
        Seconds,
        Meta(
            description="Finished journal files that reach this age are removed; the time between two files counts at "
            "most one day. In seconds."
        ),
    ] = 7 * 86400.0
    to_parquet: bool = True
    """False: finished files are not converted until a program calls ``pubsub_lib.journal.compaction.compact``."""
