"""The scheduler itself: it finds planted mistakes, names lock holders, replays, and lets time pass only in waits."""

import sys
import time
from typing import Any

import pytest

from pubsub_lib.threads import periodic_thread as module
from tests.scheduler.choices import Replay
from tests.scheduler.explore import World, explore, run
from tests.scheduler.scheduler import Failure


def lost_update(world: World) -> None:
    """Two threads add, with separate locks for reading and writing."""
    lost_update_of(world, 1)


def lost_update_of(world: World, number: int) -> None:
    lock, count = world.threading.Lock(), [0]

    def add() -> None:
        with lock:
            seen = count[0]
        with lock:
            count[0] = seen + number

    world.together(add, add)
    world.check(count[0] == 2 * number, f"two threads added {number}, and the sum is {count[0]}")


def lost_wake_up(world: World) -> None:
    """A flag is read outside of the lock under which its change is notified."""
    condition, flag = world.threading.Condition(), [False]

    def notifies() -> None:
        with condition:
            flag[0] = True
            condition.notify_all()

    def waits() -> None:
        if not flag[0]:
            with condition:
                condition.wait()

    world.together(waits, notifies)


def crossed_locks(world: World) -> None:
    one, two = world.threading.Lock(), world.threading.Lock()

    def takes(first: Any, second: Any) -> None:
        with first, second:
            pass

    world.together(lambda: takes(one, two), lambda: takes(two, one))


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [(lost_update, "the sum is 1"), (lost_wake_up, "deadlock"), (crossed_locks, "deadlock")],
)
def test_scheduler_finds_planted_mistake_and_replays_it(scenario: Any, reason: str) -> None:
    with pytest.raises(Failure, match=reason) as found:
        explore(scenario, deviations=1)
    with pytest.raises(Failure, match=reason):
        run(scenario, Replay(found.value.schedule))
    with pytest.raises(Failure, match=reason):
        explore(scenario, seeds=range(100))


def test_failure_of_a_seed_is_reproducible_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(world: World) -> None:
        number = world.rng.randrange(1_000_000)
        world.together(lambda: world.sleep(0.0), lambda: world.sleep(0.0))
        lost_update_of(world, number)

    def failed() -> Failure:
        with pytest.raises(Failure) as found:
            explore(scenario, seeds=range(100))
        return found.value

    first = failed()
    assert first.schedule.startswith("seed ")
    assert any(f"PUBSUB_LIB_SCHEDULE='{first.schedule}' pytest" in note for note in first.__notes__)
    monkeypatch.setenv("PUBSUB_LIB_SCHEDULE", first.schedule)
    assert str(failed()) == str(first)
    monkeypatch.delenv("PUBSUB_LIB_SCHEDULE")
    number = int(first.schedule.removeprefix("seed "))
    monkeypatch.setenv("PUBSUB_LIB_SCHEDULE_SEEDS", f"{number}:{number + 1}")
    assert str(failed()) == str(first)
    monkeypatch.setenv("PUBSUB_LIB_SCHEDULE_SEEDS", "0:0")
    assert explore(scenario, seeds=range(100)) == 0


def test_schedule_in_environment_replays_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure) as found:
        explore(lost_update, deviations=1)
    monkeypatch.setenv("PUBSUB_LIB_SCHEDULE", found.value.schedule)
    with pytest.raises(Failure, match="the sum is 1"):
        explore(lost_update, seeds=[0])
    monkeypatch.setenv("PUBSUB_LIB_SCHEDULE", "")
    assert explore(lost_update, deviations=2) == 1


def test_mistake_that_needs_three_deviations_is_not_found_with_fewer() -> None:
    def scenario(world: World) -> None:
        lock, stages = world.threading.Lock(), [0]

        def goes_on() -> None:
            for stage in (0, 2):
                with lock:
                    stages[0] += stages[0] == stage

        def follows() -> None:
            for stage in (1, 3):
                with lock:
                    stages[0] += stages[0] == stage

        world.together(follows, goes_on)
        world.check(stages[0] < 4, "both threads took turns")

    explore(scenario, deviations=2)
    with pytest.raises(Failure, match="took turns"):
        explore(scenario, deviations=3)


