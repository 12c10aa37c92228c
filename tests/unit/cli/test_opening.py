"""From the command line to a store: files, URL, what is missing, and to whom a commit is handed over."""

from pathlib import Path

import pytest

from tests.unit.cli.world import World, fill, start


def test_database_overrides_the_file_and_needs_none(small: World, tmp_path: Path, world: World) -> None:
    with world.open() as store:
        fill(store)
    found = small.run("--database", world.url, "tables", "-f", "value", "-c", "table")
    assert found.out == "lport\nswitch\n"
    alone = start("tables", "--database", world.url, "-f", "value", "-c", "table").communicate()
    assert alone == ("lport\nswitch\n", "")


def test_a_folder_of_files(small: World, tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("[pubsub]\nstore_url = sqlite:////nowhere/net.db\n")
    (tmp_path / "b.conf").write_text(f"[pubsub]\nstore_url = {small.url}\n")
    process = start("tables", "-f", "json", "--config-dir", tmp_path)
    assert process.communicate() == ("[]\n", "")


def test_without_any_configuration(tmp_path: Path) -> None:
    process = start("tables")
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert err == "pubsub-db: there is no configuration; give --config-file PATH, or --database URL\n"


def test_a_mistyped_url_makes_no_database(small: World, tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    small.run("tables", "--database", f"sqlite:///{missing}").failed(4, "missing.db does not exist", "pubsub-db init")
    assert not missing.exists()


def test_tables_of_somebody_else(small: World, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    small.run("tables", "--database", f"sqlite:///{tmp_path}/empty.db").failed(4, "pubsub-db init")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[pubsub]\nstore_url = nonsense\n", "the database URL cannot be read"),
        ("[pubsub]\n", "the option 'store_url' in group [pubsub] is missing"),
        ("[pubsub]\nmax_idle_time = soon\nstore_url = sqlite:///x.db\n", "the option 'max_idle_time'"),
        ("[pubsub\n", "the configuration cannot be read"),
        ("[pubsub]\nstore_url = postgresql://x@127.0.0.1:1/net\nstore_retry_attempts = 1\n", "is unreachable"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_named(text: str, words: str, small: World, tmp_path: Path) -> None:
    path = tmp_path / "wrong.conf"
    path.write_text(text)
    world = World("", path)
    world.capture = small.capture
    world.run("tables").failed(4 if "unreachable" in words else 2, words)


def test_a_missing_file(small: World) -> None:
    small.run("tables", "--config-file", "/nowhere/net.conf").failed(2, "/nowhere/net.conf")
