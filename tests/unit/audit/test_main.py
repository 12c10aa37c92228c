"""The command: one sentence for each mistake, and its exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pubsub_lib.audit.main import main
from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.journal.writer import Journal
from tests.unit.journal.builders import link, settings

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run"], "the following arguments are required"),
        (["walk"], "invalid choice: 'walk'"),
        (["run", "x", "--bound", "soon"], "invalid float value: 'soon'"),
    ],
)
def test_wrong_usage_is_64(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 64
    assert says in capsys.readouterr().err


def test_a_wrong_value_is_64_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path), "--window", "0"]) == 64
    assert capsys.readouterr().err == "pubsub-audit: window is 0 microseconds; it must be at least 1\n"


def test_no_input_is_32(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path), "--out", str(tmp_path / "out")]) == 32
    assert f"problem: no journals in {tmp_path}" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "out")]) == 32


def test_a_folder_that_is_not_there_is_32(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path / "gone")]) == 32
    assert "name one that exists" in capsys.readouterr().out


def test_garbage_alone_is_32(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nonsense")
    assert main(["run", str(tmp_path), "-f", "json"]) == 32
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["exit_code"] == 32
    assert "is no whole Parquet file" in found["problems"][0]


def test_no_report_is_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 64
    assert "name the folder of --out" in capsys.readouterr().err


def test_a_run_from_journals_to_report(tmp_path: Path) -> None:
    """Real journals, the real command in a process of its own: one message is lost, one file is garbage."""
    folder = tmp_path / "journals"
    service, replica = Journal(settings(folder), "service", "s1"), Journal(settings(folder), "replica", "r1")
    replica.note("interest", topic="t1")
    replica.note("sync_end", topic="t1", sequence=1, outcome="full")
    for sequence in (1, 2, 3):
        sent = Envelope("s1", "ab" * 16, "t1", sequence, [Message(link(6 + sequence))])
        service.messages(("sent",), sent)
        if sequence != 2:
            replica.messages(("applied",), sent)
    (folder / "x.journal").write_bytes(b"nonsense")
    service.close()
    replica.close()
    out = tmp_path / "out"
    command = [sys.executable, "-m", "pubsub_lib.audit.main", "run", str(folder), "--out", str(out), "-f", "json"]
    command += ["--bound", "0", "--master", "local[1]"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "drivers")])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1 + 32, done.stderr[-2000:]
    found = msgspec.json.decode(done.stdout)
    assert found["balance"][""] == {
        "expected": 3, "delivered": 2, "lost": 1, "pending": 0, "excused": 0, "unknown": 0
    }  # fmt: skip
    (lost,) = [each for each in found["first"] if each["verdict"] == "lost"]
    assert (lost["name"], lost["sequence"], lost["detail"], lost["blame"]) == ("r1", 2, "middle", "wire")
    assert found["problems"] == ["x.journal is no journal; remove it from the journals' folder"]
    assert "Traceback" not in done.stderr
    assert main(["report", str(out)]) == 33
    assert sorted(each.name for each in out.iterdir()) == [
        "delivery", "skews", "state", "store", "strays", "summary.json", "syncs"
    ]  # fmt: skip