def test_deadlock_report_names_the_holders_of_locks() -> None:
    with pytest.raises(Failure) as found:
        explore(crossed_locks, deviations=1)
    lines = str(found.value).splitlines()
    waiting = [line for line in lines if "waits: the lock of test_scheduler.py" in line]
    assert len(waiting) == 2
    assert all("held by" in line for line in waiting)


def test_every_schedule_of_correct_code_passes() -> None:
    def scenario(world: World) -> None:
        condition, items, taken = world.threading.Condition(), [1, 2], []

        def takes() -> None:
            with condition:
                condition.wait_for(lambda: items)
                taken.append(items.pop())

        world.together(takes, takes)
        world.check(sorted(taken) == [1, 2], f"taken: {taken}")

    assert explore(scenario, deviations=2) > 10


def test_time_passes_only_when_every_thread_waits() -> None:
    def scenario(world: World) -> None:
        event, times = world.threading.Event(), []

        def waits() -> None:
            times.append((event.wait(5.0), world.now))

        waiter = world.spawn(waits)
        world.sleep(3.0)
        event.set()
        waiter.join()
        world.check(times == [(True, 1003.0)], f"it ended its wait so: {times}")
        world.check(not event.wait(0.0) or event.is_set(), "an event without a wait")
        event.clear()
        world.check(not event.wait(3600.0), "no thread set the event")
        world.check(world.now == 4603.0, f"the time is {world.now}")

    began = time.monotonic()
    explore(scenario, deviations=2)
    assert time.monotonic() - began < 3600.0


def test_lag_lets_a_deadline_pass_while_threads_could_run() -> None:
    def scenario(world: World) -> None:
        event = world.threading.Event()
        waiter = world.spawn(lambda: world.check(event.wait(1.0), "the wait timed out"))
        event.set()
        waiter.join()

    explore(scenario, deviations=2)
    with pytest.raises(Failure, match="timed out"):
        explore(scenario, deviations=2, lags=True)


def test_each_line_of_a_module_can_be_a_synchronisation_point() -> None:
    def scenario(world: World) -> None:
        numbers = [0]
        world.together(lambda: unguarded(numbers), lambda: unguarded(numbers))
        world.check(numbers[0] == 2, f"the sum is {numbers[0]}")

    explore(scenario, deviations=2)
    with pytest.raises(Failure, match="the sum is 1"):
        explore(scenario, deviations=1, lines=[sys.modules[__name__]])


def unguarded(numbers: list[int]) -> None:
    seen = numbers[0]
    numbers[0] = seen + 1


def test_endless_loop_of_threads_fails() -> None:
    def scenario(world: World) -> None:
        lock = world.threading.Lock()
        while True:
            with lock:
                pass

    with pytest.raises(Failure, match="endless loop"):
        explore(scenario, deviations=0)


def test_exception_in_any_thread_fails_the_run() -> None:
    def breaks() -> None:
        raise KeyError("a bug")

    with pytest.raises(Failure, match="KeyError: 'a bug'"):
        explore(lambda world: world.spawn(breaks).join(), deviations=0)


def test_failure_is_not_swallowed_by_code_that_survives_exceptions() -> None:
    def scenario(world: World) -> None:
        def survives() -> None:
            while True:
                try:
                    world.sleep(1.0)
                    world.fail("an invariant is broken")
                except Exception:  # noqa: BLE001 - as in the product's threads
                    pass

        world.spawn(survives).join()

    with pytest.raises(Failure, match="an invariant is broken"):
        explore(scenario, deviations=0)


def test_scenario_that_depends_on_more_than_choices_is_refused() -> None:
    runs = []

    def scenario(world: World) -> None:
        runs.append(1)
        world.together(*[lambda: world.sleep(0.0)] * (2 + len(runs) % 2))

    with pytest.raises(ValueError, match="does not depend on choices alone"):
        explore(scenario, deviations=1)


def test_product_gets_its_own_primitives_back() -> None:
    def bound() -> tuple[object, object]:
        return vars(module)["threading"], vars(module)["time"]

    real, seen = bound(), []
    explore(lambda world: seen.append(bound()), deviations=0)
    assert bound() == real
    assert not set(map(id, real)) & set(map(id, seen[0]))
