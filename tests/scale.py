"""The number of generated cases in one run of the tests. ``tools/test --all`` has four times as many."""

import os
from typing import Final

from _scale import SCALE_VARIABLE


def scaled(number: int, own: str = "") -> int:
    """``number`` times PUBSUB_TEST_SCALE. ``own``: the environment variable that sets this number alone."""
    if own in os.environ:
        return int(os.environ[own])
    return number * int(os.environ.get(SCALE_VARIABLE, "1"))


QUICK: Final = scaled(1) == 1
"""Whether this is a quick run, without more cases."""
