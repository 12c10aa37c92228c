"""Log lines: repeated lines are limited and counted, records have the fields, the program sets levels and handlers."""

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pubsub_lib import logs

REPORT = logs.report_lost


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Lines(logging.Handler):
    """Records the logged lines."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def logged(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def log(clock: Clock, lines: Lines) -> Iterator[logging.Logger]:
    made = logging.Logger("test")
    made.addFilter(logs.RepeatFilter(burst=2, interval=10.0, clock=clock))
    made.addHandler(lines)
    yield made
    made.removeHandler(lines)


def test_repeats_are_left_out_and_counted_in_the_next_line(log: logging.Logger, clock: Clock, lines: Lines) -> None:
    for number in range(5):
        log.warning("frame %d was lost", number)
    # No line may follow, so the last one announces that more will be left out.
    assert lines.logged == ["frame 0 was lost", "frame 1 was lost [more like this will be left out for 10 s]"]
    clock.now += 9.9
    log.warning("frame %d was lost", 5)
    assert len(lines.logged) == 2
    clock.now += 0.1
    log.warning("frame %d was lost", 6)
    log.warning("frame %d was lost", 7)
    assert lines.logged[2:] == [
        "frame 6 was lost [4 more like this were left out]",
        "frame 7 was lost [more like this will be left out for 10 s]",
    ]
    assert lines.records[2].pubsub_left_out == 4  # type: ignore[attr-defined]


def test_kinds_differ_by_text_and_level(log: logging.Logger, lines: Lines) -> None:
    for _ in range(4):
        log.warning("a")
        log.error("a")
        log.warning("b")
    assert sorted((record.levelname, record.msg[0]) for record in lines.records) == [
        ("ERROR", "a"), ("ERROR", "a"), ("WARNING", "a"), ("WARNING", "a"), ("WARNING", "b"), ("WARNING", "b"),
    ]  # fmt: skip


def test_burst_is_the_limit_of_all_threads_together(log: logging.Logger, lines: Lines) -> None:
    def often() -> None:
        for _ in range(50):
            log.warning("a")

    threads = [threading.Thread(target=often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines.logged) == 2


def test_values_cannot_forge_lines_or_control_a_terminal(log: logging.Logger, lines: Lines) -> None:
    """An address of the directory, for example, is what another program wrote."""
    address = "tcp://a:1\n2026-11-25 ERROR forged\x1b[2J\u202e"
    log.warning("no publisher at %s: %s (%d)", address, ValueError("one\ntwo"), 3)
    log.warning("no publisher at %(address)s", {"address": address})
    shown = r"tcp://a:1\n2026-11-25 ERROR forged\x1b[2J\u202e"
    assert lines.logged == [rf"no publisher at {shown}: one\ntwo (3)", f"no publisher at {shown}"]


def test_values_that_are_printable_stay_as_they_are(log: logging.Logger, lines: Lines) -> None:
    error = ValueError("café 日本")
    log.warning("%s %r %s", error, error, "a b")
    assert lines.logged == [f"{error} {error!r} a b"]


def test_a_modules_logger_has_one_filter(lines: Lines) -> None:
    log = logs.logger("pubsub_lib.test_logs")
    assert logs.logger("pubsub_lib.test_logs") is log is logging.getLogger("pubsub_lib.test_logs")
    assert len(log.filters) == 1
    log.addHandler(lines)
    log.propagate = False
    for number in range(3 * logs.BURST):
        log.warning("again %d", number, extra=logs.fields(topic="t", position=number))
    log.removeHandler(lines)
    assert len(lines.records) == logs.BURST
    last = lines.records[-1]
    assert (last.pubsub_topic, last.pubsub_position) == ("t", logs.BURST - 1)  # type: ignore[attr-defined]


class Raising(logging.Handler):
    """A program's own handler, which has no try of its own."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def emit(self, record: logging.LogRecord) -> None:
        raise self.error


@pytest.fixture
def guarded(lines: Lines) -> Iterator[logging.Logger]:
    log = logs.logger("pubsub_lib.test_guarded", limited=False)
    log.addHandler(lines)
    log.propagate = False
    yield log
    for each in list(log.handlers):
        log.removeHandler(each)
    for rule in list(log.filters):
        log.removeFilter(rule)


def test_exception_of_a_programs_filter_or_handler_loses_one_line_only(
    guarded: logging.Logger, lines: Lines, lost_lines: list[logging.LogRecord]
) -> None:
    """A thread that could end by its log line would end for good."""
    def refuse(record: logging.LogRecord) -> bool:
        if record.msg == "filtered":
            raise ZeroDivisionError
        return True

    assert logs.logger("pubsub_lib.test_guarded", limited=False) is guarded
    guarded.addFilter(refuse)
    guarded.warning("filtered")
    guarded.warning("logged")
    guarded.addHandler(Raising(ZeroDivisionError()))
    guarded.warning("raised")
    assert [record.msg for record in lost_lines] == ["filtered", "raised"]
    assert lines.logged == ["logged", "raised"]
    lost_lines.clear()


def test_interrupt_of_a_program_is_not_a_lost_line(guarded: logging.Logger) -> None:
    guarded.addHandler(Raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        guarded.warning("x")


@pytest.mark.parametrize("closed", [False, True])
def test_lost_line_is_reported_as_logging_reports_it(
    monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    if closed:
        stderr.close()
    try:
        raise ZeroDivisionError("of a filter")
    except ZeroDivisionError:
        REPORT(logging.makeLogRecord({"msg": "the line of %s", "args": ("x",)}))
    assert closed or ("of a filter" in stderr.getvalue() and "the line of %s" in stderr.getvalue())


def test_the_library_adds_no_handler_and_sets_no_level_except_of_its_pool() -> None:
    program = (
        "import logging, pubsub_lib, pubsub_lib.service.service\n"
        "names = [name for name in logging.root.manager.loggerDict if name.startswith('pubsub')]\n"
        "assert len(names) > 5\n"
        "pool = 'pubsub_lib.store.fork_safety.GatedPool'\n"
        "for name in names:\n"
        "    assert logging.getLogger(name).handlers == [], name\n"
        "    level = logging.WARNING if name == pool else logging.NOTSET\n"
        "    assert logging.getLogger(name).level == level, name\n"
        "assert logging.root.handlers == []\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("text", ["a", "\x1b[2J", "\x9b31m", "\u202e", "\n", "\u540d", "\U000e0041"])
def test_printable_json_keeps_the_value_and_has_no_control_character(text: str) -> None:
    escaped = logs.printable_json(json.dumps([text], ensure_ascii=False))
    assert escaped.isprintable()
    assert json.loads(escaped) == [text]
