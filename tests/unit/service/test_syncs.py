"""The service's routes of the sync channel: only with their option, and their numbers."""

from typing import Literal

import msgspec
import pytest

from pubsub_lib import Settings, Store
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.model import Full, SyncAnswer, Want
from pubsub_lib.service import syncs as service_syncs
from pubsub_lib.service.service import PublisherService
from pubsub_lib.service.syncs import syncs_of
from pubsub_lib.sync.agent_registry import AgentRegistry
from pubsub_lib.sync.agents import decode_agents, encode
from pubsub_lib.sync.agents_server import GET_ROUTE, POST_ROUTE, AgentsRoute
from pubsub_lib.sync.packing import PackedRecords
from pubsub_lib.sync.question import SyncQuestion, encode_question
from pubsub_lib.sync.server import ROUTE
from tests.unit.service.test_service import QUICK, both
from tests.unit.sync.some_agents import announcement


def agents() -> AgentsRoute:
    return AgentsRoute(AgentRegistry("u"), "api-1", "origin", "", now=lambda: 7.0)


def test_service_has_no_routes_without_the_option(config: Settings) -> None:
    def source(question: SyncQuestion) -> SyncAnswer:
        raise AssertionError

    syncs = syncs_of(source, agents(), config, ServiceSettings())
    assert (syncs.streams, syncs.routes) == ({}, {})
    assert syncs.counters_with(lambda: {"links": {"handed": 1.0}})() == {"links": {"handed": 1.0}}
    assert syncs.gauges_with(lambda: {"leases": {"entry": 1.0}})() == {"leases": {"entry": 1.0}}


@pytest.mark.parametrize("role", ["origin", "relay", "standby"])
def test_only_a_standby_answers_first_syncs_alone(
    config: Settings, monkeypatch: pytest.MonkeyPatch, role: Literal["origin", "relay", "standby"]
) -> None:
    given = []
    monkeypatch.setattr(service_syncs, "SyncRoute", lambda *_, firsts: given.append(firsts))
    syncs_of(lambda question: None, agents(), config, ServiceSettings(serve_syncs=True, role=role))
    assert given == [role == "standby"]


def test_service_without_announcements_has_only_the_route_of_syncs(config: Settings) -> None:
    syncs = syncs_of(lambda question: None, None, config, ServiceSettings(serve_syncs=True, role="standby"))
    assert (list(syncs.streams), syncs.routes, syncs.known()) == ([ROUTE], {}, None)
    assert list(syncs.counters_with(lambda: {"failures": {}})()) == ["failures", "sync_channel"]
    assert syncs.gauges_with(lambda: {"standby": {"position": 1.0}})() == {"standby": {"position": 1.0}}


def test_route_has_the_bounds_of_the_settings_and_its_own_counters(config: Settings, store: Store) -> None:
    settings = msgspec.structs.replace(config, timing=msgspec.structs.replace(config.timing, sync_timeout=7.0))
    serves = ServiceSettings(serve_syncs=True)
    syncs = syncs_of(lambda question: store.read_sync(question.wants), agents(), settings, serves)
    assert sorted(syncs.streams) == [POST_ROUTE, ROUTE]
    assert syncs.streams[ROUTE].max_seconds == 7.0
    assert syncs.route is not None
    with syncs.route.serve(_Sent(encode_question(SyncQuestion({"t": Want()}))), gzip=False) as answer:
        assert answer.status == 200
        b"".join(answer.parts)
    counted = syncs.counters_with(lambda: {"links": {}})()
    assert counted["sync_channel"]["answered"] == 1
    assert "links" in counted


def test_service_reads_objects_as_the_pages_that_it_sends(sqlite_url: str) -> None:
    config = both(sqlite_url)
    with PublisherService(config, QUICK) as service, Store(config.store_url) as store:
        with store.transaction() as tx:
            tx.set("a", "1", 1, topic="t")
        part = service.answer_sync(SyncQuestion({"t": Want()})).chains["t"]
        assert isinstance(part, Full)
        records = part.topics["t"].records
        assert isinstance(records, PackedRecords)
        assert [each.value for each in records] == [b"1"]


def test_agents_are_taken_listed_and_counted(config: Settings, store: Store) -> None:
    serves = ServiceSettings(serve_syncs=True)
    syncs = syncs_of(lambda question: store.read_sync(question.wants), agents(), config, serves)
    with syncs.streams[POST_ROUTE].serve(_Sent(encode(announcement("a"))), gzip=False) as answer:
        assert answer.status == 200
    assert [each.name for each in decode_agents(syncs.routes[GET_ROUTE]({})[1]).agents] == ["a"]
    assert syncs.counters_with(lambda: {"links": {}})()["announcements"] == {"accepted": 1, "refused": 0, "full": 0}
    gauges = syncs.gauges_with(lambda: {"leases": {}})()
    assert gauges == {"leases": {}, "agents": {"known": 1.0, "left_out": 0.0, "unsynced": 0.0, "max_staleness": 0.5}}


class _Sent:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        return self._data

    def skip(self) -> None:
        raise AssertionError
