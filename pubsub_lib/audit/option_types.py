"""Types of options, for argparse."""

import argparse
import math

from pubsub_lib.audit.settings import SECOND


def seconds(text: str) -> float:
    """A number of seconds; raises ArgumentTypeError for what is none, as ``nan`` and ``inf`` are."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value * SECOND):  # 1e308 is a number, and its microseconds are none
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value
