"""Runs with relays (rules R1 to R6): trees of one to three hops, whose relays lag, die, and are cut off."""

import io

import pytest

from simulator.command import main
from simulator.plan import Cuts, draw
from simulator.run import run_seed
from simulator.tree_plan import LONGER, NOT_IN_TREES, TREE_FAULTS
from tests.scale import scaled

TREES = Cuts(trees=True)


def test_seeds_with_relays_have_no_violation() -> None:
    out = io.StringIO()
    seeds = scaled(20)
    status = main(["--seeds", str(seeds), "--jobs", "1", "--trees"], out)
    print(out.getvalue())
    assert status == 0
    table = {line[:22].strip(): line[22:].split() for line in out.getvalue().splitlines()}
    kinds = (*TREE_FAULTS, "restore", "kill", "moved", "loop")
    assert [kind for kind in kinds if int(table[kind][0]) < (5 if seeds >= 60 else 1)] == []


@pytest.mark.quick_variants(2)
@pytest.mark.parametrize("seed", [92004658, 93003797, 92002923, 93006815, 94003870])
def test_seed_with_relays_that_once_failed_has_no_violation(seed: int) -> None:
    """The first two: a link that did not fit into the buffer, and an answer of a relay from before it. The next two:
    a late message, which a relay applied, and passed on by an answer. The last one: the begin of a delta counted, and
    dropped what had been received before the reading to whose head it led.
    """
    assert run_seed(seed, TREES).invariant == ""


def test_plan_with_relays_has_named_topics_and_parents_on_the_level_above() -> None:
    hops = set()
    for seed in range(60):
        plain, plan = draw(seed), draw(seed, TREES)
        assert plain.tree is None
        assert plan.tree is not None
        hops.add(len(plan.tree.levels))
        assert plan.services
        assert not {*plan.faults}.intersection(NOT_IN_TREES)
        assert all("" not in replica.topics and not replica.polling for replica in plan.replicas)
        for number in range(len(plan.replicas)):
            assert set(plan.tree.parents[f"replica{number}"]) == set(plan.tree.levels[-1])
        assert [name for name in plan.tree.levels[0] if name in plan.tree.parents] == []
        assert (plain.topics, plain.ops, plain.calm + LONGER) == (plan.topics, plan.ops, plan.calm)
    assert hops == {1, 2, 3}


@pytest.mark.parametrize("kind", TREE_FAULTS)
def test_fault_of_a_tree_can_be_left_out(kind: str) -> None:
    seed = next(seed for seed in range(300) if kind in draw(seed, TREES).faults)
    cuts = Cuts(without=(kind,), ops=5, calm=4.0, trees=True)
    assert kind not in draw(seed, cuts).faults
    assert kind not in run_seed(seed, cuts).counts


@pytest.mark.long
def test_same_seed_with_relays_gives_the_same_trace() -> None:
    for seed in (2, 3):
        assert run_seed(seed, TREES, tracing=True).trace_hash == run_seed(seed, TREES, tracing=True).trace_hash


def test_relays_without_faults_refuse_nothing_and_read_all_objects_once() -> None:
    for seed in (0, 4, 8):
        result = run_seed(seed, TREES)
        assert result.invariant == ""
        assert {cause: number for cause, number in result.syncs.items() if cause.startswith("full")}.keys() <= {
            "full: greeted", "full: asked", "full: failed"
        }  # fmt: skip
