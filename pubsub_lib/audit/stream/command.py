"""``pubsub-audit follow``: prints the verdicts of each window when it closes (docs/audit.md, "Following")."""

import argparse
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pubsub_lib.audit.guard import usable
from pubsub_lib.audit.ingest.input import size_of
from pubsub_lib.audit.lake import folder as lake
from pubsub_lib.audit.lake.command import check_append_options
from pubsub_lib.audit.option_types import seconds
from pubsub_lib.audit.report.report import new_folder
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.session import first_line, session, tuning
from pubsub_lib.audit.stream import windows
from pubsub_lib.audit.stream.feed import Feed
from pubsub_lib.audit.stream.findings import last_findings
from pubsub_lib.audit.stream.followed_store import FollowedStore
from pubsub_lib.audit.stream.intake import Intake
from pubsub_lib.audit.stream.judge import spark_judge
from pubsub_lib.audit.stream.loop import AuditLoop, Round
from pubsub_lib.audit.stream.output import Output
from pubsub_lib.audit.stream.tables import Stream
from pubsub_lib.command import streams
from pubsub_lib.command.exit_codes import CLOSED_PIPE
from pubsub_lib.command.stop_signal import StopSignal
from pubsub_lib.errors import ConfigError, JournalError, StoreError
from pubsub_lib.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options that ``run`` does not have, or that differ from those of ``run``."""
    command.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="folder for the results of each closed window"
    )
    command.add_argument(
        "--checkpoint", type=Path, metavar="FOLDER", help="folder for the state that a restart needs (OUT/checkpoint)"
    )
    command.add_argument(
        "--every", type=seconds, default=10.0, metavar="SECONDS", help="pause between two rounds (%(default)s)"
    )
    command.add_argument("--once", action="store_true", help="run one round: read all files, close windows, and end")
    command.add_argument(
        "--patience", type=seconds, default=60.0, metavar="SECONDS",
        help="time for which a missing file, or one that may still be copied, is waited for (%(default)s)",
    )  # fmt: skip


def run(
    options: argparse.Namespace, settings: AuditSettings, folders: Mapping[str, Sequence[Path]],
    database: Settings | str = "",
) -> int:  # fmt: skip
    """Follow until a signal arrives (with ``--once``: one round). Returns the exit code of all closed windows and of
    the last findings. ``database``: that of the store of the one domain; "": without a store.

    Blocks. Raises ConfigError for invalid options and for a checkpoint that does not fit, and StoreError when the store
    cannot be opened. Call it in the main thread.
    """
    for name in ("every", "patience"):
        if getattr(options, name) < 0:
            raise ConfigError(f"--{name} is {getattr(options, name)}; it cannot be negative")
    if options.every > threading.TIMEOUT_MAX:
        raise ConfigError(f"--every is {options.every}; it can be {threading.TIMEOUT_MAX} at most")
    check_append_options(options)
    checkpoint = options.checkpoint or options.out / "checkpoint"
    with usable(options.out):
        if not checkpoint.exists() and (options.out / "windows").exists():
            raise ConfigError(
                f"{options.out} has windows, but {checkpoint} is missing; restore it, or name a new --out"
            )
    try:
        new_folder(options.out)
        new_folder(checkpoint)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be created ({error.strerror}); name another folder") from error
    if options.append:
        lake.prepare(options.append, settings.window)
    spark, ours = session(
        options.master,
        memory=options.memory,
        quiet=not sys.stderr.isatty(),
        # A long follower gains from optimized code; a single round ends before that pays.
        options=tuning(size_of(folders)) if options.once else None,
    )
    try:
        return _run(options, settings, folders, checkpoint, spark, database)
    finally:
        if ours:
            _stop(spark)


def _stop(spark: "SparkSession") -> None:
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):  # its process may have ended, which was reported
        spark.stop()


def _run(
    options: argparse.Namespace, settings: AuditSettings, folders: Mapping[str, Sequence[Path]], checkpoint: Path,
    spark: "SparkSession", database: Settings | str,
) -> int:  # fmt: skip
    with usable(checkpoint):
        stream = Stream(spark, checkpoint)
        intake = Intake(folders, stream.spool, options.patience)
        store = FollowedStore(database, checkpoint) if database else None
        judge = spark_judge(spark, settings, options.out, stream, store)
        loop = AuditLoop(
            stream, intake, judge, settings, checkpoint, lambda: time.time_ns() // 1000, options.expected,
            store=store is not None,
        )  # fmt: skip
    try:
        with usable(options.out):
            until = loop.closed_until
            there = windows.written(options.out)
            before = [each for each in there if each.window < until.get(each.domain, each.window)]
            output = Output(before, options.format == "json", settings, last_findings(options.out))
            feed = None
            if options.append:
                feed = Feed(options.append, options.out, checkpoint, settings, spark, options.keep_days)
        # A signal lets the present round complete. The same signal again ends the process; no result is lost by that.
        with StopSignal(end_at_second=True) as stop:
            while _round(loop, output, options.out, feed, last=options.once):
                if options.once or stop.wait(options.every):
                    break
    except BrokenPipeError:
        streams.discard_unwritable()
        return CLOSED_PIPE
    finally:
        loop.close()
    try:
        # The last round may have failed after it wrote windows.
        output.count(windows.written(options.out), last_findings(options.out))
    except OSError as error:
        output.broken = True
        what = error.filename or options.out
        output.problem(f"{what} cannot be read ({error.strerror or error}); correct its disk and start follow again")
    return output.exit_code(loop.problems)


def _round(loop: AuditLoop, output: "Output", out: Path, feed: Feed | None = None, *, last: bool) -> bool:
    """Run one round. Returns whether another round may follow; it repeats a round that failed by Spark or a disk."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    output.broken = True
    try:
        found = loop.round(last=last)
    except (PySparkException, Py4JJavaError) as error:
        output.behind = True
        output.problem(f"Spark failed, the round is retried: {first_line(error)}; give more --memory if it was short")
        return True
    except (Py4JError, ConnectionError) as error:  # before OSError, because ConnectionError is an OSError
        output.problem(
            f"Spark's Java process ended ({first_line(error)}); if the system killed it because memory was short, give "
            "less --memory or add memory; start follow again, no result is lost"
        )
        return False
    except (StoreError, JournalError) as error:
        output.behind = True
        output.problem(f"{error}; windows wait, and the round is retried")
        return True
    except OSError as error:
        output.behind = True
        output.problem(f"{error.filename or 'a file'} cannot be used ({error.strerror or error}); it is retried")
        return True
    if output.behind:  # a round that did not end may have written windows, and later rounds do not return them
        try:
            found = msgspec.structs.replace(found, closed=output.with_missed(found.closed, windows.written(out)))
        except OSError as error:  # a later round returns them
            output.problem(f"{error.filename or out} cannot be read ({error.strerror or error}); it is retried")
    if last:
        output.unread(found.young)
    if not _print(found, output, out):
        return False
    output.broken = feed is not None and not _fed(feed, found, loop, output)
    return True


def _fed(feed: Feed, found: Round, loop: AuditLoop, output: "Output") -> bool:
    """Add the windows of a round to the lake. Returns whether that succeeded; else a later round repeats it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        for sentence in feed.add(found.closed, loop.parts, loop.closed_until, loop.problems):
            output.problem(sentence)
    except (PySparkException, Py4JError) as error:
        output.problem(f"nothing was added to {feed.lake}, it is retried: Spark failed: {first_line(error)}")
    except (ConfigError, OSError) as error:
        output.problem(f"{error}; it is retried")
    else:
        return not feed.incomplete
    return False


def _print(found: Round, output: "Output", out: Path) -> bool:
    """Print a round. Returns whether that succeeded; a failure does not repeat the round. Raises BrokenPipeError."""
    try:
        output.round(found)
    except BrokenPipeError:
        raise
    except OSError as error:
        streams.discard_unwritable()
        output.problem(
            f"the output cannot be written ({error.strerror or error}); free disk space and start follow again; "
            f"all closed windows are in {out}"
        )
        return False
    return True
