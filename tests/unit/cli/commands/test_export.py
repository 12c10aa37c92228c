"""``pubsub-db export``."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.world import ROOT, World, fill


@pytest.mark.parametrize("name", ["net.jsonl", "net.jsonl.gz"])
def test_exported_objects_can_be_loaded(name: str, world: World, tmp_path: Path) -> None:
    with world.open() as store:
        fill(store)
    path = tmp_path / name
    output = world.run("export", path)
    assert (output.code, output.out, output.err) == (0, "", f"pubsub-db: 3 objects were written to {path}\n")
    before = world.contents()
    data = path.read_bytes()
    lines = (gzip.decompress(data) if name.endswith(".gz") else data).decode().splitlines()
    assert {(each["table"], each["key"]): (each["topic"], each["value"]) for each in map(json.loads, lines)} == before
    world.run("clean", "--yes")
    assert world.run("load", path, "-f", "json").json["changes"] == 3
    assert world.contents() == before


def test_export_by_table_and_topic(world: World, tmp_path: Path) -> None:
    with world.open() as store:
        fill(store)
    path = tmp_path / "net.jsonl"
    for options, count in [
        (("--table", "lport"), 2),
        (("--topic", "tenant-1"), 2),
        (("--table", "lport", "--topic", "tenant-1"), 1),
        (("--table", "nothing"), 0),
        (("--topic", "nothing"), 0),
    ]:
        assert world.run("export", path, "--yes", *options).code == 0
        assert len(path.read_text().splitlines()) == count, options


def test_the_standard_output_is_only_lines(small: World) -> None:
    with small.open() as store:
        fill(store)
    process = small.process("export", "-")
    out, err = process.communicate()
    assert process.returncode == 0
    assert sorted(json.loads(line)["key"] for line in out.splitlines()) == ["p1", "p2", "s1"]
    assert err == "pubsub-db: 3 objects were written to the standard output\n"
    assert small.process("export", "-", "--quiet").communicate()[1] == ""


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("command", ["export /dev/stdout | cat", "export >(cat)", "export pipe & cat pipe; wait $!"])
def test_pipes_get_the_lines_directly(command: str, small: World, tmp_path: Path) -> None:
    with small.open() as store:
        fill(store)
    os.mkfifo(tmp_path / "pipe")
    script = f"set -o pipefail; {command.replace('export', f'{sys.executable} -m pubsub_lib.cli -q $0 $1 export')}"
    process = subprocess.run(
        ["bash", "-c", script, "--config-file", small.config],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}"},
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert (process.returncode, process.stderr) == (0, "")
    assert sorted(json.loads(line)["key"] for line in process.stdout.splitlines()) == ["p1", "p2", "s1"]
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]


def test_export_overwrites_an_existing_file_only_with_yes(small: World, tmp_path: Path) -> None:
    path = tmp_path / "net.jsonl"
    path.write_text("mine")
    small.run("export", path).failed(2, f"cannot ask whether to overwrite the file {path}")
    assert path.read_text() == "mine"
    assert small.run("export", path, "-y").code == 0
    assert path.read_text() == ""


def test_export_to_an_unwritable_file_fails(small: World, tmp_path: Path) -> None:
    small.run("export", tmp_path / "no" / "net.jsonl").failed(5, "No such file or directory")
    with small.open() as store:
        fill(store)
    small.run("export", "/dev/full").failed(5, "/dev/full cannot be written (No space left on device)")


def test_missing_store_is_an_error(bare: World, tmp_path: Path) -> None:
    bare.run("export", tmp_path / "net.jsonl").failed(4, "pubsub-db init")
    assert not (tmp_path / "net.jsonl").exists()
