"""``publisher-service --check --connect`` names unavailable resources, with an exit code, and leaves no files."""

import contextlib
import itertools
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import sqlalchemy
from _processes import free_port

from pubsub_lib import Settings, Store, loader
from pubsub_lib.api import OnConnected, OnHelloRequest, Publisher
from pubsub_lib.config.reading import Configuration
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.errors import ConfigError, PubSubError, SchemaError, StoreError, StoreUnavailable, TransportError
from pubsub_lib.service import main as main_module
from pubsub_lib.service import probing
from pubsub_lib.service.leases import Leases
from pubsub_lib.service.main import main
from pubsub_lib.service.name_conflicts import lease_of
from pubsub_lib.service.settings import load
from pubsub_lib.socket_lock import SocketLock

Config = Callable[..., Path]
UNPRIVILEGED_UID = 65534


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Write an INI file whose resources are all available; some of its lines replaced."""

    def write(**changed: object) -> Path:
        lines: dict[str, object] = {
            "store_url": f"sqlite:///{tmp_path}/net.db",
            "enable_pub_sub": "true",
            "service_name": "api-1",
            "publisher_bind_address": "127.0.0.1",
            "publisher_port": free_port(),
            "publisher_multiproc_socket": f"{tmp_path}/hop/socket",
            "journal_folder": f"{tmp_path}/journals",
        }
        metrics = changed.pop("metrics_port", free_port())
        lines |= changed
        path = tmp_path / "net.conf"
        text = "\n".join(f"{name} = {value}" for name, value in lines.items())
        path.write_text(f"[pubsub]\n{text}\n[publisher_service]\nmetrics_port = {metrics}\n")
        return path

    return write


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that this process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A folder that every user reaches (pytest's own are closed to others)."""
    with tempfile.TemporaryDirectory(prefix="pubsub-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Drop root's rights, which pass every permission."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(UNPRIVILEGED_UID)
    try:
        yield
    finally:
        os.seteuid(0)


def failures(path: Path) -> list[PubSubError]:
    return list(probing.failures(*loaded(path)))


def loaded(path: Path) -> tuple[Settings, ServiceSettings]:
    return load(Configuration.read(path))


def only(path: Path) -> PubSubError:
    (error,) = failures(path)
    assert "\n" not in str(error)
    return error


def test_connect_leaves_no_files_when_everything_is_available(
    config: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_module, "_set_up_logging", lambda config_file, level: None)
    path = config()
    assert main(["--check", "--connect", "--config-file", str(path)]) == 0
    assert capsys.readouterr().out.strip().endswith("; database, folders, sockets and ports are available")
    assert [each.name for each in path.parent.iterdir()] == ["net.conf"]


def test_connect_without_check_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--connect"])
    assert ended.value.code == 2
    assert "--connect needs --check" in capsys.readouterr().err


@pytest.mark.empty_database
def test_existing_database_is_used_as_by_a_writer(config: Config, database_url: str) -> None:
    path = config(store_url=database_url)
    assert failures(path) == []  # empty, and left so
    engine = sqlalchemy.create_engine(database_url)
    if not database_url.startswith("sqlite"):
        assert sqlalchemy.inspect(engine).get_table_names() == []
    with Store(database_url) as store, store.transaction() as tx:
        tx.set("t", "k", 1)
    assert failures(path) == []
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE pubsub_version SET version_num = '9999'"))
    assert isinstance(only(path), SchemaError)
    engine.dispose()


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_unreachable_database_is_named_without_its_password(
    scheme: str, config: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_module, "_set_up_logging", lambda config_file, level: None)
    path = config(store_url=f"{scheme}://me:tOpSeCrEt@127.0.0.1:{free_port()}/net", store_connect_timeout=2)
    assert isinstance(only(path), StoreUnavailable)
    assert main(["--check", "--connect", "--config-file", str(path)]) == 4
    output = capsys.readouterr().err
    assert output.startswith("publisher-service: ")
    assert "tOpSeCrEt" not in output


def test_database_in_a_missing_folder(config: Config, tmp_path: Path) -> None:
    error = only(config(store_url=f"sqlite:///{tmp_path}/missing/net.db"))
    assert isinstance(error, StoreError)
    assert f"(No such file or directory: '{tmp_path}/missing')" in str(error)


def test_database_below_a_dangling_link(config: Config, tmp_path: Path) -> None:
    (tmp_path / "net.db").symlink_to(tmp_path / "missing" / "net.db")
    error = only(config())
    assert isinstance(error, StoreUnavailable)
    assert f"'{tmp_path}/net.db' of store_url cannot be made" in str(error)
    assert f"(No such file or directory: '{tmp_path}/missing')" in str(error)
    (tmp_path / "missing").mkdir()
    assert failures(config()) == []


def test_missing_database_with_a_mode_in_the_url(config: Config, tmp_path: Path) -> None:
    error = only(config(store_url=f"sqlite:///file:{tmp_path}/net.db?mode=rw&uri=true"))
    assert isinstance(error, StoreUnavailable)
    assert f"the SQLite file '{tmp_path}/net.db' of store_url is missing, and is not created with mode=rw" in str(error)
    assert not (tmp_path / "net.db").exists()


@pytest.mark.postgresql
@pytest.mark.empty_database
def test_role_without_create_privilege(config: Config, postgres_url: str) -> None:
    role = f"plain_{os.getpid()}"
    engine = sqlalchemy.create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("REVOKE CREATE ON SCHEMA public FROM PUBLIC"))
        connection.execute(sqlalchemy.text(f"CREATE ROLE {role} LOGIN PASSWORD 'x'"))
        try:
            plain = sqlalchemy.make_url(postgres_url).set(username=role, password="x")
            path = config(store_url=plain.render_as_string(hide_password=False))
            error = only(path)
            assert isinstance(error, ConfigError)  # as the start
            assert f"the role '{role}' may not make tables in the schema public" in str(error)
            connection.execute(sqlalchemy.text(f"ALTER ROLE {role} SET search_path = nowhere"))
            assert "in any schema of its search_path" in str(only(path))
            connection.execute(sqlalchemy.text(f"ALTER ROLE {role} RESET search_path"))
            connection.execute(sqlalchemy.text(f"GRANT CREATE ON SCHEMA public TO {role}"))
            assert failures(path) == []
        finally:
            connection.execute(sqlalchemy.text(f"DROP OWNED BY {role}"))
            connection.execute(sqlalchemy.text(f"DROP ROLE {role}"))
    engine.dispose()


