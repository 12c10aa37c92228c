"""The private servers start empty, can be killed, and leave no files behind."""

from pathlib import Path

import _servers
import pytest
import sqlalchemy
from _processes import alive, children
from _servers import PrivateMariaDB, PrivatePostgres, PrivateServer

from pubsub_lib import Store
from pubsub_lib.errors import ConfigError, StoreUnavailable

KINDS = [
    pytest.param("private_postgres", id="postgresql", marks=pytest.mark.postgresql),
    pytest.param("private_mariadb", id="mariadb", marks=pytest.mark.mariadb),
]


@pytest.fixture
def server(request: pytest.FixtureRequest) -> PrivateServer:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, PrivateServer)
    return found


def run(url: str, *statements: str) -> list[object]:
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        for statement in statements:
            result = connection.exec_driver_sql(statement)
        return [row[0] for row in result] if result.returns_rows else []


def tables(url: str) -> list[str]:
    return sqlalchemy.inspect(sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)).get_table_names()


@pytest.mark.empty_database
def test_database_url_is_an_empty_database(database_url: str) -> None:
    assert tables(database_url) == []
    run(database_url, "CREATE TABLE t (x INT)", "INSERT INTO t VALUES (1)")
    assert run(database_url, "SELECT x FROM t") == [1]


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_copied_database_has_the_tables_and_rows_of_the_original(server: PrivateServer) -> None:
    with Store(server.url) as store, store.transaction() as tx:
        tx.set("a", "1", {"n": 1}, topic="t")
    copy = server.copy_database(server.url)
    with Store(copy) as other:
        assert other.get("a", "1") == {"n": 1}
        assert tables(copy) == tables(server.url)
        with other.transaction() as tx:
            tx.delete("a", "1")
    with Store(server.url) as store:
        assert store.get("a", "1") == {"n": 1}


@pytest.mark.empty_database
@pytest.mark.parametrize(
    ("durable", "version", "statement"),
    [
        (False, "160004", "CREATE DATABASE db1 STRATEGY FILE_COPY"),
        (False, "140011", "CREATE DATABASE db1"),
        (True, "160004", "CREATE DATABASE db1"),
    ],
)
def test_only_a_postgresql_that_knows_it_copies_files(
    monkeypatch: pytest.MonkeyPatch, durable: bool, version: str, statement: str
) -> None:
    executed: list[str] = []

    def execute(server: PrivatePostgres, *statements: str) -> list[str]:
        executed.extend(statements)
        return [version]

    monkeypatch.setattr(PrivatePostgres, "_execute", execute)
    server = PrivatePostgres(durable=durable)
    server.create_database()
    server.create_database()
    assert executed == ["SHOW server_version_num", statement, statement.replace("db1", "db2")]


@pytest.mark.mariadb
def test_store_works_when_pymysql_prefers_tls(mariadb_url: str) -> None:
    """As with a user's URL; that of the private server disables TLS."""
    url = sqlalchemy.make_url(mariadb_url).difference_update_query(["ssl_disabled"])
    assert str(url) != mariadb_url
    with Store(url.render_as_string(hide_password=False)) as store:
        with store.transaction() as tx:
            tx.set("a", "1", {"n": 1}, topic="t")
        assert store.get("a", "1") == {"n": 1}


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_committed_rows_survive_a_killed_server(server: PrivateServer) -> None:
    run(server.url, "CREATE TABLE t (x INT)", "INSERT INTO t VALUES (1)")
    port, before, below = server.port, server.pid, children(server.pid)
    server.kill()
    assert not any(alive(pid) for pid in (before, *below))
    with pytest.raises(sqlalchemy.exc.OperationalError):
        run(server.url, "SELECT 1")
    with pytest.raises(StoreUnavailable, match="does not run"):
        server.pid  # noqa: B018
    server.restart()
    assert (server.port, run(server.url, "SELECT x FROM t")) == (port, [1])


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_drop_does_not_wait_for_a_forgotten_connection(server: PrivateServer) -> None:
    url = server.create_database()
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    forgotten = engine.connect()
    forgotten.exec_driver_sql("CREATE TABLE t (x INT)")
    forgotten.exec_driver_sql("INSERT INTO t VALUES (1)")
    server.drop_database(url)
    forgotten.invalidate()
    with pytest.raises(sqlalchemy.exc.OperationalError):
        run(url, "SELECT 1")


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_stop_leaves_nothing_behind_and_start_is_fresh(server: PrivateServer) -> None:
    folder = server._folder
    assert folder is not None
    run(server.url, "CREATE TABLE t (x INT)")
    pids = (server.pid, *children(server.pid))
    server.stop()
    server.stop()
    assert not folder.exists()
    assert not any(alive(pid) for pid in pids)
    server.start()
    assert tables(server.url) == []


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("kind", [PrivatePostgres, PrivateMariaDB])
def test_failed_server_start_reports_the_log_and_leaves_nothing(kind: type[PrivateServer]) -> None:
    broken = kind(options={"no_such_setting": "1"}, timeout=20)
    with pytest.raises(StoreUnavailable, match=r"ended with status \d+; its log ends: .*no_such_setting"):
        broken.start()
    assert broken._folder is None


def test_missing_binaries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_servers, "_path_folders", list)
    with pytest.raises(ConfigError, match="install the package mariadb-server"):
        PrivateMariaDB().start()


def test_copied_programs_keep_their_libraries(tmp_path: Path) -> None:
    binaries = tmp_path / "closed" / "pgserver" / "pginstall" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "initdb").write_text("program")
    (tmp_path / "closed" / "pgserver.libs").mkdir()
    (tmp_path / "closed" / "pgserver.libs" / "libpq.so").write_text("library")
    taken = _servers._take_along(binaries, tmp_path / "install")
    assert (taken / "initdb").read_text() == "program"
    assert (taken / "../../../pgserver.libs/libpq.so").read_text() == "library"


def test_error_names_binaries_that_the_server_user_cannot_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path} cannot be entered .* open it to all users"):
        _servers._take_along(tmp_path, tmp_path / "install")
