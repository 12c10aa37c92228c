"""A private PostgreSQL standby for tests and measurements."""

from collections.abc import Sequence
from pathlib import Path

from _private_server import PrivateServer
from _servers import PrivatePostgres, postgres_binaries
from sqlalchemy import make_url

from pubsub_lib.errors import ConfigError


class PrivateStandby(PrivatePostgres):
    """A streaming standby of a private server. ``port``: where it reaches that server, which may be a proxy."""

    label = "PostgreSQL standby"

    def __init__(self, primary: PrivateServer, port: int) -> None:
        super().__init__()
        self._database = make_url(primary.url).database or ""
        self._primary_port = port

    def create_database(self) -> str:
        """The URL of the primary's database: a standby has the same ones."""
        return self._url(self._database)

    def _create_command(self, folder: Path) -> Sequence[str]:
        if not (postgres_binaries() / "pg_basebackup").exists():
            raise ConfigError("no pg_basebackup found, which copies a server for a standby; install postgresql")
        super()._create_command(folder)
        at = ["-h", "127.0.0.1", "-p", str(self._primary_port), "-U", "postgres"]
        options = ["-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]
        return [str(self._binaries / "pg_basebackup"), *at, "-D", str(folder / "data"), *options]
