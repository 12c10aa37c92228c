"""Types of options, for argparse."""

import argparse
import math
from datetime import UTC, datetime, timedelta
from typing import Final

from pubsub_lib.audit.settings import SECOND

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def seconds(text: str) -> float:
    """A number of seconds. Raises ArgumentTypeError for any other text, also for ``nan`` and ``inf``."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value * SECOND):  # 1e308 is a number, but its microseconds overflow
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def moment(text: str) -> int:
    """A time in ISO 8601, in UTC unless it has an offset, as microseconds since 1970. Raises ArgumentTypeError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-11-26T09:30:00.250Z") from None
    return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def positive(text: str) -> int:
    """A whole number from 1 on. Raises ArgumentTypeError."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number
