"""Private database servers: started in a temporary folder on a free port of 127.0.0.1, gone without a trace.

::

    with PrivatePostgres() as server:
        store = Store(server.create_database())
        server.kill()
        server.restart()

A server belongs to the thread that uses it; only ``url`` may be read from others. Needs the server's binaries
(:func:`postgres_binaries` and :func:`mariadb_binaries` say where they are looked for) and the extra of its driver.
"""

import importlib.util
import itertools
import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import sqlalchemy
from sqlalchemy.exc import SQLAlchemyError

from pubsub_lib.errors import ConfigError, StoreUnavailable
from pubsub_lib.testing import processes

_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/bin", "/usr/bin")


def postgres_binaries() -> Path:
    """The folder with ``initdb`` and ``postgres``: of the system, else of the wheel ``pgserver``.

    Raises ConfigError when there is none.
    """
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    newest_first = sorted(versions, key=lambda each: _number(each.parent.name), reverse=True)
    places = [*newest_first, *_path_folders()]
    wheel = importlib.util.find_spec("pgserver")
    if wheel is not None and wheel.origin is not None:
        places.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise ConfigError(
        "no PostgreSQL server found; install the system's package postgresql or the wheel pgserver"
    )


def mariadb_binaries() -> tuple[Path, Path]:
    """``mariadb-install-db`` and ``mariadbd``, in PATH or the system's usual folders.

    Raises ConfigError when either is missing.
    """
    found = []
    for name in ("mariadb-install-db", "mariadbd"):
        at = [each / name for each in _path_folders() if (each / name).exists()]
        if not at:
            raise ConfigError(
                f"no MariaDB server found ({name}); install the system's package mariadb-server"
            )
        found.append(at[0])
    return found[0], found[1]


