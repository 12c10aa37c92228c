"""``tools/bench --case drivers``: every envelope arrives, and a driver whose server cannot be had is left out."""

from typing import NoReturn

import pytest
from _bench.drivers import case
from _bench.drivers.redis_side import RedisSide
from _bench.e2e.side import LeftOutError
from _bench.measure import QUICK, BenchError
from _children import ChildError
from _redis_server import PrivateRedis


class NoServer(RedisSide):
    name = "none"

    def server(self) -> NoReturn:
        raise LeftOutError("it cannot be downloaded")


@pytest.mark.usefixtures("redis_server")  # skips where the server cannot be had
def test_drivers_measures_each_driver_beside_its_client_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "SIDES", [NoServer(), RedisSide()])
    lines: list[str] = []
    (row,) = case.run(QUICK, 1, lines.append)
    assert (row.name, row.at, row.required) == ("driver-redis", "least", 0.8)
    assert row.ours > 0
    assert row.theirs > 0
    assert lines[0] == "none is left out: it cannot be downloaded"


def test_drivers_without_any_server_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "SIDES", [NoServer()])
    with pytest.raises(BenchError, match="none is left out: it cannot be downloaded"):
        case.run(QUICK, 1, lambda text: None)


def test_a_lost_envelope_is_an_error(redis_server: PrivateRedis) -> None:
    made = list(case.envelopes(10, 20))
    with pytest.raises(ChildError, match="received envelope 11 in place of 10"):
        case.ours(RedisSide(), {"url": redis_server.url, "prefix": "lost:"}, made[:9] + made[10:])
