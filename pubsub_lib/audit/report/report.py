"""Prints a summary as text, and saves it as files beside the tables."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pubsub_lib.audit.report.csv_tables import write_csv
from pubsub_lib.audit.report.labels import HOPS, verdict
from pubsub_lib.audit.report.metrics import write_metrics
from pubsub_lib.audit.report.page import page
from pubsub_lib.audit.report.summary import CATEGORIES, TABLES, Balance, Detector, Summary, counting
from pubsub_lib.audit.report.times import moment
from pubsub_lib.audit.spark.addresses import to_write
from pubsub_lib.audit.spark.arrow_tables import save as save_small
from pubsub_lib.audit.spark.settled import single
from pubsub_lib.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pubsub_lib.audit.report.aggregates import Aggregates
    from pubsub_lib.audit.rules.pipeline import Tables

SUMMARY: Final = "summary.json"
PAGE: Final = "page.html"
METRICS: Final = "audit.prom"
_TIMES: Final = ("p", "detected", "settled")
_FOLDERS: Final = {"anomaly": "verdict"}
"""Tables that are partitioned into folders by a column."""


def text(summary: Summary) -> Iterator[str]:
    """The report in lines."""
    yield verdict(summary)
    yield from (f"problem: {each}" for each in summary.problems)
    yield from (f"silent run (it has not ended, but wrote no more records): {run}" for run in summary.silent)
    yield from (f"no window is closed yet{_of(domain)}" for domain in summary.open_domains)
    yield from summary.appended
    for domain, balance in summary.balance.items():
        yield ""
        yield _balance(domain, balance)
        for count in summary.counts:
            if count.domain == domain:
                more = ", ".join(each for each in (count.detail, count.blame and f"blame: {count.blame}") if each)
                yield f"  {count.of:<9} {count.verdict:<18} {count.count:>12}  {more}".rstrip()
        yield from (_latency(each) for each in summary.latencies if each["domain"] == domain)
        yield from (_detector(each) for each in summary.detector if each.domain == domain)
    kinds = counting(summary.settings)
    faulty = [each for each in summary.first if each["verdict"] in kinds]
    if faulty:
        yield ""
        yield "first of each kind:"
        for each in faulty:
            yield "  " + " ".join(f"{name}={_shown(value)}" for name, value in _words(each))


def _words(each: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """What the report prints of an anomaly: its columns, with readable times, and the first object that its message
    changes, by the first record of its trail that names it.
    """
    for name, value in each.items():
        if name != "trail" and value not in ("", None, False):
            yield name, moment(value) if name in _TIMES else value
    records = (record for record in each.get("trail", ()) if record.get("objects"))
    if each.get("key") is None and (record := next(records, None)) is not None:
        first, *others = record["objects"]
        yield from ((name, first[name]) for name in ("table", "key", "action", "version"))
        if more := len(others) + record.get("more", 0):
            yield "more_objects", more


def _shown(value: object) -> str:
    """A value without control characters, which a terminal would interpret."""
    text = str(value)
    return text if text.isprintable() else ascii(text)


def _of(domain: str) -> str:
    return f" of {domain}" if domain else ""


def _balance(domain: str, balance: Balance) -> str:
    sums = " + ".join(f"{getattr(balance, name)} {name}" for name in CATEGORIES)
    return f"balance{_of(domain)}: {balance.expected} expected = {sums}"


def _latency(row: Mapping[str, Any]) -> str:
    values = ", ".join(f"{name} {row[name] / 1000:.3f}" for name in ("p50", "p95", "p99", "p999", "max"))
    negative = f"; {row['negative']} negative" if row["negative"] else ""
    return f"  {HOPS[row['hop']]:<18} {row['count']:>12}  ms: {values}{negative}"


def _detector(one: Detector) -> str:
    return (
        f"  repaired {one.holes - one.missed}, lost {one.missed}; syncs {one.syncs}, needless {one.needless}, "
        f"{one.bytes} bytes read"
    )


def check_free(folder: Path) -> Path:
    """The folder's real path. Raises ConfigError when the folder is a file, is not empty, or cannot be written."""
    folder = Path(os.path.realpath(folder))
    beside = _beside(folder)
    try:
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise ConfigError(f"{folder} already exists and is not an empty folder; name a new folder for the results")
        if os.path.ismount(folder) or folder == Path.cwd():
            # The results are moved there by one rename. It would fail, or replace the current folder of a process.
            raise ConfigError(f"{folder} is a mount point or the current folder; name a new folder in it")
        # Checked before the audit, because a failure after it would waste the computation.
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        beside.rmdir()
    except OSError as error:
        raise _not_written(folder, error) from error
    return folder