class PrivateServer(ABC):
    """What the private servers have in common. Use :class:`PrivatePostgres` or :class:`PrivateMariaDB`.

    ``durable`` turns fsync on: needed only by a test that cuts the machine's power, as the page cache outlives a
    killed server. ``options`` are the server's own settings, added to ours. ``timeout`` in seconds bounds the start.
    """

    label: ClassVar[str]

    def __init__(
        self, *, durable: bool = False, options: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> None:
        self.durable = durable
        self.options = dict(options or {})
        self.timeout = timeout
        self.url = ""
        """SQLAlchemy URL of an empty database of this server; "" before it was started."""
        self._names = (f"db{number}" for number in itertools.count(1))
        self._folder: Path | None = None
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the server. Raises StoreUnavailable while it does not run."""
        if self._process is None:
            raise StoreUnavailable(f"the private {self.label} server does not run; call start() or restart()")
        return self._process.pid

    @property
    def port(self) -> int:
        """Its TCP port on 127.0.0.1; the same after a restart."""
        return self._port

    def start(self) -> None:
        """Make the temporary folder and start the server in it; return when it answers, after about a second.

        Raises ConfigError when its binaries are missing, StoreUnavailable when it ends or does not answer within
        ``timeout``.
        """
        if self._folder is not None:
            return
        self._folder = Path(tempfile.mkdtemp(prefix=f"pubsub-{self.label.lower()}-"))
        try:
            user = processes.unprivileged()
            if user is not None:
                os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._run(self._create_command(self._folder))
            for attempt in range(5):
                self._port = processes.free_port()
                try:
                    self._launch()
                    break
                except _PortTaken:
                    if attempt == 4:
                        raise
            self.url = self.create_database()
        except BaseException:
            self.stop()
            raise

    def create_database(self) -> str:
        """Create an empty database and return its SQLAlchemy URL. Raises StoreUnavailable."""
        name = next(self._names)
        self._execute(f"CREATE DATABASE {name}")
        return self._url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database that ``create_database`` made, ending who is still connected. Raises StoreUnavailable."""
        self._drop(sqlalchemy.make_url(url).database or "")

    def kill(self) -> None:
        """SIGKILL the server with all its children; return when they are gone. The data stays, see ``restart``."""
        if self._process is not None:
            processes.kill_tree(self._process.pid)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Start it again over the same data on the same port (killing it first if it runs); return when it answers.

        Raises StoreUnavailable like ``start``.
        """
        if self._folder is None:
            raise StoreUnavailable(f"the private {self.label} server was never started; call start()")
        self.kill()
        self._launch()

    def stop(self) -> None:
        """End the server and remove its folder. Idempotent; afterwards ``start`` gives a fresh one."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None
            self.url = ""

    @abstractmethod
    def _create_command(self, folder: Path) -> Sequence[str]:
        """The command that lays out the data folder."""

    @abstractmethod
    def _serve_command(self, folder: Path, port: int) -> Sequence[str]:
        """The command that serves it in the foreground."""

    @abstractmethod
    def _url(self, database: str) -> str:
        """The SQLAlchemy URL of one of its databases; "" for the one that is always there."""

    @abstractmethod
    def _data_folder_query(self) -> str:
        """A query for the server's data folder, which tells it from another one that has our port."""

    @abstractmethod
    def _drop(self, database: str) -> None: ...

    def _execute(self, *statements: str) -> list[str]:
        """Run statements outside a transaction; the first column of the last one's rows, as text."""
        engine = sqlalchemy.create_engine(
            self._url(""), poolclass=sqlalchemy.NullPool, isolation_level="AUTOCOMMIT"
        )
        try:
            with engine.connect() as connection:
                for statement in statements:
                    result = connection.exec_driver_sql(statement)
                return [str(row[0]) for row in result] if result.returns_rows else []
        except SQLAlchemyError as error:
            raise StoreUnavailable(
                f"the private {self.label} server refused {statements!r}: {error}"
            ) from error
        finally:
            engine.dispose()

    def _launch(self) -> None:
        assert self._folder is not None
        log = self._folder / "server.log"
        log.write_bytes(b"")  # only this run's complaints count
        with log.open("ab") as out:
            self._process = _popen(self._serve_command(self._folder, self._port), self._folder, out.fileno())
        try:
            self._wait_until_ready(log)
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self, log: Path) -> None:
        assert self._process is not None
        process, last = self._process, ""

        def settled() -> bool:
            nonlocal last
            if process.poll() is not None:
                return True
            try:
                rows = self._execute(self._data_folder_query())
            except StoreUnavailable as error:
                last = str(error.__cause__).splitlines()[0]
                return False
            if Path(rows[0]) != (self._folder or Path()) / "data":
                raise _PortTaken(f"another server than the private {self.label} one has port {self._port}")
            return True

        in_time = processes.poll(settled, self.timeout)
        if in_time and process.poll() is None:
            return
        tail = " / ".join(log.read_text(errors="replace").strip().splitlines()[-4:])
        if "in use" in tail.lower() and "address" in tail.lower():
            raise _PortTaken(
                f"port {self._port} was taken before the private {self.label} server had it: {tail}"
            )
        if in_time:
            how = f"ended with status {process.poll()}"
        else:
            how = f"did not answer within {self.timeout:g} s ({last})"
        raise StoreUnavailable(f"the private {self.label} server {how}; its log ends: {tail}")

    def _run(self, command: Sequence[str]) -> None:
        assert self._folder is not None
        log = self._folder / "create.log"
        with log.open("wb") as out:
            status = _popen(command, self._folder, out.fileno()).wait(self.timeout)
        if status != 0:
            tail = " / ".join(log.read_text(errors="replace").strip().splitlines()[-4:])
            raise StoreUnavailable(f"{command[0]} ended with status {status}: {tail}")


