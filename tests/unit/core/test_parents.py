"""Rule R5: a parent is left when the replica is stale, and not only when the parent is silent."""

from pubsub_lib.core.parents import Parents
from tests.unit.core.builders import CALM

STALE = CALM.stale_after


def test_rule_r5_parent_of_a_fresh_replica_stays() -> None:
    parents = Parents(["a", "b"], CALM, 0.0)
    assert not parents.check(STALE, 1000.0)
    assert parents.current == "a"


def test_rule_r5_parent_of_a_stale_replica_is_left_for_the_next_one() -> None:
    parents = Parents(["a", "b", "c"], CALM, 0.0)
    chosen = []
    now = 0.0
    for _ in range(4):
        now = parents.next_time()
        assert parents.check(STALE + 0.1, now)
        chosen.append(parents.current)
    assert chosen == ["b", "c", "a", "b"]


def test_rule_r5_new_parent_has_time_to_give_a_proof() -> None:
    parents = Parents(["a", "b"], CALM, 0.0)
    assert not parents.check(float("inf"), STALE - 0.1)
    assert parents.check(float("inf"), STALE)
    assert not parents.check(float("inf"), 2 * STALE - 0.1)


def test_rule_r5_only_parent_stays() -> None:
    parents = Parents(["a"], CALM, 0.0)
    assert not parents.check(float("inf"), STALE)
    assert parents.current == "a"
    assert parents.next_time() == 2 * STALE


def test_rule_r5_parent_that_stops_names_the_next_one_among_the_replicas_own() -> None:
    parents = Parents(["a", "b", "c", "d"], CALM, 0.0)
    assert parents.leave(1.0, ("elsewhere", "d", "c"))
    assert parents.current == "c", "the first one in the replica's order"
    assert parents.leave(2.0, ("elsewhere", "c"))
    assert parents.current == "d", "an address that is not the replica's own is not used"
    parents.refuse("a", 3.0)
    assert parents.leave(4.0, ("a",))
    assert parents.current == "b", "the named one is excluded"


def test_rule_r6_parent_below_the_relay_is_not_chosen_for_a_while() -> None:
    parents = Parents(["a", "b", "c"], CALM, 0.0)
    assert parents.refuse("a", 0.0)
    assert parents.current == "b"
    assert not parents.refuse("c", 1.0), "it is not the current one"
    assert not parents.leave(STALE - 0.1), "no other one is left"
    assert parents.current == "b"
    assert parents.leave(STALE + 0.1)
    assert parents.current == "a", "the loop may have ended"
    assert parents.leave(STALE + 0.2)
    assert parents.current == "b"
    assert parents.leave(STALE + 1.0)
    assert parents.current == "c"


def test_rule_r6_stale_relay_tries_its_other_parent_again_after_the_time_of_one() -> None:
    parents = Parents(["a", "b"], CALM, 0.0)
    assert parents.check(STALE + 0.1, STALE)
    assert parents.refuse("b", STALE + 1.0)
    assert parents.next_time() == 2 * STALE + 1.0
    assert parents.check(2 * STALE, parents.next_time())
    assert parents.current == "b"


def test_caller_may_choose_or_leave_a_parent() -> None:
    parents = Parents(["a", "b", "c"], CALM, 0.0)
    parents.choose("c", 5.0)
    assert parents.current == "c"
    assert not parents.check(float("inf"), 5.0 + STALE - 0.1), "it has time to give a proof"
    assert parents.leave(6.0)
    assert parents.current == "a"
    assert not Parents(["a"], CALM, 0.0).leave(1.0)
