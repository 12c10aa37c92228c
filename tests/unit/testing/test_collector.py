"""The callbacks of the conformance suite: the links that they count, and their waits."""

import threading

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.testing.collector import Collector, Connections
from pubsub_lib.testing.rig import Rig, scene
from pubsub_memory import MemoryBus, MemoryDriver


def rig(limits: Limits) -> Rig:
    return Rig(MemoryDriver, DriverSettings(limits=limits, options={"bus": MemoryBus()}), patience=10.0)


def test_collector_counts_a_link_at_each_complete_run() -> None:
    limits = Limits(max_frame_bytes=2000, max_value_bytes=500)
    with scene(rig(limits=limits)) as on:
        link = on.link("t", {f"k{number}": '"' + "x" * 400 + '"' for number in range(9)})
        envelopes = on.sender.envelopes(link, on.rig.settings)
        assert len(envelopes) > 1
        collector = Collector(1.0)
        for count, envelope in enumerate(envelopes * 2, 1):
            collector(envelope)
            assert len(collector.points("t")) == count // len(envelopes)


def test_collector_timeout_names_the_condition() -> None:
    with pytest.raises(AssertionError, match=r"after 0\.01 s still not: the link came; 0 envelopes came"):
        Collector(0.01).until(lambda: False, "the link came")


def test_raising_hook_is_not_an_overlap() -> None:
    collector = Collector(1.0)
    envelope = Envelope("s", "0" * 32, "t", 1, [])

    def fail(_: object) -> None:
        raise ValueError

    collector.hook = fail
    for _ in range(2):
        with pytest.raises(ValueError):
            collector(envelope)
    assert not collector.overlapped


def test_connections_count_before_their_hook_and_end_a_wait() -> None:
    connections, seen = Connections(), []
    connections.hook = lambda: seen.append(connections.count)
    thread = threading.Thread(target=connections)
    thread.start()
    connections.until_more_than(0, 10.0, "subscriber")
    thread.join()
    assert seen == [1]
    with pytest.raises(AssertionError, match=r"on_connected of the publisher was not called within 0\.01 s"):
        connections.until_more_than(1, 0.01, "publisher")
