"""``pubsub-audit``: the command. Exit codes are bits (docs/audit.md)."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pubsub_lib.audit.arguments import PROGRAM
from pubsub_lib.audit.command_line import parsed, settings_of
from pubsub_lib.audit.guard import guarded
from pubsub_lib.audit.ingest import input as journals
from pubsub_lib.audit.ingest import removals
from pubsub_lib.audit.ingest.expected import read_expected
from pubsub_lib.audit.lake import command as of_lake
from pubsub_lib.audit.lake import folder as lake
from pubsub_lib.audit.lake import output as lake_output
from pubsub_lib.audit.lake.append import Appended, append
from pubsub_lib.audit.prepare.command import prepare
from pubsub_lib.audit.report import report, summary
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.show import command as show
from pubsub_lib.audit.spark.early import EarlyStart, early
from pubsub_lib.audit.spark.session import SMALL, adapt, root_cause, session, tuning
from pubsub_lib.audit.stream import command
from pubsub_lib.command import entry
from pubsub_lib.command.exit_codes import CLOSED_PIPE, OK
from pubsub_lib.errors import ConfigError
from pubsub_lib.masking import has_password
from pubsub_lib.settings import Settings
from pubsub_lib.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pubsub_lib.audit.ingest.store_journal import StoreSide
    from pubsub_lib.audit.report.aggregates import Aggregates
    from pubsub_lib.audit.rules.pipeline import Tables

_REPEATS: Final = 3
"""How often an audit is repeated because retention removed a file that Spark was still reading."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code. Raises no exception: Python would exit with 1, which means a loss."""
    return entry.run(PROGRAM, lambda: _started(arguments))


def _started(arguments: Sequence[str] | None) -> int:
    options = parsed(arguments)
    if options.version:
        return _print(f"{PROGRAM} {__version__}", OK)
    return guarded(lambda: _command(options), debug=options.debug)


def _configured(options: argparse.Namespace) -> Settings | None:
    """The settings of ``--config-file``, if given. Their journal folder is used unless the command line names folders.
    Raises ConfigError.
    """
    found = Settings.from_file(options.config_file) if options.config_file else None
    if not options.journals:
        if found is None or not found.journal.folder:
            raise ConfigError("no journals are given; name their folder, or a --config-file that sets journal_folder")
        options.journals = [found.journal.folder]
    return found


def _settings(options: argparse.Namespace, configured: Settings | None) -> AuditSettings:
    return settings_of(options, configured.timing if configured else None)


def _database(options: argparse.Namespace, configured: Settings | None) -> Settings | str:
    """The database of ``--store``, else the store of ``--config-file``; "" without either. Raises ConfigError."""
    if options.store is None:
        return configured or ""
    if not options.store:  # an empty variable of a script must not turn off the checks of the store
        raise ConfigError("--store is empty; give the URL of a database, or omit --store")
    if has_password(options.store):
        entry.report_error(
            PROGRAM,
            "others on this host can read the password of --store in the process list; set store_url in a file and "
            "give --config-file",
        )
    return str(options.store)


def _command(options: argparse.Namespace) -> int:
    if options.command == "follow":
        configured = _configured(options)
        folders = journals.folders_by_domain(options.journals)
        options.expected = _expected(options, folders)
        database = _database(options, configured)
        _check_one_database(database, folders)
        return command.run(options, _settings(options, configured), folders, database)
    if options.command == show.NAME:
        return show.run(options)
    if options.command == "prepare":
        archive = prepare()
        return _print(_json(archive) if options.format == "json" else archive.text(), OK)
    if options.command == "report" and _is_lake(options.folder):
        days = of_lake.run(options)
        return _print(_json(days) if options.format == "json" else "\n".join(lake_output.text(days)), days.exit_code)
    found = _report(options) if options.command == "report" else _run(options)
    return _print(_json(found) if options.format == "json" else "\n".join(report.text(found)), found.exit_code)


def _is_lake(folder: Path) -> bool:
    try:
        return lake.is_lake(folder)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read ({error.strerror or error}); check its permissions") from error


def _json(found: msgspec.Struct) -> str:
    return msgspec.json.format(msgspec.json.encode(found)).decode()


def _print(output: str, code: int) -> int:
    """The exit code: ``code``, unless the output cannot be written."""
    try:
        print(output, flush=True)  # noqa: T201 - flushed here: at the interpreter's end an error has no exit code
    except BrokenPipeError:
        return CLOSED_PIPE
    except OSError as error:
        why = error.strerror or error
        entry.report_error(PROGRAM, f"the output cannot be written ({why}); free disk space")
        return code | summary.INCOMPLETE
    return code


def _report(options: argparse.Namespace) -> summary.Summary:
    of_lake.check_not_given(options)
    found = report.read_summary(options.folder)
    if options.page:
        report.save_page(found, options.folder, options.page)
    return found


