"""Types of options, for argparse."""

import argparse
import math


def seconds(text: str) -> float:
    """A number of seconds; raises ArgumentTypeError for what is none, as ``nan`` and ``inf`` are."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value
