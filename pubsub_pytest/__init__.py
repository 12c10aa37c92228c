"""Fixtures for pytest: the store and the replicas of :class:`pubsub_lib.testing.local.Local`.

pytest loads this module in every run, also when no test uses it. So it is not part of ``pubsub_lib``, whose import
takes long. It imports ``pubsub_lib`` only when a test uses a fixture, and needs only pytest itself.
"""

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pubsub_lib import Store
    from pubsub_lib.testing.local import Local


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--pubsub-seed``: random choices other than each test's default ones."""
    parser.getgroup("pubsub_lib").addoption(
        "--pubsub-seed", type=int, metavar="N", help="Seed of pubsub_lib's fixtures. Default: each test has its own."
    )


@pytest.fixture
def pubsub_seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test's jitter and faults: the same in each run, unless ``--pubsub-seed`` gives another.

    A failed test shows it in its captured output.
    """
    given = request.config.getoption("--pubsub-seed")
    seed = zlib.crc32(request.node.nodeid.encode()) if given is None else int(given)
    print(f"--pubsub-seed={seed}")
    return seed


@pytest.fixture
def pubsub_local(pubsub_seed: int) -> Iterator["Local"]:
    """A store and its replicas, which work when the test calls ``flush()``. Closed after the test."""
    from pubsub_lib.testing.local import Local

    with Local(seed=pubsub_seed) as local:
        yield local


@pytest.fixture
def pubsub_store(pubsub_local: "Local") -> "Store":
    """The store of ``pubsub_local``: a real one, in a SQLite file that is removed after the test."""
    return pubsub_local.store
