"""A fault that lasts is one line; the log of indexes is in test_unreadable.py, and that of syncs in test_engine.py."""

import logging

import pytest

from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.events import plain
from pubsub_lib.core.index import Index
from pubsub_lib.core.model import Want
from pubsub_lib.core.topic_objects import Rot
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.replica.fault_log import FaultLog, log_failed_sync, log_rot

JOB = StartSync(1, {"t": Want()}, {})


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_each_mismatching_topic_is_logged_until_it_matches(caplog: pytest.LogCaptureFixture) -> None:
    log = FaultLog()
    named: list[list[str]] = []
    for topics in ({"t"}, {"t", "u"}, {"u"}, {"t", "u"}):
        log.log_mismatching(frozenset(topics))
        logged = "".join(lines(caplog))
        named.append([each for each in "tu" if f"the topic '{each}'" in logged])
    assert named == [["t"], ["u"], [], ["t"]]


def test_index_is_new_once_until_it_is_complete() -> None:
    log, index = FaultLog(), Index("by mac", "lport", lambda value: value["mac"], plain)
    new: list[list[str]] = []
    for value in (b'{"mac":"AA"}', b"7", b"7", b'{"mac":"AA"}', b"7"):
        index.put("p1", value)
        new.append([*log.new_incomplete([index])])
    assert new == [[], ["by mac"], [], [], ["by mac"]]


def test_line_about_rot_names_the_objects(caplog: pytest.LogCaptureFixture) -> None:
    log_rot(Rot("t", 2, (("lport", "p1"),)))
    log_rot(Rot("t", 1, ()))
    first, second = lines(caplog)
    assert first.startswith("2 objects of the topic 't' were altered or lost in this process's memory (lport 'p1')")
    assert "(names unknown)" in second


def test_repeated_failure_of_a_sync_is_logged_only_when_it_is_internal(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_failed_sync(JOB, StoreUnavailable("out"), logged=False)
        log_failed_sync(JOB, StoreUnavailable("out"), logged=True)
        assert lines(caplog) == ["a sync failed and will be retried: out"]
        log_failed_sync(JOB, ZeroDivisionError("a bug"), logged=True)
        assert lines(caplog) == ["internal error in a sync, which will be retried; please report this"]
