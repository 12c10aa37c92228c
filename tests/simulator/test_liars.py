"""Runs with publishers and workers that lie (rules 14 and 15): no lie is believed for longer than stated."""

import io

from simulator.command import main
from simulator.kernel import Kernel, LocalClock, Process
from simulator.liar_plan import LIES
from simulator.plan import Cuts, draw
from simulator.run import run_seed
from tests.scale import scaled

LIARS = Cuts(liars=True)


def test_seeds_with_liars_have_no_violation() -> None:
    out = io.StringIO()
    seeds = scaled(12)
    status = main(["--seeds", str(seeds), "--jobs", "1", "--liars"], out)
    print(out.getvalue())
    assert status == 0
    table = {line[:22].strip(): line[22:].split() for line in out.getvalue().splitlines()}
    assert [lie for lie in LIES if int(table[lie][0]) < (10 if seeds >= 40 else 3)] == []


def test_plan_with_liars_differs_only_in_liars_and_duration() -> None:
    for seed in range(40):
        plain, lying = draw(seed), draw(seed, LIARS)
        assert lying.liars
        assert (plain.faults, plain.topics, plain.replicas, plain.ops) == (
            lying.faults, lying.topics, lying.replicas, lying.ops
        )  # fmt: skip
        assert plain.liars == ()


def test_lies_can_be_left_out() -> None:
    for seed in range(40):
        assert draw(seed, Cuts(without=LIES, liars=True)).liars == ()


def test_same_seed_with_liars_gives_the_same_trace() -> None:
    for seed in (3, 4, 5):
        assert run_seed(seed, LIARS, tracing=True).trace_hash == run_seed(seed, LIARS, tracing=True).trace_hash


def test_database_that_is_down_while_no_replica_runs_delays_the_judgement_of_workers() -> None:
    """The only replica was killed until the database worked again."""
    assert run_seed(93002082, LIARS).what == ""


def test_link_after_an_altered_one_excludes_no_honest_publisher() -> None:
    """A liar alters a transaction, a true link shows it, and a further one sets the object again. Two restores."""
    assert run_seed(93002699, LIARS).what == ""


def test_bounds_count_the_time_in_which_a_replica_runs() -> None:
    """A replica was paused, ran for 0.1 s, and was paused again: it could not have the changes of these 10 s."""
    assert run_seed(92200662, LIARS).what == ""
    kernel = Kernel(0)
    process = Process(kernel, "replica", "replica0", LocalClock(kernel, 0.0, 1.0))
    for begin, seconds in ((2.0, 3.0), (6.0, 1.0)):
        kernel.at(begin, process.pause, seconds)
    kernel.run(10.0)
    found = [process.since(seconds) for seconds in (0.0, 2.0, 3.0, 3.5, 4.0, 4.5, 6.0)]
    assert found == [10.0, 8.0, 7.0, 5.5, 5.0, 1.5, 0.0]
