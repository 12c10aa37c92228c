"""The table of hops: of the traces that agree, without what depends on time or on the version of Python."""

import re

import pytest
from _measurements.trace import Step, Trace
from generate_hops import PAGE, hops, listed, most_frequent

MAX_MOVES = 55


def trace(*writer: Step) -> Trace:
    """A trace with these steps of the writer, and one step of each other thread."""
    return Trace([writer, [Step("drivers/receiver.py", ("drain",))], [Step("pubsub_lib/handlers.py", ("handle",))]])


ONE = trace(Step("pubsub_lib/a.py", ("f", "f", "<lambda>")), Step("pubsub_lib/b.py", ("g",)))


def test_comprehension_between_two_steps_of_a_file_is_no_hop() -> None:
    steps = [Step("a.py", ("f",)), Step("b.py", ("<listcomp>",)), Step("a.py", ("f", "h"))]
    assert hops(Trace([steps])) == ((("a.py", ("f", "h")),),)


def test_hops_of_most_traces_are_chosen() -> None:
    with_a_timer = trace(Step("pubsub_lib/a.py", ("f",)), Step("pubsub_lib/timer.py", ("tick",)))
    assert most_frequent([with_a_timer, ONE, ONE]) == hops(ONE)


def test_thread_that_looks_at_the_sending_thread_is_no_part_of_a_set() -> None:
    slow = Trace([*ONE.threads, [Step("drivers/pubsub_zmq/inflow_guard.py", ("run",))]])
    assert hops(slow) == hops(ONE)


def test_turn_in_which_the_receiver_looks_at_its_connections_is_no_part_of_a_set() -> None:
    turn = (Step("drivers/receiver.py", ("_drain", "_keep_up")), Step("drivers/pubsub_zmq/arrivals.py", ("look",)))
    message = Step("drivers/receiver.py", ("_drain", "wants"))
    assert hops(Trace([[*turn, message, *turn]])) == hops(Trace([[message]]))


def test_another_number_of_threads_is_named() -> None:
    with pytest.raises(ValueError, match="2 threads, not on writer, receiver, handler"):
        most_frequent([Trace(ONE.threads[:2])])


def test_table_has_one_row_for_each_step() -> None:
    assert listed(hops(ONE)) == (
        "1 moves between 4 files:\n\n| thread | file | functions |\n|---|---|---|\n| writer | `a.py` | `f` |\n"
        "| writer | `b.py` | `g` |\n| receiver | `drivers/receiver.py` | `drain` |\n"
        "| handler | `handlers.py` | `handle` |\n"
    )


def test_one_set_moves_between_files_at_most_55_times() -> None:
    """``tools/generate_hops.py`` writes the number; a stale one fails in test_project.py."""
    found = re.search(r"^(\d+) moves between \d+ files:$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, "run tools/generate_hops.py"
    assert int(found[1]) <= MAX_MOVES
