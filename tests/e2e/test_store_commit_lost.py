"""The connection is lost during COMMIT: never applied twice, never lost, and an unknown outcome is reported."""

from collections.abc import Iterator

import pytest
from _cutting_proxy import CuttingProxy, Mode
from sqlalchemy import make_url

from pubsub_lib.core.model import Link
from pubsub_lib.errors import OutcomeUnknown
from pubsub_lib.store import Store, StoreSettings
from tests.e2e.store_checks import assert_consistent

SETTINGS = StoreSettings(retry_attempts=50, retry_max_seconds=30.0, lock_timeout=10.0)


@pytest.fixture(params=["postgres_url", "mariadb_url"], ids=["postgresql", "mariadb"])
def server_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def proxy(server_url: str) -> Iterator[CuttingProxy]:
    port = make_url(server_url).port
    assert port is not None
    made = CuttingProxy(port)
    yield made
    made.close()


def through(proxy: CuttingProxy, server_url: str, settings: StoreSettings = SETTINGS) -> Store:
    url = make_url(server_url).set(port=proxy.port)
    return Store(url.render_as_string(hide_password=False), settings=settings)


@pytest.mark.parametrize("mode", ["before", "after", "late"])
def test_transaction_is_stored_exactly_once(mode: Mode, proxy: CuttingProxy, server_url: str) -> None:
    with through(proxy, server_url) as store, Store(server_url) as direct:
        handed_over: list[Link] = []
        store.on_commit(handed_over.extend)
        with store.transaction() as tx:
            tx.set("count", "n", 1)
        proxy.mode = mode
        with store.transaction() as tx:
            tx.set("count", "n", 2)
            tx.create("item", "second", 2)
        assert proxy.cuts == 1
        assert tx.commit is not None
        assert direct.committed(tx.nonce)
        assert direct.get("count", "n") == 2
        assert assert_consistent(direct) == 2
        assert [link.point for link in handed_over].count(tx.commit.point) == 1


@pytest.mark.quick_variants(2)
@pytest.mark.parametrize(("mode", "is_in"), [("before", False), ("after", True)])
def test_outcome_unknown_is_raised_when_the_store_is_unavailable(
    mode: Mode, is_in: bool, proxy: CuttingProxy, server_url: str
) -> None:
    settings = StoreSettings(retry_attempts=3, retry_max_seconds=5.0, connect_timeout=2.0)
    with through(proxy, server_url, settings) as store, Store(server_url) as direct:
        with store.transaction() as first:  # its connection is set up, which ends with a COMMIT, too
            first.create("item", "before", 1)
        proxy.mode, proxy.refuse_after_cut = mode, True
        with pytest.raises(OutcomeUnknown) as caught, store.transaction() as tx:
            tx.create("item", "x", 1)
        assert caught.value.nonce == tx.nonce
        assert direct.committed(tx.nonce) is is_in
        proxy.revive()
        assert store.committed(tx.nonce) is is_in
        assert assert_consistent(direct) == (2 if is_in else 1)
