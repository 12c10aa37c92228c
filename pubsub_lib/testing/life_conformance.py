"""The part of the conformance suite about the start and the end of both halves."""

import threading
from collections.abc import Callable

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.errors import ConfigError, TransportError
from pubsub_lib.testing.checks import CLOSE_SECONDS, ROOM, all_at_once, in_a_fork, needs_fan_out, only_ours
from pubsub_lib.testing.rig import Rig, scene


class LifeConformance:
    """The requirements for the start and the end of both halves."""

    def test_daemonize_must_be_called_once_after_initialize(self, rig: Rig) -> None:
        with scene(rig) as on:
            fresh = rig.driver.subscriber(rig.settings)
            with pytest.raises(TransportError):
                fresh.daemonize()
            fresh.close()
            listener = on.subscriber("tenant-1")
            with pytest.raises(TransportError):
                listener.subscriber.daemonize()

    def test_daemonize_must_be_refused_in_a_forked_child_and_not_disturb_the_parent(self, rig: Rig) -> None:
        needs_fan_out(rig)
        with scene(rig) as on:
            running, waiting = on.listening("tenant-1"), on.subscriber("tenant-1", start=False)

            def child() -> None:
                with pytest.raises(TransportError):
                    waiting.subscriber.daemonize()
                waiting.subscriber.close()
                running.subscriber.close()

            in_a_fork(child, rig.patience)
            on.fence(running, "tenant-1")
            waiting.subscriber.daemonize()
            on.settle(waiting, "tenant-1")

    def test_the_receiving_thread_must_be_a_daemon(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            found = [each for each in threading.enumerate() if each.ident in listener.received.threads]
            assert [each.daemon for each in found] == [True]

    def test_on_envelope_must_not_be_called_after_close_returned(self, rig: Rig) -> None:
        needs_fan_out(rig)
        with scene(rig) as on:
            witness, listener = on.listening("tenant-1"), on.listening("tenant-1")
            for _ in range(50):
                on.send("tenant-1")
            listener.subscriber.close()
            came = len(listener.received.envelopes)
            for _ in range(10):
                on.fence(witness, "tenant-1")
            assert len(listener.received.envelopes) == came, "the callback was called after close() returned"

    def test_close_must_be_idempotent_quick_and_safe_from_any_thread(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            all_at_once([listener.subscriber.close] * 4, CLOSE_SECONDS)
            listener.subscriber.close()
            for early in (on.subscriber(start=False).subscriber, rig.driver.subscriber(rig.settings)):
                all_at_once([early.close, early.close], CLOSE_SECONDS)

    def test_close_must_be_safe_on_the_receiving_thread(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            begun, done = threading.Event(), threading.Event()

            def close(_: object) -> None:
                begun.set()
                listener.subscriber.close()
                done.set()

            listener.received.hook = close
            on.send("tenant-1")
            assert begun.wait(rig.patience), "the callback was not called"  # the time of the delivery is not measured
            assert done.wait(CLOSE_SECONDS + ROOM), "close() did not return on the receiving thread"
            listener.subscriber.close()

    def test_a_closed_half_must_raise_no_foreign_exception(self, rig: Rig) -> None:
        with scene(rig) as on:
            subscriber = on.listening("tenant-1").subscriber
            subscriber.close()
            calls: list[Callable[[], object]] = [
                lambda: subscriber.register_topic("a"),
                lambda: subscriber.unregister_topic("a"),
                lambda: subscriber.request_hello("nonce", ["a"]),
                lambda: subscriber.register_listen_address("a"),
                lambda: subscriber.unregister_listen_address("a"),
                subscriber.daemonize,
                subscriber.counters,
            ]
            for call in calls:
                only_ours(call)

    def test_options_that_cannot_be_used_must_be_config_errors(self, rig: Rig) -> None:
        wrong = DriverSettings(
            limits=rig.settings.limits,
            store_url=rig.settings.store_url,
            options={**rig.settings.options, "no_such_option_of_any_driver": 1},
        )
        for make in (rig.driver.publisher, rig.driver.subscriber):
            with pytest.raises(ConfigError):
                make(wrong)

    def test_the_driver_must_have_its_name(self, rig: Rig) -> None:
        assert rig.driver.name


__all__ = ["LifeConformance"]
