"""``pubsub-db load``."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.world import World


def write(path: Path, count: int) -> Path:
    lines = [{"table": "t", "key": f"{n:03}", "topic": f"p{n % 2}", "value": n} for n in range(count)]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def test_a_file(world: World, tmp_path: Path) -> None:
    path = write(tmp_path / "objects.jsonl", 25)
    before = world.head
    output = world.run("load", path, "--batch", 10, "-f", "json")
    assert output.json == {"lines": 25, "changes": 25, "transactions": 3, "position": before + 25}
    assert world.contents() == {("t", f"{n:03}"): (f"p{n % 2}", n) for n in range(25)}
    shown = world.run("load", path)
    assert (shown.code, shown.err, world.head) == (0, "", before + 25)
    assert "| changes      | 0 " in shown.out


def test_an_empty_file(world: World, tmp_path: Path) -> None:
    path = write(tmp_path / "objects.jsonl", 0)
    assert world.run("load", path, "-f", "json").json == {
        "lines": 0, "changes": 0, "transactions": 0, "position": None,
    }  # fmt: skip


def test_load_names_a_broken_line_and_a_second_run_continues(world: World, tmp_path: Path) -> None:
    path = write(tmp_path / "objects.jsonl", 30)
    good = path.read_text()
    lines = good.splitlines(keepends=True)
    path.write_text("".join([*lines[:19], "{broken\n", *lines[20:]]))
    output = world.run("load", path, "--batch", 10)
    assert (output.code, output.out) == (5, "")
    assert output.err.splitlines() == [
        "pubsub-db: the lines up to 19 are committed; run the command again, or with --from-line 20 to skip them",
        f"pubsub-db: line 20 of {path} is broken: {output.err.splitlines()[1].partition('broken: ')[2]}",
    ]
    assert len(world.contents()) == 19
    path.write_text(good)
    assert world.run("load", path, "-f", "json").json["changes"] == 11
    assert len(world.contents()) == 30


def test_the_first_line_is_broken(small: World, tmp_path: Path) -> None:
    path = tmp_path / "objects.jsonl"
    path.write_text("nonsense\n")
    output = small.run("load", path)
    assert output.code == 5
    assert output.err.startswith("pubsub-db: no line was loaded\npubsub-db: line 1 of ")


def test_a_missing_file(world: World) -> None:
    world.run("load", "/nowhere/objects.jsonl").failed(5, "/nowhere/objects.jsonl", "No such file")


@pytest.mark.parametrize(
    ("option", "words"),
    [("--batch=0", "give a number from 1 to 5000"), ("--batch=5001", "1 to 5000"), ("--from-line=0", "from 1")],
)
def test_wrong_numbers(option: str, words: str, small: World, tmp_path: Path) -> None:
    small.run("load", write(tmp_path / "objects.jsonl", 1), option).failed(2, words)
    assert small.contents() == {}


def test_with_small_transactions_and_no_option(small: World, tmp_path: Path) -> None:
    config = tmp_path / "net.conf"
    config.write_text(small.config.read_text() + "max_transaction_changes = 20\n")
    output = small.run("--config-file", config, "load", write(tmp_path / "objects.jsonl", 25), "-f", "json")
    assert output.json["transactions"] == 3


def test_missing_store_is_an_error(bare: World, tmp_path: Path) -> None:
    output = bare.run("load", write(tmp_path / "objects.jsonl", 1))
    assert output.code == 4
    assert output.err.splitlines()[0] == "pubsub-db: no line was loaded"
    assert "pubsub-db init" in output.err.splitlines()[1]
