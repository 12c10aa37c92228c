"""Private database servers: started in a temporary folder on a free port of 127.0.0.1, and removed completely.

::

    with PrivatePostgres() as server:
        store = Store(server.create_database())
        server.kill()
        server.restart()

A server belongs to one thread; other threads may only read ``url``. It needs its binaries (:func:`postgres_binaries`
and :func:`mariadb_binaries` describe where they are searched) and its driver's extra.
"""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import _processes
from _private_server import PrivateServer

from pubsub_lib.errors import ConfigError

__all__ = [
    "PrivateMariaDB", "PrivatePostgres", "PrivateServer", "mariadb_binaries", "port_variable", "postgres_binaries",
]  # fmt: skip

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
    raise ConfigError("no PostgreSQL server found; install the package postgresql or the wheel pgserver")


def mariadb_binaries() -> tuple[Path, Path]:
    """``mariadb-install-db`` and ``mariadbd``, in PATH or the system's usual folders.

    Raises ConfigError when either is missing.
    """
    found = []
    for name in ("mariadb-install-db", "mariadbd"):
        at = [each / name for each in _path_folders() if (each / name).exists()]
        if not at:
            raise ConfigError(f"no MariaDB server found ({name}); install the package mariadb-server")
        found.append(at[0])
    return found[0], found[1]


class PrivatePostgres(PrivateServer):
    """A private PostgreSQL server: user ``postgres``, no password, 200 connections, UTF-8, C locale."""

    label = "PostgreSQL"
    _strategy: str | None = None
    """How the server creates a database, in SQL; None before the first one."""

    def _create_command(self, folder: Path) -> Sequence[str]:
        binaries = postgres_binaries()
        if not _reachable(binaries / "initdb"):
            binaries = _take_along(binaries, folder / "install")
        self._binaries = binaries
        # -N: this cluster never has to survive a power failure, so its files need not be synced.
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

    def _clean(self, data: Path) -> None:
        lock = data / "postmaster.pid"
        if lock.exists() and lock.stat().st_size == 0:  # killed between its creation and its first write
            lock.unlink()

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/{database or 'postgres'}"

    def _data_folder_query(self) -> str:
        return "SHOW data_directory"

    def _creation(self, database: str) -> str:
        if self._strategy is None:
            # By default PostgreSQL 15 and newer write each page of the template to the log, which takes much longer.
            newer = int(self._execute("SHOW server_version_num")[0]) >= 150_000
            self._strategy = " STRATEGY FILE_COPY" if newer and not self.durable else ""
        return super()._creation(database) + self._strategy

    def _copy(self, original: str, database: str) -> None:
        self._execute(f"{self._creation(database)} TEMPLATE {original}")

    def _drop(self, database: str) -> None:
        self._execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")


class PrivateMariaDB(PrivateServer):
    """A private MariaDB server: user ``root``, no password, 200 connections.

    Its default collation is the server's default (latin1): tables that need another collation must name it.
    """

    label = "MariaDB"

    def _create_command(self, folder: Path) -> Sequence[str]:
        install, self._server = mariadb_binaries()
        layout = ["--skip-test-db", "--auth-root-authentication-method=normal", "--innodb-log-file-size=32M"]
        return [str(install), "--no-defaults", f"--datadir={folder / 'data'}", "--skip-name-resolve", *layout]

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
            # 2 writes the log to the page cache at each COMMIT; the page cache survives a killed server.
            "innodb-flush-log-at-trx-commit": "1" if self.durable else "2",
            "innodb-flush-method": "O_DIRECT" if self.durable else "nosync",
            # The files of each table are otherwise synced too, which takes most of the time of CREATE and DROP TABLE.
            "debug-no-sync": "OFF" if self.durable else "ON",
            "performance-schema": "OFF",
            **self.options,
        }
        flags = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self._server), "--no-defaults", "--skip-name-resolve", "--skip-log-bin", *flags]

    def _clean(self, data: Path) -> None:
        """Nothing: MariaDB continues after a kill at any time."""

    def _url(self, database: str) -> str:
        # Otherwise pymysql reads the certificates of the system for each connection: 20 ms of processor time.
        return f"mysql+pymysql://root@127.0.0.1:{self._port}/{database}?charset=utf8mb4&ssl_disabled=true"

    def _data_folder_query(self) -> str:
        return "SELECT @@datadir"

    def _copy(self, original: str, database: str) -> None:
        tables = self._execute(f"SHOW TABLES FROM {original}")
        layouts = [f"CREATE TABLE {database}.{each} LIKE {original}.{each}" for each in tables]
        rows = [f"INSERT INTO {database}.{each} SELECT * FROM {original}.{each}" for each in tables]
        self._execute(self._creation(database), *layouts, *rows)

    def _drop(self, database: str) -> None:
        # A connection that a test left open holds metadata locks, and DROP would wait for them.
        left = self._execute(f"SELECT id FROM information_schema.processlist WHERE db = '{database}'")
        self._execute(*map(_kill, left), f"DROP DATABASE IF EXISTS {database}")


def port_variable(server: PrivateServer) -> str:
    """The environment variable with the port of a server of this kind that all tests of a run use."""
    return f"PUBSUB_TEST_{server.label.upper()}_PORT"


def _kill(connection: object) -> str:
    """The statement that ends a connection. The connection may have ended since it was listed (error 1094)."""
    return f"BEGIN NOT ATOMIC DECLARE CONTINUE HANDLER FOR 1094 BEGIN END; KILL {connection}; END"


def _reachable(program: Path) -> bool:
    """Whether the user that servers run as may run this program."""
    user = _processes.unprivileged()
    if user is None:
        return True
    try:
        command = [str(program), "--version"]
        subprocess.run(command, user=user.pw_uid, group=user.pw_gid, extra_groups=[], capture_output=True, check=True)
    except (PermissionError, FileNotFoundError, subprocess.CalledProcessError):
        return False
    return True


def _take_along(binaries: Path, to: Path) -> Path:
    """Copy the wheel's PostgreSQL to a folder where another user may run it: other users cannot enter root's home.

    Raises ConfigError for binaries of another origin, whose parts are unknown.
    """
    wheel = binaries.parent.parent
    if wheel.name != "pgserver":
        raise ConfigError(f"{binaries} cannot be entered by the user that servers run as; open it to all users")
    # The programs find their libraries relative to themselves, in a folder beside the package.
    for part in (wheel, wheel.with_name("pgserver.libs")):
        if part.exists():
            shutil.copytree(part, to / part.name, symlinks=True)
    _processes.give_away(to)
    return to / "pgserver" / "pginstall" / "bin"


def _path_folders() -> list[Path]:
    named = os.environ.get("PATH", "").split(os.pathsep)
    return [Path(each) for each in (*named, *_SYSTEM_FOLDERS) if each]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
