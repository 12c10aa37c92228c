"""The commands of ``tools/bench``: their options, output and exit codes, and a short run of the small ones."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bench_app
import pytest
from _bench_audit import chain
from _children import ChildError, Children, attached
from _command_line import Parser, positive
from _measurements import command
from _measurements.command import COMMANDS, Finding, Findings

from pubsub_lib.errors import StoreFull

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[argparse.Namespace], Findings]], None]:
    """Let the command ``rot`` measure by this function; its option is ``--rounds``."""

    def done(measure: Callable[[argparse.Namespace], Findings]) -> None:
        def options(parser: Parser) -> None:
            parser.add_argument("--rounds", type=positive, default=1)

        monkeypatch.setattr(command, "load", lambda _: SimpleNamespace(options=options, measure=measure))

    return done


def two(options: argparse.Namespace) -> Findings:
    yield Finding("one", "the first", {"seconds": 1.5, "rounds": options.rounds})
    yield Finding("two", "the second", {"seconds": float("inf")}, met=False)


def test_findings_are_printed_and_a_missed_one_is_exit_code_1(
    register: Callable[..., None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    register(two)
    copy = tmp_path / "found.json"
    assert bench_app.main(["rot", "--rounds", "3", "--json", str(copy)]) == 1
    assert capsys.readouterr().out == "the first\nthe second\n"
    assert bench_app.main(["rot", "--rounds", "3", "-f", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["command"], found["met"]) == ("rot", False)
    assert found["findings"] == [
        {"name": "one", "met": True, "seconds": 1.5, "rounds": 3},
        {"name": "two", "met": False, "seconds": None},
    ]
    assert json.loads(copy.read_text())["findings"] == found["findings"]


def test_a_failed_measurement_is_exit_code_3_and_one_sentence(
    register: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(_: argparse.Namespace) -> Findings:
        yield Finding("one", "the first")
        raise StoreFull("no\nroom")

    register(failing)
    assert bench_app.main(["rot"]) == 3
    output = capsys.readouterr()
    assert (output.out, output.err) == ("the first\n", "tools/bench rot: no room\n")


def test_an_interrupt_ends_a_measurement_at_once(register: Callable[..., None]) -> None:
    ended = []

    def interrupted(_: argparse.Namespace) -> Findings:
        try:
            yield Finding("one", "the first")
        finally:
            ended.append(True)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    register(interrupted)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt) as caught:
        patch.setattr("builtins.print", interrupt)
        bench_app.main(["rot"])
    assert ended == [True]  # although the traceback keeps the frames
    assert caught.tb is not None


def test_each_command_has_its_module_and_all_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_app.main(["--help"])
    shown = capsys.readouterr().out
    assert list(COMMANDS) == sorted(COMMANDS)
    for name in COMMANDS:
        assert f"  {name} " in shown
        with pytest.raises(SystemExit) as ended:
            bench_app.main([name, "--help"])
        assert ended.value.code == 0
        assert f"usage: tools/bench {name} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "tools/bench: there is no command 'nothing'; the commands are anchor-cost, audit, "),
        (["settle", "--replicas", "0"], "tools/bench settle: argument --replicas: '0' is not a whole number from 1 on"),
        (["lake", "--latencies", "9999"], "tools/bench lake: --latencies 9999 is more than 4500, the number of "),
        (["rot", "--fast"], "tools/bench rot: unrecognized arguments: --fast; see tools/bench --help"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench_app.main(arguments)
    assert ended.value.code == 2
    output = capsys.readouterr().err
    assert output.startswith(sentence)
    assert output.count("\n") == 1


def measured(*arguments: str) -> list[dict[str, Any]]:
    """The findings of a command, in another process: some change the collector or trace all threads."""
    program = [sys.executable, str(ROOT / "tools" / "bench_app.py"), *arguments, "-f", "json"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


def test_fingerprints_measures_four_functions() -> None:
    found = measured("fingerprints", "--calls", "100", "--rounds", "1")
    assert [each["name"] for each in found] == ["XXH3-64", "CRC-32", "BLAKE2b-64", "MD5"]
    assert all(each["nanoseconds"] > 0 for each in found)


def test_objects_measures_each_form_in_its_process() -> None:
    found = measured("objects", "5000")
    assert [each["name"] for each in found] == ["parsed dicts", "bytes", "Record"]
    assert found[0]["bytes_per_object"] > 2 * found[1]["bytes_per_object"] > 0


def test_path_measures_all_steps_of_both_sizes() -> None:
    found = measured("path", "--keys", "100", "--changes", "2000")
    assert [each["name"] for each in found if "keys" in each] == ["transactions of 10", "transactions of 1"]
    steps = [each for each in found if "keys" not in each]
    assert len(steps) == 12
    assert all(each["median_microseconds"] > 0 for each in steps)


def test_lake_measures_an_append_and_a_report() -> None:
    found = measured("lake", "--windows", "24", "--replicas", "2", "--latencies", "50", "--rounds", "1")
    assert [each["name"] for each in found] == ["append", "report", "size"]
    assert all(each["seconds"] > 0 for each in found[:2])
    assert found[2]["bytes"] > 0


@pytest.mark.long
def test_churn_measures_each_kind_of_client() -> None:
    found = measured("churn", "--topics", "50", "--agents", "5", "--seconds", "3", "--bound", "100")
    assert [each["name"] for each in found] == ["calm", "questions", "connections", "reconnection"]
    assert all(each["gap_seconds"] > 0 for each in found)
    assert found[1]["number"] > 0
    assert found[2]["number"] > 0
    assert found[3]["number"] == 5


def test_trace_follows_a_set_to_the_handler() -> None:
    (found,) = measured("trace", "--count", "1")
    files = {step["file"] for thread in found["threads"] for step in thread}
    assert {"pubsub_lib/store/transaction.py", "pubsub_lib/core/codec.py", "pubsub_lib/core/tracker.py"} <= files
    assert len(files) == found["files"]
    assert found["calls"] >= found["functions"] >= found["files"]


def test_a_measurement_of_the_audit_without_journals_names_the_folder(tmp_path: Path) -> None:
    with Children() as children, pytest.raises(ChildError, match=r"join ended with 1: .* does not hold the journals"):
        children.output("join", attached(chain.__name__, "join", tmp_path, "1g"))
