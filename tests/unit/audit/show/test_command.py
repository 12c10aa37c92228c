"""``pubsub-audit show``: options, output, and exit codes."""

import json
import os
from pathlib import Path

import pytest

from pubsub_lib.audit.show.lines import title
from pubsub_lib.audit.show.main import main
from pubsub_lib.journal.compaction import compact
from pubsub_lib.journal.entries import Entry, beginning, frame
from tests.unit.audit.denied import deny
from tests.unit.audit.show.test_lines import HOSTILE
from tests.unit.audit.show.test_source import OPEN, applied, raw
from tests.unit.journal.builders import HEADER

PART_1 = beginning(HEADER) + OPEN + applied(2, 7, 8) + frame(Entry(4, 2_000_000, 3_000, "mark"))
PART_2 = beginning(HEADER) + applied(5, 9) + frame(Entry(6, 3_000_000, 4_000, "close"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A journal in two parts: 6 records, of which 3 are changes of lport/p1."""
    folder = tmp_path / "journals"
    folder.mkdir()
    for number, content in ((1, PART_1), (2, PART_2)):
        path = folder / f"{HEADER.run}-{number:06d}.journal"
        path.write_bytes(content)
        os.utime(path, (number, number))
    return folder


def numbers(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[int]:
    assert main(["show", str(folder), "-f", "json", *options]) == 0
    return [json.loads(each)["number"] for each in capsys.readouterr().out.splitlines()]


def test_table_has_a_summary_of_each_file_and_its_records(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder)]) == 0
    output = capsys.readouterr()
    first, names, *lines = output.out.splitlines()
    who = f"replica controller-1 on host-1, run {HEADER.run}"
    path = folder / HEADER.run
    assert first == f"{path}-000001.journal: {who}, part 1 (2 in its folder), begins 1970-01-01T00:00:00.001Z"
    assert names == title()
    assert lines[4] == f"{path}-000002.journal: {who}, part 2 (2 in its folder), continues 1970-01-01T00:00:00.001Z"
    records = [" ".join(each.split()) for each in (*lines[:4], *lines[5:])]
    assert records == [
        "1970-01-01T00:00:00.001Z 1 open",
        "1970-01-01T00:00:00.001Z 2 data applied t1 11 7 lport/p1 set 7 s1 cdcdcdcd",
        "1970-01-01T00:00:00.001Z 3 data applied t1 12 8 lport/p1 set 7->8 s1 cdcdcdcd",
        "1970-01-01T00:00:02.000Z 4 mark",
        "1970-01-01T00:00:00.001Z 5 data applied t1 11 9 lport/p1 set 9 s1 cdcdcdcd",
        "1970-01-01T00:00:03.000Z 6 close",
    ]
    assert output.err == ""


def test_both_forms_have_the_same_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder)]) == 0
    before = capsys.readouterr().out
    compact(folder)
    assert main(["show", str(folder)]) == 0
    assert capsys.readouterr().out == before.replace(".journal", ".parquet")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], [1, 2, 3, 4, 5, 6]),
        (["--topic", "t1"], [2, 3, 5]),
        (["--table", "lport", "--key", "p1"], [2, 3, 5]),
        (["--key", "p2"], []),
        (["--kind", "mark"], [4]),
        (["--kind", "mark", "--kind", "close"], [4, 6]),
        (["--from", "1970-01-01T00:00:02"], [4, 6]),
        (["--from", "1970-01-01T00:00:02Z", "--to", "1970-01-01T00:00:03"], [4]),
        (["--to", "1970-01-01T01:00:02+01:00"], [1, 2, 3, 5]),
        (["--limit", "4"], [1, 2, 3, 4]),
        (["--limit", "2", "--topic", "t1"], [2, 3]),
        (["--tail", "3"], [4, 5, 6]),
        (["--tail", "2", "--topic", "t1"], [3, 5]),
        (["--tail", "99"], [1, 2, 3, 4, 5, 6]),
    ],
)
def test_options_select_records(
    options: list[str], expected: list[int], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert numbers(folder, capsys, *options) == expected


def test_tail_prints_the_summary_of_each_file_that_it_shows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder), "--tail", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [each.split()[0].rpartition("-")[2] for each in (lines[0], lines[3])] == [
        "000001.journal:",
        "000002.journal:",
    ]
    assert len(lines) == 6


def test_files_without_a_selected_record_have_no_summary(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder), "--kind", "close"]) == 0
    assert [each.split()[0] for each in capsys.readouterr().out.splitlines()] == [
        f"{folder / HEADER.run}-000002.journal:", "time", "1970-01-01T00:00:03.000Z"
    ]  # fmt: skip


def test_no_selected_record_is_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder), "--topic", "t9"]) == 0
    assert capsys.readouterr() == ("", "pubsub-audit: no record is selected, of 6 that were read\n")


def test_problems_end_neither_the_file_nor_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / f"{HEADER.run}-000001.journal").write_bytes(PART_1 + raw(7, 5, 6, "election") + b"half")
    gone = folder / "gone.journal"
    assert main(["show", str(gone), str(folder), "-f", "json"]) == 32
    output = capsys.readouterr()
    assert [json.loads(each)["number"] for each in output.out.splitlines()] == [1, 2, 3, 4, 7, 5, 6]
    missing, torn, unknown = output.err.splitlines()
    assert missing == f"pubsub-audit: {gone} does not exist; name a file or a folder of journals"
    assert "000001.journal ends in the middle of a record: 5 whole records were read, and the last 4 bytes" in torn
    assert "000001.journal has 1 record of unknown kinds (election), shown as far as possible" in unknown


def test_folder_without_journals_is_32(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path)]) == 32
    assert capsys.readouterr() == ("", f"pubsub-audit: no journals in {tmp_path}; name a folder that has them\n")


@pytest.mark.parametrize("form", ["table", "json"])
def test_control_characters_reach_no_terminal(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "\x1b[2J.journal"
    path.write_bytes(beginning(HEADER) + raw(1, 5, 6, HOSTILE, [], HOSTILE, HOSTILE, HOSTILE))
    assert main(["show", str(path), str(tmp_path / "\x9b.journal"), "-f", form]) == 32
    output = capsys.readouterr()
    assert all(each.isprintable() for each in (*output.out.split("\n"), *output.err.split("\n")))
    assert r"\x1b[2J.journal has 1 record of unknown kinds (\x1b[2J\x9b31m\u202e\n)" in output.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "the following arguments are required: JOURNAL"),
        (["x", "--from", "soon"], "argument --from: 'soon' is not a time such as 2026-11-26T09:30:00.250Z"),
        (["x", "--limit", "0"], "argument --limit: '0' is not a whole number from 1 on"),
        (["x", "--limit", "1", "--tail", "1"], "argument --tail: not allowed with argument --limit"),
        (["x", "-f", "xml"], "invalid choice: 'xml'"),
    ],
)
def test_wrong_usage_is_64(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["show", *arguments])
    assert ended.value.code == 64
    assert error in capsys.readouterr().err


def test_full_disk_of_the_output_is_32(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert main(["show", str(folder)]) == 32
    assert capsys.readouterr().err == (
        "pubsub-audit: the output cannot be written (No space left on device); free disk space\n"
    )


@pytest.mark.parametrize("denied", ["file", "folder"])
def test_what_may_not_be_searched_is_one_sentence_and_all_else_is_shown(
    folder: Path, tmp_path: Path, denied: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The journals of a library are in a folder with mode 0700."""
    other = tmp_path / "other" / (f"{HEADER.run}-000001.journal" if denied == "file" else "journals")
    deny(monkeypatch, other)
    assert main(["show", str(other), str(folder)]) == 32
    output = capsys.readouterr()
    assert output.err == f"pubsub-audit: {other} cannot be read (Permission denied); correct its rights or its disk\n"
    assert len(output.out.splitlines()) == 9
