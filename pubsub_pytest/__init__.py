"""Fixtures for pytest: the store and the replicas of :class:`pubsub_lib.testing.local.Local`.

pytest loads this module in every run, also of people who use nothing of it. So it is no part of ``pubsub_lib``, whose
import takes long, and imports that only when a test asks for a fixture. It needs nothing but pytest.
"""

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pubsub_lib import Store
    from pubsub_lib.testing.local import Local


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--pubsub-seed``: other random choices than each test's usual ones."""
    parser.getgroup("pubsub_lib").addoption(
        "--pubsub-seed", type=int, metavar="N", help="Seed of pubsub_lib's fixtures. Default: each test has its own."
    )


@pytest.fixture
def pubsub_seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test's jitter and faults: always the same one, unless ``--pubsub-seed`` gives another.

    A test that fails shows it among what it printed.
    """
    given = request.config.getoption("--pubsub-seed")
    seed = zlib.crc32(request.node.nodeid.encode()) if given is None else int(given)
    print(f"--pubsub-seed={seed}")
    return seed


@pytest.fixture
def pubsub_local(pubsub_seed: int) -> Iterator["Local"]:
    """A store, and replicas of it that do something when the test says ``flush()``. Closed after the test."""
    from pubsub_lib.testing.local import Local

    with Local(seed=pubsub_seed) as local:
        yield local


@pytest.fixture
def pubsub_store(pubsub_local: "Local") -> "Store":
    """The store of ``pubsub_local``: a real one, in a SQLite file that is gone after the test."""
    return pubsub_local.store