def _beside(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.unfinished"


def save(tables: "Tables", derived: "Aggregates", summary: Summary, folder: Path, *, with_csv: bool = False) -> None:
    """Write the tables as Parquet, also as CSV if ``with_csv``, and the files of ``save_summary``; all of them or none.
    Blocks. A new folder is open for this user only; an existing one keeps its permissions.

    ``folder``: the result of ``check_free``. Raises ConfigError when the folder cannot be written, and Spark's errors.
    """
    beside = _beside(folder)
    shutil.rmtree(beside, ignore_errors=True)
    try:
        new_folder(beside)
        if folder.exists():
            shutil.copymode(folder, beside)
        _save_into(tables, derived, summary, beside, with_csv=with_csv)
        beside.rename(folder)
    except OSError as error:
        raise _not_written(folder, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)  # also after an error: partial results would only fill the disk


def new_folder(folder: Path) -> None:
    """Make a folder for results, which name keys and topics: only this user may open it. One that exists is left as it
    is. Raises OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _save_into(tables: "Tables", derived: "Aggregates", summary: Summary, folder: Path, *, with_csv: bool) -> None:
    every = {**msgspec.structs.asdict(tables), **msgspec.structs.asdict(derived)}
    for name in TABLES:
        _save_table(every[name], folder / name, _FOLDERS.get(name, ""))
        if with_csv:
            write_csv(folder / name, folder / f"{name}.csv", every[name].columns)
    save_summary(summary, folder)


def _save_table(table: "DataFrame", folder: Path, by: str) -> None:
    if single(table.sparkSession):
        save_small(table, folder, by)
    else:
        writer = table.write.partitionBy(by) if by else table.write
        writer.parquet(to_write(folder))


def save_summary(summary: Summary, folder: Path) -> None:
    """Write the summary as JSON, the page and the metrics. An audit without input saves only these.

    Raises ConfigError when the folder cannot be written.
    """
    try:
        new_folder(folder)
        (folder / SUMMARY).write_bytes(msgspec.json.format(msgspec.json.encode(summary)))
        write_metrics(summary, folder / METRICS)
    except OSError as error:
        raise _not_written(folder, error) from error
    save_page(summary, folder, folder / PAGE)


def _not_written(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{folder} cannot be written ({error.strerror}); check its permissions and its disk")


def save_page(summary: Summary, folder: Path, file: Path) -> None:
    """Write the page, with links to the tables in ``folder``. Raises ConfigError when the file cannot be written."""
    beside = os.path.relpath(folder, file.parent)
    try:
        file.write_text(page(summary, "" if beside == "." else f"{beside}/"), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror}); name another file") from error


def read_summary(folder: Path) -> Summary:
    """The summary that ``save`` wrote. Raises ConfigError when the file is missing or is not a summary."""
    try:
        return msgspec.json.decode((folder / SUMMARY).read_bytes(), type=Summary)
    except OSError as error:
        raise ConfigError(
            f"{folder / SUMMARY} cannot be read ({error.strerror}); name the --out folder of an audit, or "
            "one of --append"
        ) from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{folder / SUMMARY} is not a summary of an audit ({error}); run the audit again") from error