class PrivatePostgres(PrivateServer):
    """A private PostgreSQL server: user ``postgres``, no password, 200 connections, UTF-8, C locale."""

    label = "PostgreSQL"

    def _create_command(self, folder: Path) -> Sequence[str]:
        binaries = postgres_binaries()
        if not _reachable(binaries / "initdb"):
            # A wheel below root's home cannot be entered by another user, so the server takes a copy along.
            binaries = Path(shutil.copytree(binaries.parent, folder / "install", symlinks=True)) / "bin"
        self._binaries = binaries
        # -N: this cluster never outlives a power cut, so its files need not be synced.
        layout = ["-N", "--no-locale", "-E", "UTF8", "-A", "trust", "-U", "postgres"]
        return [str(binaries / "initdb"), *layout, "-D", str(folder / "data")]

    def _serve_command(self, folder: Path, port: int) -> Sequence[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "fsync": "on" if self.durable else "off",
            "full_page_writes": "on",
            **self.options,
        }
        flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
        return [str(self._binaries / "postgres"), "-D", str(folder / "data"), *flags]

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/{database or 'postgres'}"

    def _data_folder_query(self) -> str:
        return "SHOW data_directory"

    def _drop(self, database: str) -> None:
        self._execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")


class PrivateMariaDB(PrivateServer):
    """A private MariaDB server: user ``root``, no password, 200 connections, the server's own default collation."""

    label = "MariaDB"

    def _create_command(self, folder: Path) -> Sequence[str]:
        install, self._server = mariadb_binaries()
        return [
            str(install), "--no-defaults", f"--datadir={folder / 'data'}", "--skip-test-db", "--skip-name-resolve",
            "--auth-root-authentication-method=normal", "--innodb-log-file-size=32M",
        ]  # fmt: skip

    def _serve_command(self, folder: Path, port: int) -> Sequence[str]:
        settings = {
            "datadir": str(folder / "data"),
            "bind-address": "127.0.0.1",
            "port": str(port),
            "socket": str(folder / "socket"),
            "pid-file": str(folder / "pid"),
            "max-connections": "200",
            "innodb-buffer-pool-size": "64M",
            "innodb-log-file-size": "32M",
            # 2 hands the log to the page cache at each COMMIT, which outlives a killed server.
            "innodb-flush-log-at-trx-commit": "1" if self.durable else "2",
            "innodb-flush-method": "O_DIRECT" if self.durable else "nosync",
            "performance-schema": "OFF",
            **self.options,
        }
        flags = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self._server), "--no-defaults", "--skip-name-resolve", "--skip-log-bin", *flags]

    def _url(self, database: str) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{self._port}/{database}?charset=utf8mb4"

    def _data_folder_query(self) -> str:
        return "SELECT @@datadir"

    def _drop(self, database: str) -> None:
        # A connection that a test left open holds metadata locks, on which DROP would wait.
        left = self._execute(f"SELECT id FROM information_schema.processlist WHERE db = '{database}'")
        self._execute(*(f"KILL {each}" for each in left), f"DROP DATABASE IF EXISTS {database}")


class _PortTaken(StoreUnavailable):
    """Somebody else was quicker; another port will do."""


def _popen(command: Sequence[str], folder: Path, out: int) -> "subprocess.Popen[bytes]":
    user = processes.unprivileged()
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "TMPDIR": str(folder), "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        start_new_session=True,  # Ctrl-C in the terminal is for the tests, which then stop it in order
        user=None if user is None else user.pw_uid,
        group=None if user is None else user.pw_gid,
        extra_groups=None if user is None else [],
    )


def _reachable(program: Path) -> bool:
    """Whether the user that servers run as may run this program."""
    user = processes.unprivileged()
    if user is None:
        return True
    try:
        command = [str(program), "--version"]
        subprocess.run(
            command, user=user.pw_uid, group=user.pw_gid, extra_groups=[], capture_output=True, check=True
        )
    except (PermissionError, FileNotFoundError, subprocess.CalledProcessError):
        return False
    return True


def _path_folders() -> list[Path]:
    named = os.environ.get("PATH", "").split(os.pathsep)
    return [Path(each) for each in (*named, *_SYSTEM_FOLDERS) if each]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