def test_file_that_is_not_a_database(config: Config, tmp_path: Path) -> None:
    (tmp_path / "net.db").write_text("this is not a database, but a text of some length\n" * 100)
    assert isinstance(only(config()), StoreError)


@pytest.mark.parametrize("tables", [True, False])
def test_read_only_database_file(tables: bool, config: Config, anybodys: Path) -> None:
    """SQLite would open such a file, and leave its -wal and -shm in the folder."""
    file = anybodys / "net.db"
    if tables:
        Store(f"sqlite:///{file}").close()
    else:
        file.touch()
    file.chmod(0o444)
    socket_path, journals = anybodys / "hop" / "socket", anybodys / "journals"
    settings, service = loaded(
        config(store_url=f"sqlite:///{file}", publisher_multiproc_socket=socket_path, journal_folder=journals)
    )
    with without_privileges():
        (error,) = probing.failures(settings, service)
    assert isinstance(error, StoreUnavailable)
    assert f"the SQLite file '{file}' of store_url cannot be written (Permission denied" in str(error)
    assert "let the service's user write it, or correct store_url" in str(error)
    assert [each.name for each in anybodys.iterdir()] == ["net.db"]


def test_database_file_is_left_as_it_was(config: Config, tmp_path: Path) -> None:
    Store(f"sqlite:///{tmp_path}/net.db").close()
    assert failures(config()) == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["net.conf", "net.db"]


@pytest.mark.parametrize("option", ["publisher_port", "metrics_port"])
def test_used_port_is_named_with_its_holder(option: str, config: Config, taken: int) -> None:
    error = only(config(**{option: taken}))
    assert isinstance(error, TransportError)
    assert f"127.0.0.1:{taken} cannot be bound: the port is held by process {os.getpid()} (" in str(error)
    assert option in str(error)


