"""The helpers of the conformance suite: the links that a collector counts, the links of a scene, and timeouts."""

from collections.abc import Callable

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.testing.rig import Collector, Rig, scene
from pubsub_memory import MemoryBus, MemoryDriver


def rig(patience: float = 10.0, limits: Limits = Limits()) -> Rig:  # noqa: B008 - frozen
    return Rig(MemoryDriver, DriverSettings(limits=limits, options={"bus": MemoryBus()}), patience=patience)


def test_scene_waits_with_the_patience_that_the_rig_has_at_that_time() -> None:
    with scene(rig(patience=60.0)) as on:
        listener = on.listening("t")
        on.rig.patience = 0.01
        with pytest.raises(AssertionError, match=r"after 0\.01 s still not: more"):
            listener.received.until(lambda: False, "more")


def test_scene_links_form_one_history() -> None:
    with scene(rig()) as on:
        first, other, second = on.link("a"), on.link("b", {"k": "1", "l": "2"}), on.link("a")
        assert second.prev == first.point
        assert [other.tx_prev, second.tx_prev] == [first.point, other.point]
        assert [change.version for change in other.changes] == [2, 3]


def test_settle_fails_for_a_subscriber_that_receives_nothing() -> None:
    with scene(rig(patience=0.3)) as on:
        other = on.subscriber("other")
        with pytest.raises(AssertionError, match=r"received nothing on it in 0\.3 s"):
            on.settle(other, "t")


def test_settle_sends_the_second_probe_soon_and_later_ones_at_growing_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    def observed(self: Collector, condition: Callable[[], object], seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 8:
            raise KeyError("enough")
        return False

    monkeypatch.setattr(Collector, "waits", observed)
    with scene(rig()) as on, pytest.raises(KeyError, match="enough"):
        on.settle(on.subscriber("other"), "t")
    assert pauses[0] <= 0.01
    assert pauses == sorted(pauses)
    assert pauses[-1] == 0.25


def test_settle_for_all_topics_accepts_any_topic() -> None:
    with scene(rig()) as on:
        listener = on.listening(ALL)
        on.wait_for(listener, on.send("whatever"))


def test_scene_closes_its_endpoints() -> None:
    with scene(rig()) as on:
        listener = on.listening("t")
        sender = on.sender
    assert listener.subscriber.counters()["received"] >= 1
    with pytest.raises(Exception, match="closed"):
        sender.publisher.send_event(sender.hello())
