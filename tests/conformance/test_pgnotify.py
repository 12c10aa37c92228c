"""The driver that listens to PostgreSQL passes the conformance suite, on a real server."""

from collections.abc import Iterator

import pytest
from _servers import PrivateServer

from pubsub_lib.testing.conformance import DriverConformance, Rig
from tests.conformance.pgnotify_rig import database, rig_of


@pytest.fixture(scope="module")
def url(postgres_server: PrivateServer) -> Iterator[str]:
    yield from database(postgres_server)


@pytest.mark.postgresql
class TestPgNotify(DriverConformance):
    @pytest.fixture
    def rig(self, url: str) -> Iterator[Rig]:
        with rig_of(url) as rig:
            yield rig
