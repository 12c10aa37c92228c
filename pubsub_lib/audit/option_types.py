"""Types of options, for argparse."""

import argparse
import math

from pubsub_lib.audit.settings import SECOND


def seconds(text: str) -> float:
    """A number of seconds. Raises ArgumentTypeError for any other text, also for ``nan`` and ``inf``."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value * SECOND):  # 1e308 is a number, but its microseconds overflow
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value
