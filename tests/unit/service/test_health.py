"""Problems of a service, one of whose threads hangs."""

import threading
from typing import Any

import pytest
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.service.service import PublisherService
from pubsub_zmq.publisher import ZmqPublisher
from tests.unit.service.test_service import LONG, QUICK, both


def test_hanging_thread_is_named_and_unreachable_database_hangs_none(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PublisherService(both(sqlite_url), QUICK) as service:
        assert poll(lambda: service.problems() == [], LONG)
        assert service.stuck() == []
        maximum = 7 * (30.0 + 5.0 + 30.0 + 5.0)  # every query of a step lasts as long as its timeouts allow
        monkeypatch.setattr(service._loops["leases"], "running_for", lambda now: maximum)
        assert service.stuck() == []
        monkeypatch.setattr(service._loops["leases"], "running_for", lambda now: maximum + 1.0)
        assert service.stuck() == ["the thread 'leases' has been hanging for 491 s"]


def test_service_whose_sending_thread_hangs_is_not_ready(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other threads work, and messages are queued, but none reaches a replica."""
    inside, goes_on = threading.Event(), threading.Event()
    receive = ZmqPublisher._receive

    def hang(publisher: ZmqPublisher, xpub: Any) -> bool:
        inside.set()
        goes_on.wait(LONG)
        return receive(publisher, xpub)

    tcp = {"driver": "zmq_pubsub_driver", "driver_options": {}, "multiproc_driver": "", "multiproc_options": {}}
    config = both(sqlite_url, bind_address="tcp://127.0.0.1:*", **tcp)
    with Store(sqlite_url, origin="api-1") as store, PublisherService(config, QUICK) as service:
        assert poll(lambda: service.problems() == [], LONG)
        monkeypatch.setattr(ZmqPublisher, "_receive", hang)
        assert service._health._max_sending == 2.0
        monkeypatch.setattr(service._health, "_max_sending", 0.2)
        try:
            with store.transaction() as tx:  # its link is followed and sent
                tx.set("a", "1", 1, topic="t")
            assert inside.wait(LONG)
            assert poll(lambda: "the thread that sends messages hangs" in service.problems(), LONG)
            monkeypatch.setattr(service._health, "_max_busy", 0.1)
            assert any("the thread 'sending' has been hanging for" in each for each in service.stuck())
        finally:
            goes_on.set()
        monkeypatch.setattr(service._health, "_max_sending", 60.0)
        assert poll(lambda: service.problems() == [], LONG)
