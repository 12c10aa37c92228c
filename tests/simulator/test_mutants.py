"""Every bug of ``mutants.py`` is caught within 300 seeds, by an invariant and not by a crash."""

import random
import re
from pathlib import Path

import pytest

from simulator.run import run_seed
from tests.simulator.caught import CAUGHT
from tests.simulator.hunt import MAX_SEEDS, hunt
from tests.simulator.mutants import MUTANTS, infected

# The required bugs, and their mutants.
REQUIRED = {
    "links applied ahead of a missing one": ("ahead_of_hole",),
    "delta from the head of a hello": ("delta_from_hello",),
    "a delta answer that is behind known and used": ("behind_is_used",),
    "links applied while a full sync runs": ("applied_during_full",),
    "waiting links kept over a sync": ("waiting_kept",),
    "points compared by position only": ("tracker_by_position", "store_by_position"),
    "a hello's head, or a commit, compared by position only": ("same_position_is_known", "waits_by_position"),
    "a restore that is not overtaken": ("restore_behind",),
    "and one that is": ("restore_overtaken",),
    "a hello that is behind always treated as late": ("behind_is_late",),
    "a hello's proof counted before known reached its head": ("proof_too_early",),
    "staleness measured from arrival": ("staleness_from_arrival",),
    "hello replies requested only when idle": ("asked_when_idle",),
    "polling only when no hello reply is received": ("polled_when_silent",),
    "a reconnection without a hello request": ("reconnection_unasked",),
    "an idle publisher that sends a hello for each topic": ("hello_per_topic",),
    "a hello sent with the lock that numbers links": ("hello_inside_lock",),
    "the clock restarted by each waiting link": ("clock_restarted",),
    "and cleared when the first of two connects": ("clock_cleared",),
    "overflow that restarts the sync": ("overflow_restarts",),
    "a need during a sync forgotten": ("need_forgotten",),
    "known set to the snapshot's position instead of the topic's head": ("known_from_snapshot",),
    "a large link applied before its run is complete": ("half_a_run",),
    "an object that changed its topic left behind": ("moved_left_behind",),
    "≥ for > on points": ("delta_from_known_itself", "known_taken_for_new"),
    "retry of a COMMIT that had succeeded": ("commit_retried",),
    "count and digest of the head instead of the link's own": ("head_instead_of_link",),
    "handlers run twice after a sync": ("handlers_twice",),
    "handlers run again for the topics that are not dropped": ("handlers_twice_after_drop",),
    "a wait for a commit that does not end": ("wait_asks_nothing",),
    "a wait for a commit with a wrong answer": ("wait_by_known", "wait_unknown_by_known"),
    "an all-topics replica that misses a new topic's only message": ("new_topic_missed",),
    "a group commit that is not atomic": ("group_in_two", "group_lost_in_part"),
    "one failing work that takes its group with it": ("group_fails_together",),
    "wrong answers in a group": ("group_has_one_answer", "group_doubt_forgotten", "group_doubt_denied"),
    "links of a group published before they are durable": ("group_published_early",),
    "messages of another store": ("another_store_used", "another_store_waits", "another_store_published"),
    "wrong reads that the anchor does not end": ("lies_never_verified", "lies_not_rolled_back"),
    "a quarantine without effect or end": ("excluded_publisher_used", "liar_never_excluded", "excluded_for_ever"),
    "a lying worker that is used": ("excluded_worker_used", "lying_worker_never_excluded", "unconfirmed_worker_used"),
    # A replica that reads the directory rejects a publisher of another store by the lease alone.
    "the store's id not compared": ("another_store_used", "lies_of_another_store_published"),
    "links without a lease": ("unleased_link_used", "unleased_link_lost", "unleased_link_dropped_early"),
    "a full sync for each lie": ("false_digests_without_pause", "lie_costs_all_objects"),
    "a group that is not numbered in the order of its queue": ("group_reversed",),
    "an answer or a hello of a relay without its age": ("answer_without_age", "relay_without_age"),
    "an answer that shows another history": ("history_of_answers_ignored",),
    "older knowledge for newer": ("older_full_answer_used", "older_delta_used"),
    "a relay that sends on what it has not applied": ("sent_before_applied",),
    "links that do not come through a relay": (
        "relay_sends_nothing", "relay_skips_topics", "relay_mute_after_move", "links_of_relays_ignored",
    ),
    "a relay that does not greet": ("relay_sends_no_greeting",),
    "a relay that calls an unknown topic empty": ("empty_for_unknown",),
    "a relay that answers what it is about to replace": ("served_while_frozen",),
    "what was received since an older answer": ("received_since_forgotten",),
    "the begin of a delta that is used as another one": ("begin_forgets", "begin_up_to_any_head"),
    "relays in a loop": ("loops_stay",),
    "a parent that is cut off and stays": ("parent_never_left",),
}


def test_required_mutants_exist() -> None:
    assert len(MUTANTS) >= 25
    required = [name for names in REQUIRED.values() for name in names]
    assert [name for name in required if name not in MUTANTS] == []
    assert list(CAUGHT) == list(MUTANTS), "run python -m tests.simulator.hunt"


NOT_SEEN = {
    "forward": "`history notice` is checked before, and sees the same unless the changelog was trimmed",
    "verified": "`fresh` is checked before: a reading that comes late also makes the replica stale",
}
"""The invariants that no mutant breaks first."""
NAMED = re.compile(r'(?:Violation\(|_demand\(|yield )"([a-z ]+)"')


def test_every_invariant_is_broken_by_a_mutant() -> None:
    sources = [path.read_text() for path in (Path(__file__).parents[2] / "simulator").glob("*.py")]
    named = {name for source in sources for name in NAMED.findall(source)}
    assert len(named) > 50
    assert named - {each.invariant for each in CAUGHT.values()} == {*NOT_SEEN}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name: str) -> None:
    result = hunt(name, CAUGHT[name].seed)
    assert result is not None, f"{name} ({MUTANTS[name].wrong}) is not caught within {MAX_SEEDS} seeds"
    if result.seed == CAUGHT[name].seed:
        assert result.invariant == CAUGHT[name].invariant, "run python -m tests.simulator.hunt"
    print(f"{name}: caught at seed {result.seed} by {result.invariant!r}: {result.what[:200]}")


@pytest.mark.long
def test_mutants_are_removed_after_the_block(rng: random.Random) -> None:
    for name in rng.sample(list(MUTANTS), 5):
        with infected(name):
            pass
        seed = CAUGHT[name].seed
        assert run_seed(seed, MUTANTS[name].cuts).invariant == "", (name, seed)
