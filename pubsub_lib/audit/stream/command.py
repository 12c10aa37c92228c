"""``pubsub-audit follow``: verdicts of windows as they close, as long as it runs (docs/audit.md, "Following")."""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pubsub_lib.audit.option_types import seconds
from pubsub_lib.audit.report.summary import INCOMPLETE
from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.audit.spark.session import first_line, session, tuning
from pubsub_lib.audit.stream import windows
from pubsub_lib.audit.stream.intake import Intake
from pubsub_lib.audit.stream.loop import AuditLoop, Round, spark_judge
from pubsub_lib.audit.stream.tables import Stream
from pubsub_lib.audit.stream.windows import Closed
from pubsub_lib.command import streams
from pubsub_lib.command.exit_codes import CLOSED_PIPE
from pubsub_lib.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_options(command: argparse.ArgumentParser) -> None:
    """Those that ``run`` does not have, or has otherwise."""
    command.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="where each closed window is written"
    )
    command.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="what a restart needs (OUT/checkpoint)")
    command.add_argument(
        "--every", type=seconds, default=10.0, metavar="SECONDS", help="between two looks (%(default)s)"
    )
    command.add_argument("--once", action="store_true", help="take in what is there, close what can be closed, and end")
    command.add_argument(
        "--patience", type=seconds, default=60.0, metavar="SECONDS",
        help="a file that is missing between others counts as lost after so long (%(default)s)",
    )  # fmt: skip


def run(options: argparse.Namespace, settings: AuditSettings, folders: Mapping[str, Sequence[Path]]) -> int:
    """Follow until a signal comes (with ``--once``: one round). Returns the exit code of all that was found so far.

    Blocks. Raises ConfigError for wrong options and for a checkpoint that does not fit. Only in the main thread.
    """
    for name in ("every", "patience"):
        if getattr(options, name) < 0:
            raise ConfigError(f"--{name} is {getattr(options, name)}; it cannot be negative")
    if options.every > threading.TIMEOUT_MAX:
        raise ConfigError(f"--every is {options.every}; it can be {threading.TIMEOUT_MAX} at most")
    checkpoint = options.checkpoint or options.out / "checkpoint"
    if not checkpoint.exists() and (options.out / "windows").exists():
        raise ConfigError(f"{options.out} has windows, but {checkpoint} is gone; bring it back, or name a new --out")
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be made ({error.strerror}); name another folder") from error
    spark, ours = session(
        options.master,
        memory=options.memory,
        quiet=not sys.stderr.isatty(),
        # Who follows for long compiles well; one round is over before that pays.
        options=tuning(_size(folders)) if options.once else None,
    )
    try:
        return _run(options, settings, folders, checkpoint, spark)
    finally:
        if ours:
            _stop(spark)


def _stop(spark: "SparkSession") -> None:
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):  # its process may be gone, which was told
        spark.stop()


def _size(folders: Mapping[str, Sequence[Path]]) -> int:
    """Bytes of the files that are there now."""
    size = 0
    for place in (place for places in folders.values() for place in places):
        with suppress(OSError):  # what cannot be read is told when it is taken in
            size += sum(each.stat().st_size for each in place.iterdir())
    return size


