"""The scheduler of production: real threads, real waits, and a clock that may be another one."""

import threading

from _patience import longest

from pubsub_lib.replica.scheduling import Threads

LONG = longest(120.0)


def test_loop_is_a_thread_that_runs_at_each_wake() -> None:
    steps: list[str] = []
    stepped = threading.Semaphore(0)

    def step(now: float) -> float:
        steps.append(threading.current_thread().name)
        stepped.release()
        return now + LONG

    def due() -> float:
        raise AssertionError("the thread relies on step and wake")

    loop = Threads().loop("test", step, due)
    loop.start()
    assert stepped.acquire(timeout=LONG)
    loop.wake()
    assert stepped.acquire(timeout=LONG)
    assert loop.close(LONG)
    assert steps == ["pubsub-test"] * 2


def test_condition_uses_the_given_lock_or_its_own() -> None:
    lock = threading.RLock()
    shared, own = Threads().condition(lock), Threads().condition()
    with lock:
        shared.notify_all()  # RuntimeError without the lock
        assert not shared.wait(0.0)
    with own:
        own.notify_all()


def test_clock_can_be_replaced() -> None:
    assert Threads().now() <= Threads().now()
