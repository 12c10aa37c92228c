"""The model of ``tools/bench herd``: deterministic, bounded by the busiest relay, with the real waits."""

import msgspec
import pytest
from _measurements.herd_model import LIMIT, PLACES, Costs, Model, Processors, Result

COSTS = Costs(boot=1.0, read=2.0, follow=1.0, answer=0.05, apply=0.1, whole_bytes=1e7, answer_bytes=1e6)


def run(replicas: int = 40, uppers: int = 2, lowers: int = 4, shared: int = 0, costs: Costs = COSTS) -> Result:
    return Model(costs, replicas, uppers, lowers, shared).run()


def test_same_seed_gives_the_same_result_and_all_are_synced() -> None:
    result = run()
    assert result == run()
    assert len(result.seconds) == 40
    assert result.longest < LIMIT
    assert result.relay_bytes == 10 * COSTS.answer_bytes


def test_no_replica_is_synced_before_the_work_above_it_is_done() -> None:
    least = COSTS.boot + COSTS.read + COSTS.answer + COSTS.follow + COSTS.answer + COSTS.apply
    assert min(run().seconds) >= least


def test_more_relays_make_it_shorter_and_fewer_processors_longer() -> None:
    many = run(1000, lowers=4).longest
    assert many >= 1000 / 4 * COSTS.answer, "the work of one relay is a bound"
    assert run(1000, lowers=40).longest < many
    assert run(100, shared=1).longest >= 100 * (COSTS.answer + COSTS.apply)


def test_replicas_beyond_the_places_are_sent_away() -> None:
    none = msgspec.structs.replace(COSTS, boot=0.0, read=0.0, follow=0.0, answer=10.0)
    assert run(PLACES, 1, 1, costs=none).refused < run(4 * PLACES, 1, 1, costs=none).refused


@pytest.mark.parametrize("number", [1, 2])
def test_processors_work_in_turn(number: int) -> None:
    processors = Processors(number)
    assert [processors.take(0.0, 2.0) for _ in range(4)] == {1: [2, 4, 6, 8], 2: [2, 2, 4, 4]}[number]
    assert processors.take(100.0, 1.0) == 101.0
