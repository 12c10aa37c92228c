"""The polling driver passes the conformance suite, on a real store."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.core.model import Link
from pubsub_lib.store import Store
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_sql import PollingDriver


class TestPolling(DriverConformance):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[Rig]:
        url = f"sqlite:///{tmp_path}/net.db"
        with Store(url) as store:

            def write(topic: str, values: Mapping[str, str]) -> Link:
                with store.transaction() as tx:
                    for key, value in values.items():
                        tx.set("conformance", f"{topic}/{key}", json.loads(value), topic=topic)
                assert tx.commit is not None
                return tx.commit.links[0]

            yield Rig(
                PollingDriver,
                DriverSettings(store_url=url, options={"fastest": 0.002, "slowest": 0.02}),
                write=write,
            )
