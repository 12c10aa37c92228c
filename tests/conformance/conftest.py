"""Fixtures for the tests of broken drivers."""

import logging
from collections.abc import Iterator

import pytest

LOGS = ("pubsub_memory", "pubsub_nats", "pubsub_pgnotify", "pubsub_redis", "pubsub_sql", "pubsub_zmq", "tcp_driver")


@pytest.fixture
def quiet() -> Iterator[None]:
    """Suppress the logs of drivers that are broken on purpose."""
    before = {name: logging.getLogger(name).level for name in LOGS}
    for name in before:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
