"""``pubsub-db clients``."""

import stat
from pathlib import Path
from typing import Any

import pytest

from pubsub_lib import curve_keys
from tests.unit.cli.world import World


def listed(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.run("clients", "list", "-f", "json").json
    return found


def test_client_is_added_with_a_key_on_the_output(fresh: World, tmp_path: Path) -> None:
    output = fresh.run("clients", "add", "agent-7", "--topics", "t2,t1", "--topics", "t3")
    assert output.code == 0
    (tmp_path / "key").write_text(output.out)
    pair = curve_keys.read_file(str(tmp_path / "key"))
    assert listed(fresh) == [
        {"name": "agent-7", "topics": ["t1", "t2", "t3"], "everything": False, "public_key": pair.public}
    ]
    assert pair.secret not in fresh.run("clients", "list").out
    fresh.run("clients", "add", "agent-7").failed(1, "there is a client 'agent-7' already")


def test_key_file_is_new_and_private(fresh: World, tmp_path: Path) -> None:
    path = tmp_path / "agent.key"
    output = fresh.run("clients", "add", "agent-7", "--everything", "--output", path)
    assert (output.code, output.out) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert listed(fresh)[0]["public_key"] == curve_keys.read_file(str(path)).public
    assert listed(fresh)[0]["everything"] is True
    before = path.read_bytes()
    fresh.run("clients", "add", "agent-8", "--output", path).failed(5, "cannot be created (File exists)")
    assert path.read_bytes() == before
    fresh.run("clients", "add", "agent-7", "--output", tmp_path / "other").failed(1, "already")
    assert not (tmp_path / "other").exists()
    assert len(listed(fresh)) == 1


def test_redirected_output_becomes_private(fresh: World, tmp_path: Path) -> None:
    path = tmp_path / "agent.key"
    with path.open("w") as file:
        path.chmod(0o644)
        process = fresh.process("clients", "add", "agent-7", stdout=file)
        _, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert curve_keys.read_file(str(path)).public == listed(fresh)[0]["public_key"]


def test_client_brings_its_own_public_key(fresh: World) -> None:
    pair = curve_keys.new_pair()
    output = fresh.run("clients", "add", "agent-7", "--public-key", pair.public)
    assert (output.code, output.out) == (0, "")
    assert listed(fresh)[0] == {"name": "agent-7", "topics": [], "everything": False, "public_key": pair.public}
    fresh.run("clients", "add", "agent-8", "--public-key", pair.public).failed(1, "'agent-7' has this key")
    fresh.run("clients", "add", "agent-8", "--public-key", "x").failed(2, "not a CURVE key")
    hyphen = "-" + "a" * 39
    assert fresh.run("clients", "add", "agent-9", f"--public-key={hyphen}").code == 0
    assert listed(fresh)[1]["public_key"] == hyphen


def test_topics_are_granted_and_revoked(fresh: World) -> None:
    fresh.run("clients", "add", "agent-7", "--topics", "t1")
    assert fresh.run("clients", "grant", "agent-7", "--topics", "t2", "--everything", "-f", "json").json == {
        **listed(fresh)[0],
        "topics": ["t1", "t2"],
        "everything": True,
    }
    assert fresh.run("clients", "revoke", "agent-7", "--topics", "t1", "--everything", "-f", "json").json["topics"] == [
        "t2"
    ]
    assert (listed(fresh)[0]["topics"], listed(fresh)[0]["everything"]) == (["t2"], False)
    fresh.run("clients", "revoke", "agent-7", "--topics", "t9").failed(1, "was not granted 't9'")
    fresh.run("clients", "grant", "agent-7").failed(2, "give --topics or --everything")
    fresh.run("clients", "grant", "x", "--topics", "t").failed(1, "there is no client 'x'")
    output = fresh.run("clients", "revoke", "agent-7")
    assert output.code == 0
    assert "the client agent-7 and its key were removed" in output.err
    assert listed(fresh) == []
    assert "no clients" in fresh.run("clients", "list").err


@pytest.mark.parametrize(
    ("words", "hint"), [(["clients"], "clients"), (["clients", "lst"], "'clients list'"), (["clients", "x"], "clients")]
)
def test_unknown_command_of_the_group_gets_a_hint(fresh: World, words: list[str], hint: str) -> None:
    fresh.run(*words).failed(2, f"there is no command {' '.join(words)!r}", hint)
    assert "usage: pubsub-db clients list" in fresh.run("help", "clients", "list").out
