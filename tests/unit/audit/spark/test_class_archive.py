"""The archive of Spark's classes: its name, and a JVM that is given a bad one."""

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pyspark
import pytest

from pubsub_lib.audit.spark import class_archive
from pubsub_lib.audit.spark.java import java
from pubsub_lib.errors import ConfigError

JAVA = 'openjdk version "17.0.1" 2021-10-19\n'
MAIN = "org.apache.spark.launcher.Main"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the archives."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return tmp_path / "a cache" / "pubsub_lib"


def kept(content: bytes, version: str = JAVA) -> Path:
    """An archive of this content, as ``prepare`` keeps it."""
    new = class_archive.unfinished(version)
    new.write_bytes(content)
    return class_archive.keep(new, version)


def test_archive_is_found_for_its_java_spark_and_class_path_only(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert class_archive.find(JAVA) is None
    assert class_archive.options(JAVA) == ""
    path = kept(b"classes")
    assert list(cache.iterdir()) == [path]
    assert cache.stat().st_mode & 0o777 == 0o700
    assert class_archive.find(JAVA) == path
    assert class_archive.find(JAVA.replace("17.0.1", "17.0.2")) is None
    with monkeypatch.context() as patch:
        patch.setattr(pyspark, "__version__", "0.0")
        assert class_archive.find(JAVA) is None
    with monkeypatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(tmp_path))
        assert class_archive.find(JAVA) is None
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert class_archive.find(JAVA) is None


def test_changed_jar_needs_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "jars" / "a.jar"
    jar.parent.mkdir()
    jar.write_bytes(b"1")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    path = kept(b"classes")
    assert class_archive.find(JAVA) == path
    os.utime(jar, (1, 1))
    assert class_archive.find(JAVA) is None


def test_truncated_or_unreadable_archive_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    path = kept(b"classes")
    assert class_archive.remains(JAVA) == []
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)  # root may read every file
        assert class_archive.options(JAVA) == ""
    os.truncate(path, 3)
    assert class_archive.options(JAVA) == ""
    assert class_archive.remains(JAVA) == [path]


def test_part_of_a_killed_process_is_found_after_an_hour(cache: Path) -> None:
    part = class_archive.unfinished(JAVA)
    part.write_bytes(b"a part")
    assert class_archive.find(JAVA) is None
    assert class_archive.remains(JAVA) == []
    old = time.time() - 4000
    os.utime(part, (old, old))
    assert class_archive.remains(JAVA) == [part]


def test_user_without_a_folder_has_no_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept(b"classes")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "no jars"))
    assert class_archive.find(JAVA) is None
    monkeypatch.delenv("SPARK_HOME")

    def no_folder() -> Path:
        raise ConfigError("no home")

    monkeypatch.setattr(class_archive, "cache_folder", no_folder)
    assert class_archive.find(JAVA) is None
    with pytest.raises(ConfigError, match="no home"):
        class_archive.unfinished(JAVA)


def launched(options: str, class_path: Path) -> "subprocess.CompletedProcess[str]":
    """A small program of Spark, which prints an error and ends with 1."""
    with java():
        home = os.environ.get("JAVA_HOME")
        program = Path(home) / "bin" / "java" if home else "java"
        command = [str(program), *shlex.split(options), "-cp", f"{class_path}/*", MAIN]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_jvm_reads_a_good_archive_and_ignores_every_other_silently(tmp_path: Path) -> None:
    """Not: a truncated one, which ends the JVM; it is not given to it."""
    home = Path(pyspark.__file__).parent / "jars"
    jars = tmp_path / "jars"
    jars.mkdir()
    for each in home.glob("spark-launcher*.jar"):
        shutil.copy(each, jars)
    plain = launched("", jars)
    assert (plain.returncode, plain.stdout) == (1, "")
    new = class_archive.unfinished(JAVA)
    recorded = launched(class_archive.recording(new), jars)
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (1, "", plain.stderr)
    assert launched(class_archive.checking(new), jars).stderr == plain.stderr
    path = class_archive.keep(new, JAVA)
    used = launched(f"{class_archive.options(JAVA)} -Xlog:class+load", jars)
    assert f"{MAIN} source: shared objects file (top)" in used.stdout
    content = path.read_bytes()

    def assert_ignored() -> None:
        ignored = launched(class_archive.options(JAVA), jars)
        assert (ignored.returncode, ignored.stdout, ignored.stderr) == (1, "", plain.stderr)

    path.chmod(0o600)
    middle = len(content) // 2
    for bad in (
        bytes(len(content)),
        content[:middle] + bytes(9) + content[middle + 9 :],
        content[:900] + content[:-900],
    ):
        path.write_bytes(bad)
        assert_ignored()
        assert launched(class_archive.checking(path), jars).returncode == 1
    path.write_bytes(content)
    os.utime(next(jars.iterdir()), (1, 1))
    assert_ignored()