def test_address_of_another_host(config: Config) -> None:
    error = only(config(publisher_bind_address="192.0.2.1", publishers_ips="192.0.2.1", insecure="true"))
    assert isinstance(error, TransportError)
    assert "192.0.2.1" in str(error)
    assert "this host has no such address" in str(error)


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_journal_folder_that_is_a_file(where: str, config: Config, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = only(config(journal_folder=tmp_path / where))
    assert isinstance(error, TransportError)
    assert "journal_folder" in str(error)
    assert str(tmp_path / where) in str(error)


OPTIONS_WITH_FOLDERS = ("journal_folder", "publisher_multiproc_socket", "store_url")


def with_path(config: Config, option: str, path: object) -> PubSubError:
    """The only error of a configuration whose ``option`` is this path."""
    return only(config(**{option: f"sqlite:///{path}" if option == "store_url" else path}))


@pytest.mark.parametrize("option", OPTIONS_WITH_FOLDERS)
@pytest.mark.parametrize("path", ["/proc/nope/net.db", "/proc/nope/below/net.db"])
def test_path_in_a_folder_that_root_cannot_write(option: str, path: str, config: Config) -> None:
    error = with_path(config, option, path)
    assert isinstance(error, StoreUnavailable if option == "store_url" else TransportError)
    assert option in str(error)
    assert path in str(error)
    assert "(No such file or directory: '/proc" in str(error)


@pytest.mark.parametrize("option", OPTIONS_WITH_FOLDERS)
def test_path_below_a_regular_file(option: str, config: Config, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    error = with_path(config, option, tmp_path / "file" / "below" / "net.db")
    assert option in str(error)
    assert f"{tmp_path}/file/below/net.db" in str(error)
    assert "(Not a directory: " in str(error)
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("below", ["", "made/below/"])
@pytest.mark.parametrize("option", OPTIONS_WITH_FOLDERS)
def test_path_in_a_read_only_folder(option: str, below: str, config: Config, anybodys: Path) -> None:
    with without_privileges():
        closed = anybodys / "closed"
        closed.mkdir(mode=0o500)
    paths = {
        "journal_folder": f"{anybodys}/journals",
        "publisher_multiproc_socket": f"{anybodys}/hop/socket",
        "store_url": f"{anybodys}/net.db",
    }
    paths[option] = f"{closed}/{below}net.db"
    settings, service = loaded(config(**paths | {"store_url": f"sqlite:///{paths['store_url']}"}))
    with without_privileges():
        (error,) = probing.failures(settings, service)
    assert option in str(error)
    assert paths[option] in str(error)
    missing = option == "store_url" and below  # the service creates no folder for its database
    assert ("(No such file or directory: " if missing else "(Permission denied: ") in str(error)
    assert [each.name for each in anybodys.iterdir()] == ["closed"]
    assert list(closed.iterdir()) == []


def test_missing_folders_are_created_and_removed(config: Config, tmp_path: Path) -> None:
    (tmp_path / "is").mkdir()
    (tmp_path / "is" / "other").touch()
    path = config(
        journal_folder=tmp_path / "is" / "a" / "b" / "c", publisher_multiproc_socket=tmp_path / "x" / "y" / "socket"
    )
    assert failures(path) == []
    assert sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")) == ["is", "is/other", "net.conf"]


def test_folder_of_a_bound_ipc_address_must_exist(config: Config, tmp_path: Path) -> None:
    """The driver does not create it, unlike the folder of the workers' socket."""
    more = {"publisher_transport": "ipc", "publisher_bind_address": tmp_path / "missing" / "out"}
    error = only(config(**more))
    assert "publisher_bind_address" in str(error)
    assert f"(No such file or directory: '{tmp_path}/missing')" in str(error)


def test_file_in_place_of_the_workers_socket(config: Config, tmp_path: Path) -> None:
    (tmp_path / "hop").mkdir(mode=0o700)
    (tmp_path / "hop" / "socket").write_text("precious")
    assert "which is a file and not a socket" in str(only(config()))
    assert (tmp_path / "hop" / "socket").read_text() == "precious"


def test_relay_needs_no_socket_of_workers(config: Config, tmp_path: Path) -> None:
    (tmp_path / "hop").mkdir(mode=0o777)
    (tmp_path / "hop").chmod(0o777)
    path = config(topics="a")
    assert failures(path)
    path.write_text(path.read_text().replace("[publisher_service]", "[publisher_service]\nrole = relay"))
    assert failures(path) == []


def test_socket_folder_that_is_open_to_others(config: Config, tmp_path: Path) -> None:
    (tmp_path / "hop").mkdir(mode=0o755)
    assert "with mode 0700" in str(only(config()))


def test_socket_folder_that_is_a_symbolic_link(config: Config, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "hop").symlink_to(tmp_path / "real")
    error = only(config())
    assert isinstance(error, TransportError)
    assert f"the folder '{tmp_path}/hop' of publisher_multiproc_socket is a symbolic link" in str(error)
    assert list((tmp_path / "real").iterdir()) == []


def with_socket(config: Config, tmp_path: Path, ipc: bool) -> tuple[Path, Path]:
    """A configuration, and the path of the socket that its service binds: for replicas (``ipc``), or for workers."""
    (tmp_path / "hop").mkdir(mode=0o700)
    if not ipc:
        return config(), tmp_path / "hop" / "socket"
    port = free_port()
    more = {"publisher_transport": "ipc", "publisher_bind_address": tmp_path / "hop" / "out", "publisher_port": port}
    return config(**more), tmp_path / "hop" / f"out:{port}"


@pytest.mark.parametrize("ipc", [False, True])
def test_held_socket_lock(ipc: bool, config: Config, tmp_path: Path) -> None:
    """Detected by the drivers' locks; the socket itself was removed."""
    path, at = with_socket(config, tmp_path, ipc)
    lock = SocketLock(at, "some_option")
    error = only(path)
    assert isinstance(error, TransportError)
    assert f"the socket '{at}' of publisher_" in str(error)
    assert f"is held by process {os.getpid()} (" in str(error)
    lock.release()
    assert failures(path) == []
    assert [each.name for each in at.parent.iterdir()] == [f"{at.name}.lock"]
    again = SocketLock(at, "some_option")  # the check has released it
    again.release()


def test_held_lock_of_the_commit_socket(config: Config, tmp_path: Path) -> None:
    path = config(group_commit="host")
    assert failures(path) == []
    (tmp_path / "hop").mkdir(mode=0o700)
    lock = SocketLock(tmp_path / "hop" / "socket.commit", "some_option")
    error = only(path)
    assert isinstance(error, TransportError)
    assert f"the socket '{tmp_path}/hop/socket.commit' of publisher_multiproc_socket is held by" in str(error)
    lock.release()


@pytest.mark.parametrize("ipc", [False, True])
@pytest.mark.parametrize("kind", ["link", "folder"])
def test_socket_lock_that_is_not_a_file(kind: str, ipc: bool, config: Config, tmp_path: Path) -> None:
    path, at = with_socket(config, tmp_path, ipc)
    lock = Path(f"{at}.lock")
    if kind == "folder":
        lock.mkdir()
    else:
        lock.symlink_to(tmp_path / "elsewhere")
    error = only(path)
    assert isinstance(error, TransportError)
    assert f"'{lock}'" in str(error)
    assert ("Is a directory" if kind == "folder" else "symbolic links") in str(error)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("ipc", [False, True])
def test_socket_with_a_listening_process(ipc: bool, config: Config, tmp_path: Path) -> None:
    (tmp_path / "hop").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        more = {}
        at = tmp_path / "hop" / "socket"
        if ipc:
            port = free_port()
            at = tmp_path / f"out:{port}"
            more = {"publisher_transport": "ipc", "publisher_bind_address": tmp_path / "out", "publisher_port": port}
        listener.bind(str(at))
        listener.listen()
        assert f"another process listens at '{at}'" in str(only(config(**more)))
    assert failures(config(**more)) == []  # the files of a dead service are not an obstacle


SERVERS = {"redis": ("url", "redis"), "nats": ("servers", "nats")}


@pytest.mark.parametrize("driver", SERVERS)
def test_unavailable_server_of_the_driver(
    driver: str, config: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_module, "_set_up_logging", lambda config_file, level: None)
    path = config(pub_sub_driver=f"{driver}_pubsub_driver")
    option, scheme = SERVERS[driver]
    address = f"{scheme}://127.0.0.1:{free_port()}"
    more = f"[pubsub_{driver}]\n{option} = {address}\nconnect_timeout = 0.5\n"
    path.write_text(path.read_text() + more)
    error = only(path)
    assert isinstance(error, TransportError)
    assert address in str(error)
    assert main(["--check", "--connect", "--config-file", str(path)]) == 3
    assert address in capsys.readouterr().err


class Connected(Publisher):
    """A driver's publisher that notes the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        self.calls.append("initialize")

    def send_event(self, envelope: Envelope) -> None:
        self.calls.append("send_event")

    def counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        self.calls.append("close")


def test_driver_is_connected_and_sends_nothing(
    config: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_module, "_set_up_logging", lambda config_file, level: None)
    path, sender = config(pub_sub_driver="redis_pubsub_driver"), Connected()
    monkeypatch.setattr(loader, "load_publisher", lambda settings, needs=None: sender)
    assert failures(path) == []
    assert sender.calls == ["initialize", "close"]
    assert main(["--check", "--connect", "--config-file", str(path)]) == 0
    assert capsys.readouterr().out.strip().endswith("; database, driver, folders, sockets and ports are available")


@pytest.mark.parametrize("role", ["origin", "relay"])
def test_live_service_of_the_same_name(
    role: str, config: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(main_module, "_set_up_logging", lambda config_file, level: None)
    path, ended = config(), threading.Event()
    with Store(f"sqlite:///{tmp_path}/net.db") as store:
        # A busy machine may renew late, so the lease is long, and a made clock has each renewal due at once.
        leases = Leases(store.directory, "api-1", "a" * 32, "tcp://10.0.0.9:8866", 60.0, 0.0, role=role)
        now = time.monotonic()
        leases.step(now)

        def renew() -> None:
            renewals = itertools.count(1)
            while not ended.wait(0.05):
                leases.step(now + 60.0 * next(renewals))

        renewing = threading.Thread(target=renew)
        renewing.start()
        try:
            assert main(["--check", "--connect", "--config-file", str(path)]) == 2
        finally:
            ended.set()
            renewing.join()
    assert "another live service has the name 'api-1', at tcp://10.0.0.9:8866" in capsys.readouterr().err


def test_live_publisher_of_the_same_name(config: Config, tmp_path: Path) -> None:
    """It renews its entry, and holds no lease on the name."""
    ended = threading.Event()
    with Store(f"sqlite:///{tmp_path}/net.db") as store:
        store.directory.register("api-1", "a" * 32, "", 60.0)

        def renew() -> None:
            while not ended.wait(0.1):
                store.directory.register("api-1", "a" * 32, "", 60.0)

        renewing = threading.Thread(target=renew)
        renewing.start()
        try:
            (error,) = failures(config())
        finally:
            ended.set()
            renewing.join()
    assert isinstance(error, ConfigError)
    assert "another live service has the name 'api-1', at no address; give each" in str(error)


def test_driver_without_a_server_of_its_own_is_not_named(config: Config) -> None:
    path = config(pub_sub_driver="pgnotify_pubsub_driver")
    assert probing.tested(*load(Configuration.read(path))) == "database, folders, sockets and ports"


def test_entry_of_a_killed_service_is_no_failure(config: Config, tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/net.db") as store:
        store.directory.register("api-1", "a" * 32, "", 0.5)
        store.directory.acquire(lease_of("api-1"), "a" * 32, 0.5)
        store.directory.register("api-2", "b" * 32, "tcp://10.0.0.9:8866", 60.0)
        assert failures(config()) == []
        assert [each.service for each in store.directory.live()] == ["api-2"]


def test_all_failures_are_named(
    config: Config,
    taken: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(main_module, "_set_up_logging", lambda config_file, level: None)
    path = config(store_url=f"sqlite:///{tmp_path}/missing/net.db", publisher_port=taken)
    assert main(["--check", "--connect", "--config-file", str(path)]) == 4
    output = capsys.readouterr().err.splitlines()
    assert len(output) == 2
    assert "missing" in output[0]
    assert str(taken) in output[1]


def test_program_that_publishes_itself_needs_no_socket(config: Config, tmp_path: Path) -> None:
    settings, service = loaded(config())
    (tmp_path / "hop").mkdir(mode=0o755)
    alone = msgspec.structs.replace(settings, multiproc_driver="", multiproc_socket="")
    assert list(probing.failures(alone, service)) == []
