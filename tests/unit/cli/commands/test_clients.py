"""``pubsub-db clients``."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from pubsub_lib import curve_keys
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.store.clients import Clients
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


@pytest.mark.quick_variants(1)
def test_redirected_output_becomes_private(fresh: World, tmp_path: Path) -> None:
    path = tmp_path / "agent.key"
    with path.open("w") as file:
        path.chmod(0o644)
        process = fresh.process("clients", "add", "agent-7", stdout=file)
        _, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert curve_keys.read_file(str(path)).public == listed(fresh)[0]["public_key"]


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("closed_pipe", [False, True])
def test_client_is_not_added_when_its_key_cannot_be_printed(fresh: World, closed_pipe: bool) -> None:
    reader, output = os.pipe() if closed_pipe else (-1, os.open("/dev/full", os.O_WRONLY))
    if closed_pipe:
        os.close(reader)
    process = fresh.process("clients", "add", "agent-7", stdout=output)
    os.close(output)
    _, err = process.communicate()
    assert (process.returncode, "No space left" in err) == ((141, False) if closed_pipe else (5, True)), err
    assert listed(fresh) == []
    assert fresh.run("clients", "add", "agent-7").code == 0


def test_delivered_key_is_kept_and_named_when_the_client_may_not_be_added(
    fresh: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise StoreUnavailable("the database is down")

    monkeypatch.setattr(Clients, "add", fail)
    output = fresh.run("clients", "add", "agent-7")
    assert output.code == 4
    assert "secret" in output.out
    unless = "is invalid, unless pubsub-db clients list shows the client with its public key"
    failed = "pubsub-db: the database is down"
    assert output.err.splitlines() == [f"pubsub-db: the key that was printed {unless}", failed]
    path = tmp_path / "key"
    output = fresh.run("clients", "add", "agent-7", "--output", path)
    assert output.err.splitlines() == [f"pubsub-db: the key in {path} {unless}", failed]
    assert "secret" in path.read_text(), "the client may be added, and nothing else has its secret key"


@pytest.mark.parametrize("words", [[""], ["agent-8", "--topics", "t\0"]])
def test_no_key_is_printed_for_an_invalid_client(fresh: World, words: list[str]) -> None:
    fresh.run("clients", "add", *words).failed(2)


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


@pytest.mark.quick_variants(1)
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
    for nothing in ("", ","):
        fresh.run("clients", "revoke", "agent-7", "--topics", nothing).failed(2, "no topic is named")
        fresh.run("clients", "grant", "agent-7", "--topics", nothing).failed(2, "no topic is named")
    assert listed(fresh)[0]["topics"] == ["t2"]
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
