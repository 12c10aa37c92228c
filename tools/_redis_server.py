"""A private Redis server from the Debian package ``redis-server``: in a temporary folder, on loopback, not stored."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import _processes
import redis
from _bench.e2e import packages
from _bench.e2e.side import LeftOutError
from _children import Child

from pubsub_lib.errors import ConfigError, TransportError

PACKAGES: Final = ("redis-server", ["redis-server"], ["redis-tools"])
"""The package, its program, and the package that contains the program."""
START: Final = 30.0
"""Maximum number of seconds until the server answers."""
_ATTEMPTS: Final = 5


class PrivateRedis:
    """One server; use it in a ``with`` block. ``options`` are additional settings, by their names in ``redis.conf``.

    It stays on its port after ``kill`` and ``restart``.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._options = dict(options or {})
        self._folder: Path | None = None
        self._child: Child | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The address, as the driver's option ``url``."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the server. Raises TransportError while it does not run."""
        if self._child is None:
            raise TransportError("the private Redis server does not run; call start() or restart()")
        return self._child.pid

    def start(self) -> None:
        """Start the server. Raises ConfigError when the package cannot be downloaded, TransportError when the server
        does not answer."""
        self._folder = Path(tempfile.mkdtemp(prefix="pubsub-redis-"))
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                self.port = _processes.free_port()
                try:
                    self.restart()
                    return
                except TransportError:  # usually because another process took the port meanwhile
                    if attempt == _ATTEMPTS:
                        raise
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Start the server again on its port; a running one is killed before."""
        if self._folder is None:
            raise TransportError("the private Redis server was never started; call start()")
        try:
            server = packages.server(*PACKAGES)
        except LeftOutError as error:
            raise ConfigError(str(error)) from error
        self.kill()
        settings = {
            "bind": "127.0.0.1", "port": str(self.port), "dir": str(self._folder), "save": "", "appendonly": "no",
            "loglevel": "warning", **self._options,
        }  # fmt: skip
        words = [word for name, text in settings.items() for word in (f"--{name}", *text.split(" "))]
        log = self._folder / "log"
        command = [str(server.programs["redis-server"]), *words]
        self._child = child = Child("redis-server", command, log=log, variables=server.variables, cwd=self._folder)
        if not _processes.poll(lambda: child.process.poll() is not None or self._answers(child.pid), START):
            raise TransportError(f"redis-server did not answer within {START:.0f} s: {child.last_words()}")
        if child.process.poll() is not None:
            raise TransportError(f"redis-server ended with status {child.process.poll()}: {child.last_words()}")

    def client(self, **options: Any) -> "redis.Redis":
        """A client of the library; use it in a ``with`` block."""
        known: dict[str, Any] = {"password": self._options.get("requirepass")}
        return redis.Redis("127.0.0.1", self.port, **{**known, **options})

    def kill(self) -> None:
        """SIGKILL the server. Returns when it has ended."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def stop(self) -> None:
        """End the server and remove its folder. Idempotent."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    def _answers(self, pid: int) -> bool:
        try:
            with self.client(socket_timeout=1.0) as client:
                answer: Any = client.info("server")
                return bool(answer["process_id"] == pid)
        except (redis.ConnectionError, redis.TimeoutError):
            return False
