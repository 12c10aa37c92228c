"""Workers and a service that commits for them, in one process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from pubsub_lib import Settings, Store
from pubsub_lib.core.model import Link
from pubsub_lib.service.commit_server import CommitServer
from pubsub_lib.store import StoreSettings
from tests.unit.world import settings

# A worker that waits longer than lock_timeout commits by itself, which a busy machine must not cause.
PATIENT = StoreSettings(page_size=3, retry_attempts=20, lock_timeout=60.0, retry_max_seconds=120.0)


def of_host(url: str, folder: Path, **changes: Any) -> Settings:
    """Settings with which the service of the host commits."""
    given = {
        "group_commit": "host",
        "multiproc_driver": "memory",
        "multiproc_socket": str(folder / "hop" / "socket"),
        "service_name": "api-1",
        "store": PATIENT,
    }
    return settings(url, **{**given, **changes})


@contextmanager
def serving(config: Settings, publish: Callable[[Sequence[Link]], None] | None = None) -> Iterator[CommitServer]:
    """A service's end with a store of its own."""
    with Store(msgspec.structs.replace(config, group_commit="process")) as store:
        server = CommitServer(config, store, publish)
        server.start()
        try:
            yield server
        finally:
            server.close()