def _run(options: argparse.Namespace) -> summary.Summary:
    configured = _configured(options)
    settings = _settings(options, configured)
    database = _database(options, configured)
    of_lake.check_append_options(options)
    if options.csv and not options.out:
        raise ConfigError("--csv needs --out, in whose folder it writes")
    if options.out:
        options.out = report.check_free(options.out)
    if options.append:
        lake.prepare(options.append, settings.window)
    folders = journals.folders_by_domain(options.journals)
    options.expected = _expected(options, folders)
    with tempfile.TemporaryDirectory(prefix="pubsub-audit-") as scratch, _opened(database, folders) as store:
        size = journals.size_of(folders) + (store.expected_size() if store else 0)
        # Parquet is smaller than append files, so few bytes stay few.
        with early(partial(_session, options, size) if 0 < size < SMALL else None) as begun:
            read = partial(store.write, Path(scratch) / "store") if store else None
            gathered = journals.gather(folders, Path(scratch) / "tails", read)
            if gathered.empty:
                found = summary.nothing(gathered.problems)
                if options.out:
                    report.save_summary(found, options.out)
                return found
            return _audit(options, settings, gathered, store.lacking if store else "", begun)


def _expected(options: argparse.Namespace, folders: Mapping[str, Sequence[Path]]) -> list[tuple[str, str]]:
    """The participants of ``--expect``. Raises ConfigError."""
    if options.expect and len(folders) != 1:
        raise ConfigError(f"--expect is for one domain, but the journals have {len(folders)}; audit each alone")
    return read_expected(options.expect) if options.expect else []


def _session(options: argparse.Namespace, size: int) -> "tuple[SparkSession, bool]":
    return session(options.master, memory=options.memory, quiet=not sys.stderr.isatty(), options=tuning(size))


def _audit(
    options: argparse.Namespace, settings: AuditSettings, gathered: journals.Input, lacking: str, begun: EarlyStart,
    repeats: int = _REPEATS,
) -> summary.Summary:  # fmt: skip
    """``lacking``: the problem of an empty store; it is reported when the journals have any message. ``repeats``: how
    often the audit is repeated when files were removed.
    """
    spark, ours = begun.take(partial(_session, options, gathered.size))
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from pubsub_lib.audit.report.aggregates import aggregate
    from pubsub_lib.audit.report.collect import collect
    from pubsub_lib.audit.rules.pipeline import audit

    try:
        adapt(spark, gathered.size)  # a running session of the caller has other settings
        rows = journals.load(spark, gathered)
        if gathered.cacheable:
            rows = rows.persist()
        tables = audit(rows, settings, torn=journals.torn_ends(spark, gathered), listed=gathered.listed)
        derived = aggregate(tables, settings)
        found = collect(tables, derived, settings, gathered.problems, options.expected, gathered.listed)
        if lacking and not rows.filter("kind = 'data'").isEmpty():
            found = _with_problem(found, lacking)
        if options.append:
            found = _appended(tables, derived, found, options)
        if options.out:
            found = _saved(lambda: report.save(tables, derived, found, options.out, with_csv=options.csv), found)
        rows.unpersist()
    except (PySparkException, Py4JJavaError) as error:
        left = removals.without_removed(gathered) if repeats else None
        repeats -= left is not None
        left = left or removals.without_damaged(gathered)
        if left is None:
            return summary.nothing([*gathered.problems, _why(error, gathered)])
    else:
        return found
    finally:
        if ours:
            spark.stop()
    if left.empty:
        return summary.nothing(left.problems)
    return _audit(options, settings, left, lacking, begun, repeats)


def _appended(
    tables: "Tables", derived: "Aggregates", found: summary.Summary, options: argparse.Namespace
) -> summary.Summary:
    """The result, with sentences about what was added to the lake."""
    from pubsub_lib.audit.lake.collect import of_run

    done: list[Appended] = []
    found = _saved(
        lambda: done.append(append(options.append, of_run(tables, derived, found), options.keep_days)),
        found,
        "--append",
    )
    for each in done:
        found = msgspec.structs.replace(found, appended=[each.added, *each.notes])
        for problem in each.problems:
            found = _with_problem(found, problem)
    return found


def _saved(save: Callable[[], None], found: summary.Summary, option: str = "--out") -> summary.Summary:
    """The result after ``save``. A failed ``save`` adds a problem to the result instead of discarding it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        save()
    except ConfigError as error:
        return _with_problem(found, str(error))
    except (PySparkException, Py4JJavaError) as error:
        return _with_problem(found, f"the results cannot be written ({root_cause(error)}); check the disk of {option}")
    return found


def _with_problem(found: summary.Summary, sentence: str) -> summary.Summary:
    code = found.exit_code | summary.INCOMPLETE
    return msgspec.structs.replace(found, problems=[*found.problems, sentence], exit_code=code)


def _why(error: Exception, gathered: journals.Input) -> str:
    gone = [path for files in gathered.files.values() for path in files if not path.exists()]
    if gone:
        return f"{gone[0]} was deleted during the audit; check which process deletes journal files, and run it again"
    return f"Spark failed: {root_cause(error)}; run the audit again, with more --memory if memory was short"


def _opened(
    database: Settings | str, folders: Mapping[str, Sequence[Path]]
) -> "AbstractContextManager[StoreSide | None]":
    """The store of the audit, if there is one."""
    if not database:
        return nullcontext()
    from pubsub_lib.audit.ingest.store_journal import StoreSide

    _check_one_database(database, folders)
    return StoreSide(database)


def _check_one_database(database: Settings | str, folders: Mapping[str, Sequence[Path]]) -> None:
    if database and len(folders) != 1:
        raise ConfigError(f"--store names one database, but the journals have {len(folders)} domains; audit each alone")


if __name__ == "__main__":
    sys.exit(main())
