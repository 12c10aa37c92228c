"""The base class of private database servers: folder, port, start, stop, and databases."""

import itertools
import shutil
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import _processes
import sqlalchemy
from _attached import die_with_parent
from _children import Child
from sqlalchemy.exc import SQLAlchemyError

from pubsub_lib.errors import StoreUnavailable


class PrivateServer(ABC):
    """The base class of the private servers. Use :class:`PrivatePostgres` or :class:`PrivateMariaDB`.

    The server is killed when the thread that started it ends, also when its process is killed: use the main thread.

    ``durable`` enables fsync: needed only by a test that cuts the machine's power, because the page cache survives a
    killed server. ``options`` are additional settings of the server. ``timeout`` in seconds bounds the start.
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
        self._process: Child | None = None

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
        """The TCP port on 127.0.0.1; it stays the same after a restart."""
        return self._port

    def start(self) -> None:
        """Create the temporary folder and start the server in it. Returns when it answers, after about a second.

        Raises ConfigError when its binaries are missing, StoreUnavailable when it ends or does not answer
        within ``timeout``.
        """
        if self._folder is not None:
            return
        self._folder = Path(tempfile.mkdtemp(prefix=f"pubsub-{self.label.lower()}-"))
        try:
            _processes.give_away(self._folder)
            self._run(self._create_command(self._folder))
            for attempt in range(5):
                self._port = _processes.free_port()
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

    def attach(self, port: int) -> None:
        """Use the server of this kind that another process has started with the same options, and leave it running.

        Raises StoreUnavailable.
        """
        self._port = port
        # Another process that uses the server may have ended without dropping its databases.
        self._names = (f"db{uuid.uuid4().hex}" for _ in itertools.count())
        self.url = self.create_database()

    def create_database(self) -> str:
        """Create an empty database and return its SQLAlchemy URL. Raises StoreUnavailable."""
        name = next(self._names)
        self._execute(self._creation(name))
        return self._url(name)

    def copy_database(self, url: str) -> str:
        """Create a database with the tables and rows of another one of this server. Returns its URL.

        No process may be connected to the original. A store in the copy has the id of the original, see ``new_id``.
        Raises StoreUnavailable.
        """
        name = next(self._names)
        self._copy(sqlalchemy.make_url(url).database or "", name)
        return self._url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database that ``create_database`` made, and end its connections.

        Raises StoreUnavailable.
        """
        self._drop(sqlalchemy.make_url(url).database or "")

    def kill(self) -> None:
        """SIGKILL the server and all its children. Returns when they have ended. The data stays."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def restart(self) -> None:
        """Start the server again with the same data and port; a running server is killed before.

        Returns when it answers; raises StoreUnavailable as ``start``.
        """
        if self._folder is None:
            raise StoreUnavailable(f"the private {self.label} server was never started; call start()")
        self.kill()
        self._launch()

    def stop(self) -> None:
        """End the server and remove its folder. Idempotent; afterwards ``start`` creates a new server."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None
            self.url = ""

    @abstractmethod
    def _create_command(self, folder: Path) -> Sequence[str]:
        """The command that creates the data folder."""

    @abstractmethod
    def _serve_command(self, folder: Path, port: int) -> Sequence[str]:
        """The command that runs the server in the foreground."""

    @abstractmethod
    def _clean(self, data: Path) -> None:
        """Remove from the data folder what a killed server left and the next one refuses. No server runs in it."""

    @abstractmethod
    def _url(self, database: str) -> str:
        """The SQLAlchemy URL of a database; "" for the default database."""

    @abstractmethod
    def _data_folder_query(self) -> str:
        """A query for the server's data folder, which distinguishes it from another server on the same port."""

    def _creation(self, database: str) -> str:
        """The statement that creates an empty database."""
        return f"CREATE DATABASE {database}"

    @abstractmethod
    def _copy(self, original: str, database: str) -> None: ...

    @abstractmethod
    def _drop(self, database: str) -> None: ...

    def _execute(self, *statements: str) -> list[str]:
        """Run statements outside a transaction. Returns the first column of the last statement's rows, as text."""
        engine = sqlalchemy.create_engine(self._url(""), poolclass=sqlalchemy.NullPool, isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                for statement in statements:
                    result = connection.exec_driver_sql(statement)
                return [str(row[0]) for row in result] if result.returns_rows else []
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the private {self.label} server refused {statements!r}: {error}") from error
        finally:
            engine.dispose()

    def _launch(self) -> None:
        assert self._folder is not None
        log = self._folder / "server.log"
        log.write_bytes(b"")  # keep only the messages of this run
        self._clean(self._folder / "data")
        self._process = _started(self._serve_command(self._folder, self._port), self._folder, log)
        try:
            self._wait_until_ready(log)
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self, log: Path) -> None:
        assert self._process is not None
        process, last = self._process.process, ""

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

        in_time = _processes.poll(settled, self.timeout)
        if in_time and process.poll() is None:
            return
        tail = " / ".join(log.read_text(errors="replace").strip().splitlines()[-4:])
        if "in use" in tail.lower() and "address" in tail.lower():
            raise _PortTaken(f"port {self._port} was taken before the private {self.label} server had it: {tail}")
        ended = f"ended with status {process.poll()}"
        how = ended if in_time else f"did not answer within {self.timeout:g} s ({last})"
        raise StoreUnavailable(f"the private {self.label} server {how}; its log ends: {tail}")

    def _run(self, command: Sequence[str]) -> None:
        assert self._folder is not None
        log = self._folder / "create.log"
        status = _started(command, self._folder, log).process.wait(self.timeout)
        if status != 0:
            tail = " / ".join(log.read_text(errors="replace").strip().splitlines()[-4:])
            raise StoreUnavailable(f"{command[0]} ended with status {status}: {tail}")


class _PortTaken(StoreUnavailable):
    """Another process has taken the port; the caller tries another port."""


def _started(command: Sequence[str], folder: Path, log: Path) -> Child:
    user = _processes.unprivileged()
    return Child(
        command[0],
        command,
        log=log,
        variables={"HOME": str(folder), "TMPDIR": str(folder), "LC_ALL": "C"},
        cwd=folder,
        user=None if user is None else user.pw_uid,
        group=None if user is None else user.pw_gid,
        extra_groups=None if user is None else [],
        preexec_fn=die_with_parent,  # after the change of the user, which would undo it
    )
