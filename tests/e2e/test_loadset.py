"""``tools/loadset`` with small files: loads are killed and run again, and each of its checks can fail."""

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_demo import DATA, assert_one_sentence, call

LINES = 12_000


@pytest.fixture
def routes(tmp_path: Path) -> Path:
    """The first lines of the small file."""
    path = tmp_path / "routes.jsonl.gz"
    with gzip.open(DATA / "rib-small.jsonl.gz") as lines, gzip.open(path, "wb", 1) as out:
        out.writelines(itertools.islice(lines, LINES))
    return path


def test_load_killed_twice_ends_equal_and_within_its_memory(routes: Path, tmp_path: Path) -> None:
    done = call("loadset_app.py", "--file", str(routes), "--kills", "1000", "3000", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    first, second, third, again = report["runs"]
    assert [each["killed"] for each in report["runs"]] == [True, True, False, False]
    assert 1000 <= first["position"] < second["position"] < third["position"] == LINES
    assert second["position"] >= 3000
    assert third["changes"] == LINES - second["position"]
    assert again["changes"] == 0
    assert report["objects"] == LINES
    # A process that did not import the library would use far less.
    assert all(20 < each["megabytes"] <= report["peak_megabytes"] < 150 for each in report["runs"])
    assert report["wrong"] == []


def test_excess_memory_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl.gz"
    with gzip.open(DATA / "rib-small.jsonl.gz") as lines, gzip.open(path, "wb") as out:
        out.writelines(itertools.islice(lines, 1))
    done = call("loadset_app.py", "--file", str(path), "--kills", "--max-megabytes", "1", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    (reported,) = json.loads(done.stdout)["wrong"]
    assert reported.startswith("the peak memory was ")
    done = call("loadset_app.py", "--file", str(path), "--kills", "5", folder=tmp_path)
    assert done.returncode == 3
    assert_one_sentence(done.stderr, "tools/loadset: pubsub-db load ended with 0, at 1 of 5")


def test_missing_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    done = call("loadset_app.py", "--file", str(tmp_path / "none"), folder=tmp_path)
    assert done.returncode == 2
    assert_one_sentence(done.stderr, "tools/loadset: there is no file ")
