"""``pubsub-audit prepare``: its result, its output and its errors. The audit and the JVM are replaced."""

import errno
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _processes import poll

from pubsub_lib.audit.main import main
from pubsub_lib.audit.prepare import command
from pubsub_lib.audit.spark import class_archive
from pubsub_lib.errors import PubSubError

Finished = Callable[[list[str], str, Mapping[str, str]], tuple[int, str]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the archives."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "pubsub_lib"


def jvm(
    content: bytes | None = b"classes" * 1000, status: int = 36, of_check: int = 0, output: str = "a line\n"
) -> Finished:
    """An audit that ends with ``status`` and leaves ``content`` as archive, and a check that ends with ``of_check``."""

    def finished(command: list[str], of_java: str, more: Mapping[str, str]) -> tuple[int, str]:
        if command[0].endswith("spark-submit"):
            assert "-Xshare:on" in of_java
            return of_check, output
        assert "-XX:ArchiveClassesAtExit=" in of_java
        assert not Path(more["XDG_CACHE_HOME"]).exists()
        journals, out = Path(command[4]), Path(command[6])
        assert [each.name for each in journals.iterdir()] == ["sample.parquet"]
        (out / "delivery").mkdir(parents=True)
        if content is not None:
            Path(of_java.split('"')[1]).write_bytes(content)
        return status, output

    return finished


def assert_error(code: int, sentence: str, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare"]) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"pubsub-audit: {sentence}")
    assert output.err.count("\n") == 1
    assert not cache.exists() or list(cache.iterdir()) == []
    assert not list(cache.parent.glob("pubsub-prepare-*"))


def test_archive_is_made_once(cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "_finished", jvm())
    assert main(["prepare"]) == 0
    (path,) = cache.iterdir()
    made = re.escape(str(path)) + r" was made in \d+ s \(0 MB\); small audits start from it\n"
    assert re.fullmatch(made, capsys.readouterr().out)
    monkeypatch.delattr(command, "_finished")
    assert main(["prepare"]) == 0
    assert capsys.readouterr().out == f"{path} exists already (0 MB); small audits start from it\n"
    assert main(["prepare", "-f", "json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out) == {
        "file": str(path), "bytes": 7000, "made": False, "seconds": 0.0,
    }  # fmt: skip
    assert list(cache.parent.iterdir()) == [cache]


def test_truncated_archive_is_made_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_finished", jvm())
    assert main(["prepare"]) == 0
    (path,) = cache.iterdir()
    os.truncate(path, 5)
    monkeypatch.setattr(command, "_finished", jvm(b"other"))
    assert main(["prepare", "-f", "json"]) == 0
    (again,) = cache.iterdir()
    assert again.read_bytes() == b"other"
    assert '"made": true' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("finished", "sentence"),
    [
        (
            jvm(status=64, output="a\nno memory\n\n"),
            "the audit of generated journals failed with exit code 64: no memory",
        ),
        (jvm(status=70, output=""), "the audit of generated journals failed with exit code 70: it printed nothing"),
        (jvm(status=-9), "the audit of generated journals failed with exit code -9: a line"),
        (
            jvm(content=None, output="x\nCannot have non-empty directory in paths"),
            "Java wrote no archive of classes to ",
        ),
        (jvm(of_check=1, output="The shared archive file is corrupt."), "Java cannot use the archive of classes that "),
    ],
)
def test_failure_is_one_sentence_and_leaves_no_file(
    finished: Finished, sentence: str, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_finished", finished)
    assert_error(32, sentence, cache, capsys)


def test_full_disk_and_missing_rights_are_usage_errors(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/a/disk")

    written = "the archive of classes cannot be written"
    with monkeypatch.context() as patch:
        patch.setattr(command, "_finished", jvm())
        patch.setattr(class_archive, "keep", full)
        assert_error(64, f"{written} (No space left on device: /a/disk); free disk space, or set XDG", cache, capsys)
        patch.setattr("pubsub_lib.audit.prepare.sample.write", full)
        assert_error(64, f"{written} (No space left on device: /a/disk)", cache, capsys)
    cache.rmdir()
    cache.write_text("a file")
    assert main(["prepare"]) == 64
    assert capsys.readouterr().err.startswith(f"pubsub-audit: {written} (File exists: {cache})")


def test_java_without_an_archive_of_its_own_is_a_usage_error(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home" / "bin"
    home.mkdir(parents=True)
    java = home / "java"
    java.write_text('#!/bin/sh\n[ "$1" = -Xshare:on ] && exit 1\necho \'openjdk version "17.0.1"\' >&2\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home.parent))
    monkeypatch.setattr(command, "_finished", jvm())
    assert_error(64, f"{java} has no archive of its own classes", cache, capsys)


def test_missing_java_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert main(["prepare"]) == 64
    assert "does not exist; correct it or unset it" in capsys.readouterr().err


def test_output_of_the_program_and_of_its_child_are_read_to_their_end(tmp_path: Path) -> None:
    """The JVM ends after the command that started it."""
    end = tmp_path / "end"
    script = f"echo $SPARK_SUBMIT_OPTS; (sleep 0.5; echo last; touch {end}) & exit 3"
    status, output = command._finished(["sh", "-c", script], "-Dx", {})
    assert (status, output.splitlines()[0].split()[-1], output.splitlines()[-1]) == (3, "-Dx", "last")
    assert end.exists()


HANGING = "sleep 600 & echo $! > {}; wait"


def assert_ends(pid: int) -> None:
    """Another process adopts and reaps it."""
    for _ in range(1000):
        if not Path("/proc", str(pid)).exists() or "Z" in Path("/proc", str(pid), "stat").read_text().split()[2]:
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} still runs")


def test_hanging_audit_is_ended_with_its_jvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    communicate: Any = subprocess.Popen.communicate

    def after_its_start(process: "subprocess.Popen[bytes]", timeout: float) -> Any:
        assert poll(lambda: file.exists() and file.read_text().endswith("\n"), 60)
        return communicate(process, timeout=timeout)

    monkeypatch.setattr(command, "PATIENCE", 1.0)
    monkeypatch.setattr(subprocess.Popen, "communicate", after_its_start)
    with pytest.raises(PubSubError, match="did not end in 1 s; run it again"):
        command._finished(["sh", "-c", HANGING.format(file)], "", {})
    assert_ends(int(file.read_text()))


def test_interrupt_ends_the_audit_with_its_jvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(process: "subprocess.Popen[bytes]", timeout: float) -> tuple[bytes, None]:
        assert process.stdout is not None
        process.stdout.readline()
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command._finished(["sh", "-c", HANGING.format(tmp_path / "pid").replace("wait", "echo; wait")], "", {})
    assert_ends(int((tmp_path / "pid").read_text()))
