"""The audit of a run: ``pubsub-audit run`` reads the journals in a separate process, after all processes have ended."""

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from _children import ChildError, Children, attached
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from _routes.progress import Progress
from pubsub_lib.audit.arguments import PROGRAM
from pubsub_lib.audit.report.report import PAGE, SUMMARY, read_summary
from pubsub_lib.audit.report.summary import BITS, Balance, Count
from pubsub_lib.audit.spark import class_archive
from pubsub_lib.audit.spark.java import found_java, java_home
from pubsub_lib.command.exit_codes import AUDIT_USAGE, OK
from pubsub_lib.errors import UsageError

SHOWN = 5
"""Maximum number of faults that are shown; the tables hold all."""


class Audit(msgspec.Struct, frozen=True):
    """The result of an audit. ``faults``: the first of each kind that affects the exit code. ``folder``: tables,
    summary and ``page``.
    """

    exit_code: int
    sentence: str
    balance: Mapping[str, Balance]
    counts: Sequence[Count]
    faults: Sequence[Mapping[str, Any]]
    problems: Sequence[str]
    stopped: Mapping[str, int]
    """Deliveries that were excused because the replica ended before the bound; only a kill is a valid excuse here. None
    of a parent that the replica left: what that one sent afterwards, the replica had to get from another one.
    """
    folder: str
    page: str
    seconds: float


def journals(folder: Path) -> Path:
    """The journal folder of all participants of a run that works in ``folder``."""
    return folder / "journals"


@contextmanager
def claimed(results: Path) -> Iterator[None]:
    """Create the folder for the results of this run. It is removed again when the block fails.

    Raises UsageError when the folder exists, ConfigError without Java, OSError.
    """
    java_home()
    try:
        results.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"{results} already exists; name a new folder") from None
    try:
        yield
    except BaseException:
        shutil.rmtree(results)
        raise


def prepare(folder: Path, progress: Progress) -> None:
    """Make the archive of Spark's classes, with which the audit takes less time, unless it exists.

    Blocks, and leaves no process. A failure is reported only: the audit also runs without the archive.
    """
    if class_archive.find(found_java().text) is not None:
        return
    with progress.waiting("preparing the audit, once: 200 MB of Spark's classes, some 30 s"):
        status, complaint = _execute(["prepare"], _inside(folder), folder / "prepare.txt")
    if status != OK:
        progress.log(f"{complaint or f'pubsub-audit prepare ended with status {status}'}; the audit takes longer")


def audit(url: str, results: Path, bound: float, folder: Path, progress: Progress) -> Audit:
    """Audit the run that worked in ``folder``. The results go to ``results``, which is ``claimed``.

    Blocks until the end, and leaves no process. Raises ChildError when the audit fails, and OSError.
    """
    began, made, output = time.monotonic(), folder / "audit", folder / "audit.txt"
    with progress.waiting("auditing the run by its journals"):
        status, complaint = _execute(
            ["run", str(journals(folder)), "--store", url, "--out", str(made), "--bound", f"{bound:g}"],
            _inside(folder),
            output,
        )
    if status == AUDIT_USAGE or not (made / SUMMARY).is_file():
        raise ChildError(f"the audit ended with status {status}: {complaint or 'it wrote no error'}")
    found = read_summary(made)
    if status != found.exit_code:
        raise ChildError(f"the audit ended with status {status}, its summary has {found.exit_code}: {complaint}")
    shutil.copytree(made, results, dirs_exist_ok=True)
    bad = frozenset[str]().union(*BITS.values())
    return Audit(
        exit_code=found.exit_code,
        sentence=output.read_text().partition("\n")[0],
        balance=found.balance,
        counts=found.counts,
        faults=[_short(each) for each in found.first if each["verdict"] in bad],
        problems=found.problems,
        stopped=_stopped(made),
        folder=str(results),
        page=str(results / PAGE),
        seconds=time.monotonic() - began,
    )


def _stopped(made: Path) -> dict[str, int]:
    """By replica. Without this check, a bound longer than the run would excuse all lost changes."""
    table = made / "delivery"
    if not table.exists():
        return {}  # without input there are no tables
    which = [("verdict", "=", "excused"), ("detail", "=", "stopped")]
    rows = pq.read_table(table, columns=["service", "name"], filters=which).to_pylist()
    left = {(hop["service"], hop["name"]) for hop in pq.read_table(made / "tree").to_pylist() if _was_left(hop)}
    return Counter(row["name"] for row in rows if (row["service"], row["name"]) not in left)


def _was_left(hop: Mapping[str, Any]) -> bool:
    return bool(hop["arrivals"]) and (hop["arrivals"] > 1 or not hop["current"])


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "trail" and value not in ("", None, False)}


def _inside(folder: Path) -> dict[str, str]:
    """Environment variables that keep all files of an audit in one folder, however it ends. Java ignores TMPDIR."""
    of_java = f'-Djava.io.tmpdir="{folder}" -XX:-UsePerfData'
    return {"TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder), "SPARK_SUBMIT_OPTS": of_java}


def _execute(arguments: list[str], variables: dict[str, str], output: Path) -> tuple[int, str]:
    """The exit status of a ``pubsub-audit`` and its last sentence on stderr, or the last line there, if it wrote none:
    Java writes there, too. Its stdout goes to a file.
    """
    command = attached("pubsub_lib.audit.main", *arguments)
    last, own = b"", f"{PROGRAM}: ".encode()
    with output.open("wb") as file, Children() as children:
        # Its Java process is not a child of the command, and ends with the session.
        streams = {"stdout": file, "stderr": subprocess.PIPE}
        child = children.start("audit", command, variables=variables, whole_session=True, **streams)
        assert child.process.stderr is not None
        for line in child.process.stderr:
            if line.startswith(own) or (line.strip() and not last.startswith(own)):
                last = line.strip()
        return child.process.wait(), last.decode(errors="replace")


def show(made: Audit, console: Console) -> None:
    """Print the table of verdicts and the sentences after it."""
    table = Table(title="The run's audit: verdicts", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("of", "verdict", "why", "last seen at"):
        table.add_column(name)
    table.add_column("number", justify="right")
    for count in made.counts:
        table.add_row(count.of, count.verdict, count.detail, count.blame, f"{count.count:,}")
    console.print(table)

    def write(sentence: str) -> None:
        console.print(sentence, soft_wrap=True, highlight=False, markup=False)

    for balance in made.balance.values():
        parts = {name: number for name, number in msgspec.to_builtins(balance).items() if name != "expected"}
        sums = " + ".join(f"{number:,} {name}" for name, number in parts.items())
        write(f"Balance: {balance.expected:,} expected = {sums}.")
    for problem in made.problems:
        write(f"Problem: {problem}.")
    for fault in made.faults[:SHOWN]:
        write("Fault: " + " ".join(f"{name}={value}" for name, value in fault.items()))
    write(f"{made.sentence} The audit took {made.seconds:.1f} s.")
    write(f"Tables and summary are in {made.folder}; open {made.page}.")
