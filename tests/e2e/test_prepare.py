"""``pubsub-audit prepare`` with a real JVM: a small audit starts from the archive, which changes none of its output."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from pubsub_lib.audit.prepare import sample
from pubsub_lib.audit.spark.java import found_java
from pubsub_lib.errors import ConfigError
from tests.conftest import IN_CI

DEADLINE = 900.0
CACHE_VARIABLE = "PUBSUB_TEST_CACHE"
"""The variable with the cache of a run of ``tools/test``, which is new for each run."""


def audit(arguments: Sequence[str], **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pubsub_lib.audit.main", *arguments]
    return subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=DEADLINE
    )


@pytest.mark.long
def test_small_audit_starts_from_the_prepared_archive(tmp_path: Path) -> None:
    try:
        found_java()
    except ConfigError as error:
        (pytest.fail if IN_CI else pytest.skip)(str(error))
    cache = str(tmp_path / "cache")
    made = audit(["prepare", "-f", "json"], XDG_CACHE_HOME=cache)
    assert (made.returncode, made.stderr) == (0, "")
    archive = msgspec.json.decode(made.stdout)
    (path,) = (tmp_path / "cache" / "pubsub_lib").iterdir()
    assert (archive["file"], archive["bytes"], archive["made"]) == (str(path), path.stat().st_size, True)

    (tmp_path / "journals").mkdir()
    sample.write(tmp_path / "journals")
    loaded = tmp_path / "loaded"
    found = audit(
        ["run", str(tmp_path / "journals"), "-f", "json"],
        XDG_CACHE_HOME=cache, SPARK_SUBMIT_OPTS=f"-Xlog:class+load:file={loaded}",
    )  # fmt: skip
    assert found.returncode == msgspec.json.decode(found.stdout)["exit_code"] == 38, found.stderr
    assert found.stderr == "", "no line of Java or Spark"
    assert loaded.read_text().count("shared objects file (top)") > 10_000
    leave_to_the_demos(path)


def leave_to_the_demos(archive: Path) -> None:
    """Move the archive into the cache of this run of ``tools/test``, because the first demo would make another one."""
    if CACHE_VARIABLE in os.environ:
        folder = Path(os.environ[CACHE_VARIABLE]) / "pubsub_lib"
        folder.mkdir(mode=0o700, exist_ok=True)
        shutil.move(archive, folder)
