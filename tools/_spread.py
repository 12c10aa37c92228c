"""The order in which parallel test processes run the tests."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeVar

Test = TypeVar("Test")


def spread(tests: Sequence[Test], is_long: Callable[[Test], bool], workers: int) -> list[Test]:
    """The tests in an order in which each process but the first begins with its share of the long ones.

    ``--dist worksteal`` gives each process an equal part of the list, in order. A process that has run its part takes
    tests from the end of another's part, so the longest tests must not stand there. The first process has the tests of
    Spark, which are long too.
    """
    if workers < 2:
        return list(tests)
    long = [each for each in tests if is_long(each)]
    short = iter([each for each in tests if not is_long(each)])
    ordered: list[Test] = []
    left = len(tests)
    for number in range(workers):
        size = left // (workers - number)
        left -= size
        share = long[number - 1 :: workers - 1] if number else []
        ordered += share
        ordered += islice(short, max(0, size - len(share)))
    return [*ordered, *short]
