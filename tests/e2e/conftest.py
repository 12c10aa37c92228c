"""Common fixtures of these tests; a file with other needs defines its own fixture of the same name."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub_lib import Store
from tests.conftest import IN_CI
from tests.e2e.network import missing
from tests.e2e.service_host import Host


@pytest.fixture
def _with_namespaces() -> None:
    """Skip the test, or with ``CI=true`` fail it, with one sentence where no network namespaces can be made."""
    why = missing()
    if why and IN_CI:
        pytest.fail(why, pytrace=False)
    if why:
        pytest.skip(why)


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    """A host with a database in SQLite; nothing runs on it yet."""
    host = Host(tmp_path, sqlite_url)
    yield host
    host.close()


@pytest.fixture
def store(host: Host) -> Iterator[Store]:
    """The host's database, opened by the test."""
    with Store(host.database) as store:
        yield store


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """An empty temporary folder that a database server reaches, which runs as another user when this one is root."""
    with tempfile.TemporaryDirectory(prefix="pubsub-") as made:
        Path(made).chmod(0o711)
        yield Path(made)
