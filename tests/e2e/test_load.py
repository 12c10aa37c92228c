"""``tools/bench load`` with small files: loads are killed and run again, and each of its checks can fail."""

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


def findings(output: str) -> dict[str, dict[str, Any]]:
    """The findings by their names; each name occurs once here."""
    return {each["name"]: each for each in json.loads(output)["findings"]}


@pytest.mark.long
def test_load_killed_twice_ends_equal_and_within_its_memory(routes: Path, tmp_path: Path) -> None:
    done = call("bench_app.py", "load", "-f", "json", "--file", str(routes), "--kills", "1000", "3000", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = findings(done.stdout)
    assert list(found) == ["run 1", "run 2", "run 3", "run 4", "database"]
    runs = list(found.values())[:4]
    first, second, third, again = runs
    assert [each["killed"] for each in runs] == [True, True, False, False]
    assert 1000 <= first["position"] < second["position"] < third["position"] == LINES
    assert second["position"] >= 3000
    assert third["changes"] == LINES - second["position"]
    assert again["changes"] == 0
    assert found["database"]["objects"] == LINES
    # A process that did not import the library would use far less.
    assert all(20 < each["megabytes"] <= found["database"]["peak_megabytes"] < 150 for each in runs)
    assert json.loads(done.stdout)["met"] is True


@pytest.mark.long
def test_excess_memory_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl.gz"
    with gzip.open(DATA / "rib-small.jsonl.gz") as lines, gzip.open(path, "wb") as out:
        out.writelines(itertools.islice(lines, 1))
    given = ("load", "-f", "json", "--file", str(path), "--kills")
    done = call("bench_app.py", *given, "--max-megabytes", "1", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    (reported,) = (each["sentence"] for each in json.loads(done.stdout)["findings"] if not each["met"])
    assert reported.startswith("the peak memory was ")
    done = call("bench_app.py", *given, "5", folder=tmp_path)
    assert done.returncode == 3
    assert_one_sentence(done.stderr, "tools/bench load: pubsub-db load ended with 0, at 1 of 5")


def test_missing_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    done = call("bench_app.py", "load", "--file", str(tmp_path / "none"), folder=tmp_path)
    assert done.returncode == 2
    assert_one_sentence(done.stderr, "tools/bench load: there is no file ")


def test_kills_that_do_not_increase_are_refused(routes: Path, tmp_path: Path) -> None:
    done = call("bench_app.py", "load", "--file", str(routes), "--kills", "2", "2", folder=tmp_path)
    assert done.returncode == 2
    assert_one_sentence(done.stderr, "tools/bench load: --kills must increase, ")
