"""What a follower prints, and its exit code."""

from pathlib import Path

import msgspec
import pytest

from pubsub_lib.audit.report.summary import Count
from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.audit.stream.findings import Findings
from pubsub_lib.audit.stream.loop import Round
from pubsub_lib.audit.stream.output import Output
from pubsub_lib.audit.stream.windows import Closed, summed

LOST = (Count("net", "delivery", "lost", "middle", "wire", 2), "")
CAME = (Count("net", "delivery", "ok", "", "", 7), "message")
POLLED = (Count("net", "delivery", "ok", "", "", 4), "polling")
REPAIRED = (Count("net", "delivery", "late", "", "wire", 3), "repair")
LATE = (Count("net", "delivery", "late", "", "", 1), "message")
TWICE = (Count("net", "delivery", "duplicate_dropped", "", "", 1), "message")
STRAY = (Count("net", "strays", "phantom", "", "", 1), "")


def window(*counts: tuple[Count, str], strict: bool = False, begin: int = 1_000_000) -> Closed:
    return summed("net", begin * SECOND, counts, AuditSettings(strict=strict))


def test_output_has_a_line_per_window_and_the_exit_code_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output([window(LATE, begin=999_940)], as_json=False, settings=AuditSettings())
    notes = ["y is read again"]
    output.round(Round([window(LOST, CAME)], ["x is garbage"], {"net": ("ab", 5 * SECOND)}, notes))
    out, err = capsys.readouterr()
    assert out == (
        "1970-01-12 13:46:40.000 to 1970-01-12 13:47:40.000 of net: 9 expected = 7 delivered + 0 repaired + 2 lost + "
        "0 pending + 0 excused + 0 unknown; 2 anomalies; exit code so far 9\n"
    )
    assert err == (
        "pubsub-audit: y is read again\n"
        "pubsub-audit: x is garbage\n"
        "pubsub-audit: windows of net wait for the run ab (known until 1970-01-01 00:00:05.000)\n"
    )
    assert output.exit_code([]) == 9
    assert output.exit_code(["x is garbage"]) == 41


def test_file_that_the_only_round_did_not_read_makes_its_result_incomplete(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = Output([window(LOST)], as_json=False, settings=AuditSettings())
    output.unread([])
    assert (output.exit_code([]), capsys.readouterr().err) == (1, "")
    output.unread([Path("x.parquet")])
    assert output.exit_code([]) == 33
    assert capsys.readouterr().err == (
        "pubsub-audit: x.parquet may still be copied and was not read; follow again, or give a shorter --patience\n"
    )


def test_revision_of_a_window_replaces_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output([window(TWICE, begin=999_940)], as_json=False, settings=AuditSettings())
    output.round(Round([window(LOST, CAME)], [], {}))
    assert output.exit_code([]) == 1
    output.round(Round([msgspec.structs.replace(window(LATE, LATE, CAME), revision=2)], [], {}))
    assert capsys.readouterr().out.splitlines()[1] == (
        "1970-01-12 13:46:40.000 to 1970-01-12 13:47:40.000 of net (revision 2): 9 expected = 9 delivered + 0 repaired "
        "+ 0 lost + 0 pending + 0 excused + 0 unknown; 2 anomalies; exit code so far 8"
    )
    assert output.exit_code([]) == 8


def test_output_as_a_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    Output([], as_json=True, settings=AuditSettings()).round(Round([window(CAME, STRAY)], [], {}))
    found = msgspec.json.decode(capsys.readouterr().out)
    assert (found["domain"], found["window"], found["anomalies"]) == ("net", 1_000_000 * SECOND, 1)
    assert (found["exit_code"], found["exit_code_so_far"], found["balance"]["delivered"]) == (2, 2, 7)


def test_exit_code_without_a_closed_window_is_incomplete() -> None:
    assert Output([], as_json=True, settings=AuditSettings()).exit_code([]) == 32


def findings(number: int, **verdicts: int) -> Findings:
    counts = [Count("net", "state", verdict, "", "", rows) for verdict, rows in verdicts.items()]
    return Findings("net", number, 1_000_060 * SECOND, 4 if verdicts else 0, sum(verdicts.values()), counts)


def test_findings_are_printed_when_they_change_and_the_last_ones_count(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output([window(CAME)], as_json=False, settings=AuditSettings())
    output.round(Round([], [], {}, findings=[findings(1)]))
    assert capsys.readouterr().out == ""
    output.round(Round([], [], {}, findings=[findings(2, missing=2, stale=1)]))
    assert capsys.readouterr().out == (
        "1970-01-12 13:47:40.000 of net: 2 missing of state, 1 stale of state; exit code so far 4\n"
    )
    output.round(Round([], [], {}, findings=[findings(3, missing=2, stale=1)]))
    assert capsys.readouterr().out == ""
    assert output.exit_code([]) == 4
    output.round(Round([], [], {}, findings=[findings(4)]))
    assert capsys.readouterr().out == "1970-01-12 13:47:40.000 of net: no findings any more; exit code so far 0\n"
    assert output.exit_code([]) == 0


def test_findings_of_an_earlier_follower_count(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output([window(CAME)], as_json=True, settings=AuditSettings(), findings=[findings(1, zombie=1)])
    assert output.exit_code([]) == 4
    output.round(Round([], [], {}, findings=[findings(2, zombie=1), findings(3, zombie=2)]))
    found = msgspec.json.decode(capsys.readouterr().out)
    assert (found["domain"], found["number"], found["anomalies"], found["exit_code_so_far"]) == ("net", 3, 2, 4)
