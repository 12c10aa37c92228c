"""The file of a SQLite store: missing, mistyped, replaced."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pubsub_lib.errors import PubSubError, SchemaError, StoreUnavailable
from pubsub_lib.store import Store, StoreSettings
from tests.unit.store.conftest import Opener

IMPATIENT = StoreSettings(retry_attempts=2, retry_max_seconds=2.0)


def put(store: Store, value: object) -> None:
    with store.transaction() as tx:
        tx.set("t", "k", value)


def backup(path: Path) -> Path:
    copy = path.with_name("backup.db")
    source, target = sqlite3.connect(path), sqlite3.connect(copy)
    source.backup(target)
    source.close()
    target.close()
    return copy


def restore(copy: Path, path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    copy.replace(path)


def test_without_create_a_missing_file_is_named_and_not_created(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/mistyped.db", create=False, settings=IMPATIENT) as store:
        for call in (store.topics, lambda: put(store, 1), lambda: store.unique_id("x"), lambda: list(store.objects())):
            with pytest.raises(StoreUnavailable, match=r"mistyped\.db does not exist"):
                call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.empty_database
def test_without_create_an_empty_database_stays_empty_until_another_creates_it(
    open_store: Opener, database_url: str
) -> None:
    if database_url.startswith("sqlite"):
        Path(database_url.removeprefix("sqlite:///")).touch()
    early = open_store(create=False, settings=IMPATIENT)
    for _ in range(2):
        with pytest.raises(SchemaError, match="holds no tables"):
            early.topics()
    put(open_store(), 1)
    assert early.get("t", "k") == 1
    put(early, 2)


def test_without_create_an_unreachable_server_is_reported_at_the_first_call() -> None:
    with (
        Store("postgresql://postgres@127.0.0.1:1/x", create=False, settings=IMPATIENT) as store,
        pytest.raises(StoreUnavailable),
    ):
        store.topics()


@pytest.mark.parametrize("form", ["sqlite:///{}/a b%41#ü.db", "sqlite:///file:{}/net.db?uri=true"])
def test_path_of_decodes_file_names(form: str, tmp_path: Path) -> None:
    url = form.format(tmp_path)
    with Store(url) as store:
        put(store, 1)
    with Store(url, create=False) as store:
        assert store.get("t", "k") == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_restored_file_is_detected_by_readers_and_writers(tmp_path: Path) -> None:
    path = tmp_path / "net.db"
    with Store(f"sqlite:///{path}") as store:
        put(store, "old")
        copy = backup(path)
        put(store, "lost")
        before = store.read_heads([]).store
        restore(copy, path)
        assert store.get("t", "k") == "old"
        put(store, "new")
        assert store.read_heads([]).store.position == before.position
        with Store(f"sqlite:///{path}") as other:
            assert other.get("t", "k") == "new"
            assert not other.read_links(before, 10)[2]


def test_closing_the_old_file_keeps_the_new_files_wal(tmp_path: Path) -> None:
    path = tmp_path / "net.db"
    with Store(f"sqlite:///{path}") as reader:
        put(reader, "old")
        copy = backup(path)
        restore(copy, path)
        writer = Store(f"sqlite:///{path}")
        put(writer, "new")
        reader.close()  # idle connections to the old file
        assert path.with_name("net.db-wal").exists()
        # A process that starts now reads everything: the data is still in the WAL.
        probe = sqlite3.connect(path)
        assert probe.execute("SELECT value FROM pubsub_objects").fetchall() == [(b'"new"',)]
        probe.close()
        writer.close()


def test_removed_file_is_unavailable_and_not_created_again(tmp_path: Path) -> None:
    path = tmp_path / "net.db"
    with Store(f"sqlite:///{path}", settings=IMPATIENT) as store:
        put(store, 1)
        path.rename(tmp_path / "away.db")
        for call in (lambda: put(store, 2), lambda: store.get("t", "k")):
            with pytest.raises(PubSubError, match="does not exist") as caught:
                call()
            assert isinstance(caught.value, StoreUnavailable)
        (tmp_path / "away.db").rename(path)
        assert store.get("t", "k") == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["net.db"]


def test_opening_a_file_again_keeps_the_locks_of_this_process(tmp_path: Path) -> None:
    """Otherwise another process would remove the write-ahead log under the connections of this one."""
    path = tmp_path / "store.db"
    other = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM pubsub_links').fetchall()"
    with Store(f"sqlite:///{path}") as store:
        put(store, 1)
        with Store(f"sqlite:///{path}"):
            pass
        subprocess.run([sys.executable, "-c", other, str(path)], check=True)
        assert path.with_name("store.db-wal").exists()
        put(store, 2)
        with sqlite3.connect(path) as connection:
            (count,) = connection.execute("SELECT count(*) FROM pubsub_links").fetchone()
        connection.close()
        assert count == 2


def test_link_to_a_missing_file_creates_the_file(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    with Store(f"sqlite:///{tmp_path}/link.db") as store:
        put(store, 1)
    assert (tmp_path / "real.db").is_file()


def test_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "net.db"
    with Store(f"sqlite:///{path}") as store:
        put(store, 1)
        modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    assert modes.pop("net.db") == 0o600
    assert set(modes.values()) <= {0o600}


def test_permissions_of_an_existing_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "net.db"
    path.touch(0o640)
    path.chmod(0o640)
    with Store(f"sqlite:///{path}") as store:
        put(store, 1)
    assert path.stat().st_mode & 0o777 == 0o640
