"""The order of the tests in parallel processes."""

from _spread import spread
from hypothesis import given
from hypothesis import strategies as st


def parts(tests: list[int], workers: int) -> list[list[int]]:
    """As ``--dist worksteal`` splits a list at first."""
    found, begin = [], 0
    for number in range(workers):
        size = (len(tests) - begin) // (workers - number)
        found.append(tests[begin : begin + size])
        begin += size
    return found


def test_each_process_but_the_first_begins_with_its_share() -> None:
    first, *others = parts(spread(range(100), lambda test: test >= 91, 4), 4)
    assert first == list(range(25))
    assert [each[:4] for each in others] == [[91, 94, 97, 25], [92, 95, 98, 47], [93, 96, 99, 69]]


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 8))
def test_no_test_is_lost_and_short_ones_keep_their_order(tests: list[int], workers: int) -> None:
    ordered = spread(tests, lambda test: test > 7, workers)
    assert sorted(ordered) == sorted(tests)
    assert [each for each in ordered if each <= 7] == [each for each in tests if each <= 7]
