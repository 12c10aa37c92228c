"""The service's route of the sync channel: only with its option, and its counters."""

import msgspec

from pubsub_lib import Settings, Store
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.model import SyncAnswer, Want
from pubsub_lib.service.syncs import syncs_of
from pubsub_lib.sync.question import SyncQuestion, encode_question
from pubsub_lib.sync.server import ROUTE


def test_service_serves_no_syncs_without_the_option(config: Settings) -> None:
    def source(question: SyncQuestion) -> SyncAnswer:
        raise AssertionError

    syncs = syncs_of(source, config, ServiceSettings())
    assert syncs.streams == {}
    assert syncs.counters_with(lambda: {"links": {"handed": 1.0}})() == {"links": {"handed": 1.0}}


def test_route_has_the_bounds_of_the_settings_and_its_own_counters(config: Settings, store: Store) -> None:
    settings = msgspec.structs.replace(config, timing=msgspec.structs.replace(config.timing, sync_timeout=7.0))
    syncs = syncs_of(lambda question: store.read_sync(question.wants), settings, ServiceSettings(serve_syncs=True))
    assert list(syncs.streams) == [ROUTE]
    assert syncs.streams[ROUTE].max_seconds == 7.0
    assert syncs.route is not None
    with syncs.route.serve(_Asked(), gzip=False) as answer:
        assert answer.status == 200
        b"".join(answer.parts)
    counted = syncs.counters_with(lambda: {"links": {}})()
    assert counted["sync_channel"]["answered"] == 1
    assert "links" in counted


class _Asked:
    def read(self) -> bytes:
        return encode_question(SyncQuestion({"t": Want()}))

    def skip(self) -> None:
        raise AssertionError
