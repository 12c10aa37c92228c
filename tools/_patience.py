"""How long a test waits for an event before it fails."""

import os

HURRY = "PUBSUB_TEST_HURRY"
"""The environment variable that ``tools/mutate`` sets while a mutant is planted."""


def longest(seconds: float) -> float:
    """The given time; a tenth of it while a mutant is planted.

    A mutant is often caught because an event never comes, so that its test waits for the longest time. Without a
    mutant the tests pass first with the full time, so that a busy machine cannot fail them.
    """
    return seconds / 10 if os.environ.get(HURRY) else seconds
