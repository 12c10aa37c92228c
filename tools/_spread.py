"""The order in which parallel test processes run the tests."""

from collections.abc import Callable, Sequence
from itertools import groupby, islice
from typing import TypeVar

Test = TypeVar("Test")


def spread(tests: Sequence[Test], long: Callable[[Test], object], workers: int) -> list[Test]:
    """The tests in an order in which each process but the first begins with its share of the long ones.

    ``long`` is the group of a long test, and None for a short one. The tests of a group stay together.
    A group goes to the process with the fewest long tests.

    ``--dist worksteal`` gives each process an equal part of the list, in order. A process that has run its part takes
    tests from the end of another's part, so the longest tests must not stand there. The first process has the tests of
    Spark, which are long too.
    """
    if workers < 2:
        return list(tests)
    groups: dict[object, list[Test]] = {}
    short: list[Test] = []
    for each in tests:
        group = long(each)
        (short if group is None else groups.setdefault(group, [])).append(each)
    shares: list[list[Test]] = [[] for _ in range(workers)]
    for of_group in groups.values():
        least = min(shares[1:], key=len)
        least += of_group
    rest = iter(short)
    ordered: list[Test] = []
    left = len(tests)
    for number, share in enumerate(shares):
        size = left // (workers - number)
        left -= size
        ordered += share
        ordered += islice(rest, max(0, size - len(share)))
    return [*ordered, *rest]


def mixed(tests: Sequence[Test], module: Callable[[Test], object], waits: Callable[[Test], bool]) -> list[Test]:
    """The tests in an order in which the modules that wait for other processes are evenly among those that compute.

    Parallel processes that all wait leave the processors idle. The tests of a module stay together, because they share
    what is started for the module.
    """
    modules = [list(each) for _, each in groupby(tests, module)]
    waiting = [each for each in modules if waits(each[0])]
    computing = [each for each in modules if not waits(each[0])]
    places = [*_places(waiting), *_places(computing)]
    return [test for _, each in sorted(zip(places, [*waiting, *computing], strict=True), key=_place) for test in each]


def _places(modules: Sequence[Sequence[Test]]) -> list[float]:
    """For each module the part of all tests, from 0 to 1, that precedes its middle."""
    total, before, places = sum(map(len, modules)), 0, []
    for each in modules:
        places.append((before + len(each) / 2) / total)
        before += len(each)
    return places


def _place(pair: tuple[float, object]) -> float:
    return pair[0]
