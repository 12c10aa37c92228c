"""``tools/bench audit``: its journals and the judgement of its figures are correct. Its runs are not tested."""

from collections import Counter
from pathlib import Path

import pytest
from _bench_audit import report
from _bench_audit.chain import AUDIT, BARE, JOIN, Measured
from _bench_audit.journals import journals, whole
from _measurements import command

from pubsub_lib.journal.reading import find, read
from tests.unit.audit.oracle import Oracle

OK = {"ok": 1_000_000}


@pytest.mark.parametrize("hot", [False, True])
def test_journals_are_of_a_run_without_faults(tmp_path: Path, hot: bool) -> None:
    logged: list[str] = []
    folder = journals(tmp_path, 300, hot=hot, log=logged.append)
    assert journals(tmp_path, 300, hot=hot, log=logged.append) == folder
    assert logged == ["writing journals: 0 of 400 messages"], "written once"
    rows = [row for path in find([folder]).parquet for row in read(path)]
    one = Oracle(rows, 10_000, 5_000, 3_000, 25_000)
    assert Counter(row.verdict for row in one.delivery()) == {"ok": whole(300)} == {"ok": 400}
    assert (one.strays(), one.bits()) == ([], 0)
    of_topics = Counter(row.topic for row in rows if row.outcome == "sent")
    assert len(of_topics) == (11 if hot else 100)
    assert max(of_topics.values()) == (360 if hot else 4)


def measured(audit: float, bare: float = 10.0, verdicts: dict[str, int] | None = None) -> dict[str, list[Measured]]:
    found = OK if verdicts is None else verdicts
    return {
        AUDIT: [Measured(audit + more, 2 * audit, 900.0, found) for more in (-1.0, 0.0, 50.0)],
        **{what: [Measured(bare, bare, 800.0, {"ok": sum(found.values())})] * 3 for what in (BARE, JOIN)},
    }


def test_ratio_of_medians_is_missed_above_the_limit() -> None:
    met = report.figures(1_000_000, False, measured(15.0))
    assert (met.audit, met.ratio) == (15.0, 1.5)
    missed = report.figures(1_000_000, False, measured(15.1))
    hot = report.figures(1_000_000, True, measured(30.3))
    assert report.report([met], "2g", 3).wrong() == []
    assert report.report([missed, hot], "2g", 3).wrong() == [
        "1,000,000: 1.51 times the bare chain, more than 1.5",
        "1,000,000 (one hot): 2.01 times the time of even traffic, more than 2.0",
    ]


def test_time_may_only_grow_linearly_with_messages() -> None:
    small, hot = report.figures(1_000_000, False, measured(4.0)), report.figures(1_000_000, True, measured(4.0))
    met, missed = (report.figures(10_000_000, False, measured(each, 40.0, {"ok": 10_000_000})) for each in (40.0, 40.4))
    assert report.report([small, hot, met], "2g", 3).wrong() == []
    assert report.report([small, hot, missed], "2g", 3).wrong() == [
        "10,000,000: 10.10 times the time of 1,000,000, more than 10"
    ]


def test_unwritable_disk_is_exit_code_3_and_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert command.run("audit", ["--size", "1", "--cache", str(tmp_path / "file")]) == 3
    output = capsys.readouterr().err
    assert output.startswith("tools/bench audit: ")
    assert output.count("\n") == 1


def test_report_names_verdicts_that_are_not_ok() -> None:
    wrong = report.figures(1_000_000, False, measured(1.0, verdicts={"ok": 999_999, "lost": 1}))
    assert report.report([wrong], "2g", 3).wrong() == ["1,000,000: not every verdict is ok"]


def test_invalid_option_is_exit_code_2_and_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.run("audit", ["--size", "many"])
    assert ended.value.code == 2
    assert "'many' is not a whole number from 1 on" in capsys.readouterr().err
