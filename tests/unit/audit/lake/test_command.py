"""``pubsub-audit report`` of a lake: options, errors, exit codes; it starts neither Spark nor Java."""

import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pubsub_lib.audit.command_line import parser
from pubsub_lib.audit.lake import command
from pubsub_lib.audit.lake.append import append
from pubsub_lib.audit.lake.folder import prepare
from pubsub_lib.audit.main import main
from pubsub_lib.audit.report.report import save_summary
from pubsub_lib.audit.report.summary import nothing
from tests.unit.audit.denied import deny
from tests.unit.audit.lake.additions import LOST, OK, WINDOW, addition, audited


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    prepare(tmp_path / "lake", WINDOW)
    windows: dict[str, Any] = {"01 10:00": {OK: 5}, "02 10:00": {OK: 4, LOST: 1}}
    append(tmp_path / "lake", addition([audited("01 10:00", "02 10:00")], windows, latencies={1500: 5}))
    return tmp_path / "lake"


def report(lake: Path, *more: str) -> int:
    return main(["report", str(lake), "--from", "2026-11-01", "--to", "2026-11-02", *more])


def test_report_prints_days_and_writes_files(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, days = tmp_path / "page.html", tmp_path / "days.csv"
    assert report(lake, "--page", str(page), "--csv", str(days)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2026-11-01 to 2026-11-02: 2 of 2 days have a result; loss (exit code 1)."
    assert lines[4].endswith("1.500   1.500  loss (1)        lost 1")
    assert "<title>Audits: 2026-11-01" in page.read_text()
    assert days.read_text().splitlines()[2].startswith("2026-11-02,,1,5,4,0,1,")


def test_report_as_json(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(lake, "-f", "json") == 1
    found = msgspec.json.decode(capsys.readouterr().out)
    assert [(each["day"], each["balance"]["lost"], each["p99"]) for each in found["days"]] == [
        ("2026-11-01", 0, 1500), ("2026-11-02", 1, 1500)
    ]  # fmt: skip


def test_report_starts_neither_spark_nor_java(lake: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pubsub_lib.audit.main import main; code = main(sys.argv[1:]); "
        "print(code, sorted({'pyspark', 'py4j'} & set(sys.modules)), file=sys.stderr)"
    )
    arguments = ["report", str(lake), "--from", "2026-11-01", "--to", "2026-11-02", "--page", str(tmp_path / "x.html")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stderr == "1 []\n"


def test_default_is_thirty_days_until_today(lake: Path) -> None:
    options = parser().parse_args(["report", str(lake)])
    found = command.run(options, date(2026, 11, 2))
    assert (found.first, found.last, len(found.days), found.exit_code) == ("2026-10-04", "2026-11-02", 30, 1)
    found = command.run(parser().parse_args(["report", str(lake), "--to", "2026-11-01"]), date(2026, 11, 2))
    assert (found.first, found.last, found.exit_code) == ("2026-10-03", "2026-11-01", 0)
    assert command.run(parser().parse_args(["report", str(lake)]), date(2026, 11, 5)).exit_code == 33


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--from", "2026-11-03", "--to", "2026-11-02"],
            "--from 2026-11-03 is after --to 2026-11-02; give the earlier",
        ),
        (
            ["--from", "1900-11-03", "--to", "2026-11-02"],
            "1900-11-03 to 2026-11-02 has more than 3660 days; give fewer",
        ),
        (["--page", "/"], "/ cannot be written (Is a directory); name another file"),
    ],
)
def test_wrong_options_are_64(
    lake: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(lake), *arguments]) == 64
    error = capsys.readouterr().err
    assert error.startswith(f"pubsub-audit: {sentence}")
    assert error.count("\n") == 1


def test_folders_that_are_not_a_lake_are_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path / "gone", tmp_path):
        assert main(["report", str(folder)]) == 64
        assert capsys.readouterr().err.endswith("; name the --out folder of an audit, or one of --append\n")
        assert report(folder, "--csv", "x") == 64
        assert capsys.readouterr().err == (
            f"pubsub-audit: {folder} is not a folder of --append, as --from, --to, --csv requires\n"
        )
    save_summary(nothing([]), tmp_path / "out")
    assert main(["report", str(tmp_path / "out")]) == 32


def test_lake_of_a_newer_version_is_64(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lake / "lake.json").write_text('{"schema": 2, "window": 60000000}')
    assert report(lake) == 64
    assert capsys.readouterr().err == (
        f"pubsub-audit: {lake} has the schema 2; this version knows 1: update pubsub_lib\n"
    )


def test_folder_that_may_not_be_searched_is_64(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder of ``--out`` has mode 0700."""
    deny(monkeypatch, lake)
    assert report(lake) == 64
    assert capsys.readouterr().err == (
        f"pubsub-audit: {lake} cannot be read (Permission denied); check its permissions\n"
    )


def test_damaged_file_sets_the_bit_of_missing_evidence(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = lake / "verdict" / "day=2026-11-01" / "part-0.parquet"
    path.write_bytes(b"PAR1")
    assert report(lake) == 33
    assert f"problem: {path} is damaged (" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--keep-days", "3"], "--keep-days needs --append, whose folder it limits"),
        (["--append", "x", "--out", "./x"], "--append x is not outside of --out x; name another folder"),
        (["--append", "x/y", "--out", "x"], "--append x/y is not outside of --out x; name another folder"),
        (["--append", "/proc/x"], "/proc/x cannot be written (No such file or directory), so nothing was added to it"),
    ],
)
@pytest.mark.parametrize("name", ["run", "follow"])
def test_wrong_options_to_append_are_64_before_the_audit(
    name: str, arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "journals").mkdir()
    out = [] if name == "run" or "--out" in arguments else ["--out", "out"]
    assert main([name, "journals", *out, *arguments]) == 64
    assert capsys.readouterr().err.startswith(f"pubsub-audit: {sentence}")


@pytest.mark.parametrize("text", ["0", "x", "-1"])
def test_invalid_values_are_64(text: str) -> None:
    for arguments in (["report", "x", "--from", text], ["run", "x", "--append", "y", "--keep-days", text]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 64
