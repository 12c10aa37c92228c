"""The loop in every order of its thread and of those that wake and close it, with a switch at each of its lines."""

from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.threads import periodic_thread as module
from pubsub_lib.threads.periodic_thread import PeriodicThread
from tests.scheduler.explore import World, explore

HOUR = 3600.0


def test_loop_takes_a_step_after_every_wake_without_waiting() -> None:
    def scenario(world: World) -> None:
        wanted, done = [0], [-1]

        def step(now: float) -> float:
            done[0] = wanted[0]
            return now + HOUR

        loop = PeriodicThread("testing", step)
        loop.start()
        for _ in range(2):
            wanted[0] += 1
            loop.wake()
        world.until(lambda: done[0] == wanted[0], "a step that began after the last wake", 1.0)

    explore(scenario, deviations=2, lines=[module])


def test_loop_closes_at_once_and_takes_no_step_afterwards() -> None:
    def scenario(world: World) -> None:
        closed, steps = [False], [0]

        def step(now: float) -> float:
            world.check(not closed[0], "a step began after close() had returned")
            steps[0] += 1
            return now + HOUR

        loop = PeriodicThread("testing", step)
        loop.start()
        began = world.now
        world.together(loop.wake, lambda: world.check(loop.close(10.0), "close() reports that a step still runs"))
        closed[0] = True
        world.check(world.now == began, f"close() took {world.now - began:g} s")
        world.check(loop.close(0.0), "a second close() reports that a step still runs")
        world.sleep(2 * HOUR)

    explore(scenario, deviations=1, lines=[module])
    explore(scenario, seeds=range(100), lines=[module])


def test_loop_closed_by_its_own_step_ends() -> None:
    def scenario(world: World) -> None:
        steps = [0]

        def step(now: float) -> float:
            steps[0] += 1
            world.check(not loop.close(10.0), "close() in the step reports that the step has ended")
            return now + HOUR

        loop = PeriodicThread("testing", step)
        loop.start()
        loop.wake()
        world.check(loop.close(10.0), "the loop did not end")
        world.check(steps[0] <= 1, f"it took {steps[0]} steps")

    explore(scenario, deviations=2, lines=[module])


def test_loop_retries_a_failed_step_in_time() -> None:
    def scenario(world: World) -> None:
        times: list[float] = []

        def step(now: float) -> float:
            times.append(world.now)
            if len(times) < 3:
                raise StoreUnavailable("out")
            return now + HOUR

        loop = PeriodicThread("testing", step)
        loop.start()
        world.until(lambda: len(times) == 3, "the third try", 2.5 * module.AFTER_FAILURE)
        world.check(loop.failures == 2, f"{loop.failures} failures were counted")

    explore(scenario, deviations=1, lines=[module])


def test_loop_is_busy_only_inside_a_step() -> None:
    def scenario(world: World) -> None:
        def step(now: float) -> float:
            world.sleep(5.0)
            return now + HOUR

        loop = PeriodicThread("testing", step)
        loop.start()
        seen = [(loop.running_for(world.now), world.now)]
        for _ in range(3):
            world.sleep(2.0)
            seen.append((loop.running_for(world.now), world.now))
        begun = 1000.0
        for busy, at in seen:
            world.check(busy in (0.0, at - begun) and busy <= 5.0, f"busy for {busy} s at {at}")
        world.check(seen[1][0] == 2.0, "a running step is not reported")
        world.check(seen[3][0] == 0.0, "an ended step is still reported")

    explore(scenario, deviations=1, lines=[module])
