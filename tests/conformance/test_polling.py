"""The polling driver passes the conformance suite, on a real store."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.core.model import Link
from pubsub_lib.store import Store
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_sql import PollingDriver


def writer(store: Store) -> Callable[[str, Mapping[str, str]], Link]:
    """Changes the database, as the rig's ``write``."""

    def write(topic: str, values: Mapping[str, str]) -> Link:
        with store.transaction() as tx:
            for key, value in values.items():
                tx.set("conformance", f"{topic}/{key}", json.loads(value), topic=topic)
        assert tx.commit is not None
        return tx.commit.links[0]

    return write


@contextmanager
def rig_in(folder: Path) -> Iterator[Rig]:
    url = f"sqlite:///{folder}/net.db"
    with Store(url) as store:
        settings = DriverSettings(store_url=url, options={"fastest": 0.002, "slowest": 0.02})
        yield Rig(PollingDriver, settings, write=writer(store))


class TestPolling(DriverConformance):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[Rig]:
        with rig_in(tmp_path) as rig:
            yield rig
