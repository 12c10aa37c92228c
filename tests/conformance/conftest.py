"""What the tests of broken drivers share."""

import logging
from collections.abc import Iterator

import pytest

LOGS = ("pubsub_ipc", "pubsub_memory", "pubsub_sql", "pubsub_zmq", "tcp_driver")


@pytest.fixture
def quiet() -> Iterator[None]:
    """What a driver that is broken on purpose logs is of no interest."""
    before = {name: logging.getLogger(name).level for name in LOGS}
    for name in before:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
