"""A private Redis server from the Debian package ``redis-server``: in a temporary folder, on loopback, not stored."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import redis
from _broker import Broker


class PrivateRedis(Broker):
    """One server. ``options`` are additional settings, by their names in ``redis.conf``."""

    package = "redis-server"
    more = ("redis-tools",)

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._options = dict(options or {})

    @property
    def url(self) -> str:
        """The address, as the driver's option ``url``."""
        return f"redis://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> "redis.Redis":
        """A client of the library; use it in a ``with`` block."""
        known: dict[str, Any] = {"password": self._options.get("requirepass")}
        return redis.Redis("127.0.0.1", self.port, **{**known, **options})

    def _arguments(self, folder: Path) -> Sequence[str]:
        settings = {
            "bind": "127.0.0.1", "port": str(self.port), "dir": str(folder), "save": "", "appendonly": "no",
            "loglevel": "warning", **self._options,
        }  # fmt: skip
        return [word for name, text in settings.items() for word in (f"--{name}", *text.split(" "))]

    def _answers(self, pid: int) -> bool:
        try:
            with self.client(socket_timeout=1.0) as client:
                answer: Any = client.info("server")
                return bool(answer["process_id"] == pid)
        except (redis.ConnectionError, redis.TimeoutError):
            return False
