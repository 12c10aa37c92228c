"""The order of the tests in parallel processes."""

from itertools import groupby

from _spread import mixed, spread
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
    first, *others = parts(spread(range(100), lambda test: test if test >= 91 else None, 4), 4)
    assert first == list(range(25))
    assert [each[:4] for each in others] == [[91, 94, 97, 25], [92, 95, 98, 47], [93, 96, 99, 69]]


def test_long_tests_of_a_group_are_in_one_process() -> None:
    groups = {7: "a", 8: "b", 50: "a", 60: "c", 61: "c", 99: "b"}
    _, *others = parts(spread(range(100), groups.get, 4), 4)
    assert [each[:3] for each in others] == [[7, 50, 27], [8, 99, 51], [60, 61, 76]]


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 8))
def test_no_test_is_lost_and_short_ones_keep_their_order(tests: list[int], workers: int) -> None:
    ordered = spread(tests, lambda test: test if test > 7 else None, workers)
    assert sorted(ordered) == sorted(tests)
    assert [each for each in ordered if each <= 7] == [each for each in tests if each <= 7]


def test_modules_that_wait_are_evenly_among_the_others() -> None:
    tests = [(module, number) for module in "WXYZ" for number in range(2)]
    tests += [(module, number) for module in "abcdefgh" for number in range(5)]
    ordered = mixed(tests, lambda test: test[0], lambda test: test[0].isupper())
    assert [test[0] for test in ordered if test[1] == 0] == list("aWbcXdeYfgZh")


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=60))
def test_tests_of_a_module_stay_together_and_in_order(given: list[tuple[int, bool]]) -> None:
    tests = [(number, module, module > 3) for number, (module, _) in enumerate(sorted(given))]
    ordered = mixed(tests, lambda test: test[1], lambda test: test[2])
    assert sorted(ordered) == tests
    modules = [module for module, _ in groupby(ordered, lambda test: test[1])]
    assert len(modules) == len(set(modules))
    assert [test for each in sorted(set(modules)) for test in ordered if test[1] == each] == tests
