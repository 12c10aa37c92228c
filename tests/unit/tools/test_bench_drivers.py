"""``tools/bench --case drivers``: every envelope arrives, and a driver whose server cannot be had is left out."""

import importlib.metadata
from collections.abc import Sequence
from typing import NoReturn

import pytest
from _bench.drivers import case
from _bench.drivers.redis_side import RedisSide
from _bench.drivers.side import Side
from _bench.drivers.sides import SIDES
from _bench.e2e.side import LeftOutError
from _bench.measure import QUICK, BenchError
from _children import ChildError

from pubsub_lib.config.installed_drivers import DRIVERS
from tests.conftest import IN_CI


class NoServer(RedisSide):
    name = "none"

    def server(self) -> NoReturn:
        raise LeftOutError("it cannot be downloaded")


@pytest.fixture(params=SIDES, ids=lambda side: side.name)
def side(request: pytest.FixtureRequest) -> Side:
    """A side whose server can be had; the test is skipped without it."""
    found: Side = request.param
    try:
        with found.server():
            return found
    except LeftOutError as error:
        if IN_CI:
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def test_drivers_are_all_that_connect_to_a_broker() -> None:
    found = [entry.load() for entry in importlib.metadata.entry_points(group=DRIVERS)]
    brokers = [each for each in found if not each.capabilities.bind_based and each.capabilities.carries_envelopes]
    assert {each.driver for each in SIDES} == {each for each in brokers if each.capabilities.cross_host}


@pytest.mark.quick_variants(1)
def test_drivers_measures_each_driver_beside_its_client_library(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "SIDES", [NoServer(), side])
    lines: list[str] = []
    (row,) = case.run(QUICK, 1, lines.append)
    assert (row.name, row.at, row.required) == (f"driver-{side.name}", "least", 0.8)
    assert row.title.startswith(f"{side.name}_pubsub_driver, ")
    assert row.peer.startswith(f"{side.name}-py, ")
    assert row.ours > 0
    assert row.theirs > 0
    assert lines[0] == "none is left out: it cannot be downloaded"


def test_drivers_without_any_server_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "SIDES", [NoServer()])
    with pytest.raises(BenchError, match="none is left out: it cannot be downloaded"):
        case.run(QUICK, 1, lambda text: None)


def test_a_lost_envelope_is_an_error(side: Side) -> None:
    made = list(case.envelopes(10, 20))
    with side.server() as options, pytest.raises(ChildError, match="received envelope 11 in place of 10"):
        case.ours(side, options, made[:9] + made[10:])


def test_raw_frames_of_another_size_are_an_error(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    def shorter(sizes: Sequence[int]) -> list[bytes]:
        return [b"x" * (size - 1) for size in sizes]

    monkeypatch.setattr(case, "raw_frames", shorter)
    with side.server() as options, pytest.raises(ChildError, match="had 2970 bytes instead of 3000"):
        case.raw(side, options, [100] * 30)