def _run(
    options: argparse.Namespace, settings: AuditSettings, folders: Mapping[str, Sequence[Path]], checkpoint: Path,
    spark: "SparkSession",
) -> int:  # fmt: skip
    stream = Stream(spark, checkpoint)
    intake = Intake(folders, stream.spool, options.patience)
    judge = spark_judge(spark, settings, options.out)
    loop = AuditLoop(stream, intake, judge, settings, checkpoint, lambda: time.time_ns() // 1000)
    said = Output(windows.written(options.out), options.format == "json", settings)
    try:
        with _stopped_by_signals() as stop:
            while _round(loop, said, options.out, last=options.once):
                if options.once or stop.wait(options.every):
                    break
    except BrokenPipeError:
        streams.discard_unwritable()
        return CLOSED_PIPE
    finally:
        loop.close()
    # A round that was broken off may have written windows that no later one brings.
    said.count(windows.written(options.out))
    return said.exit_code(loop.problems)


def _round(loop: AuditLoop, said: "Output", out: Path, *, last: bool) -> bool:
    """One round; whether another one may follow. What Spark or a disk broke off, that one repeats."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    said.broken = True
    try:
        found = loop.round(last=last)
    except (PySparkException, Py4JJavaError) as error:
        said.problem(f"Spark broke a round off: {first_line(error)}; give it more --memory if that is what it lacks")
        return True
    except (Py4JError, ConnectionError) as error:  # before OSError, of which the latter is one
        said.problem(
            f"Spark's Java process is gone ({first_line(error)}); if the system killed it for want of memory, give it "
            "less --memory or the host more; follow again, nothing is lost by that"
        )
        return False
    except OSError as error:
        said.problem(f"{error.filename or 'a file'} cannot be used ({error.strerror or error}); it is tried again")
        return True
    said.broken = not _print(found, said, out)
    return not said.broken


def _print(found: Round, said: "Output", out: Path) -> bool:
    """Whether it was told. That it was not is no broken round, which would be repeated. Raises BrokenPipeError."""
    try:
        said.round(found)
    except BrokenPipeError:
        raise
    except OSError as error:
        streams.discard_unwritable()
        said.problem(
            f"the output cannot be written ({error.strerror or error}); make room or name another, and follow again; "
            f"all closed windows stand in {out}"
        )
        return False
    return True


class Output:
    """What goes to stdout (closed windows) and stderr (problems), and the exit code that follows from it."""

    def __init__(self, before: Sequence[Closed], as_json: bool, settings: AuditSettings) -> None:
        self._code = 0
        self._any = False
        self.count(before)
        self._json = as_json
        self._settings = settings
        self._waiting: Mapping[str, tuple[str, int | None]] = {}
        self.broken = False

    def count(self, windows: Sequence[Closed]) -> None:
        """Let their exit codes count; any number of times."""
        for closed in windows:
            self._code |= closed.exit_code
            self._any = True

    def exit_code(self, problems: Sequence[str]) -> int:
        """Of all windows that were ever closed; incomplete when something could not be read, or none is closed."""
        incomplete = problems or self.broken or not self._any
        return self._code | INCOMPLETE if incomplete else self._code

    def round(self, one: Round) -> None:
        """Tell what a round brought. Raises OSError when that cannot be written; it counts all the same."""
        lines = []
        for closed in one.closed:
            self.count([closed])
            lines.append(self._line(closed))
        for problem in one.problems:
            self.problem(problem)
        for line in lines:
            print(line, flush=True)  # noqa: T201
        for domain, (run, until) in one.waiting.items():
            if self._waiting.get(domain, ("", None))[0] != run:
                known = "nothing of it is known yet" if until is None or until < 0 else f"known until {_time(until)}"
                print(f"pubsub-audit: windows{_of(domain)} wait for the run {run} ({known})", file=sys.stderr)  # noqa: T201
        self._waiting = one.waiting

    def problem(self, sentence: str) -> None:
        """One sentence to stderr."""
        print(f"pubsub-audit: {sentence}", file=sys.stderr, flush=True)  # noqa: T201

    def _line(self, closed: Closed) -> str:
        if self._json:
            return msgspec.json.encode({**msgspec.to_builtins(closed), "exit_code_so_far": self._code}).decode()
        end = _time(closed.window + self._settings.window)
        balance = msgspec.to_builtins(closed.balance)
        sums = " + ".join(f"{number} {name}" for name, number in balance.items() if name != "expected")
        wrong = f"{closed.anomalies} anomal{'y' if closed.anomalies == 1 else 'ies'}"
        return (
            f"{_time(closed.window)} to {end}{_of(closed.domain)}: {balance['expected']} expected = {sums}; {wrong}; "
            f"exit code so far {self._code}"
        )


def _of(domain: str) -> str:
    return f" of {domain}" if domain else ""


def _time(micros: int) -> str:
    return f"{datetime.fromtimestamp(micros // SECOND, UTC):%Y-%m-%d %H:%M:%S}.{micros % SECOND // 1000:03d}"


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Set by SIGTERM or SIGINT: the round is finished then. A second one ends the process, which loses nothing."""
    stop = threading.Event()

    def handle(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    before: dict[int, Callable[..., object] | int | None] = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, handle)
    try:
        yield stop
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
