"""The wait before the next attempt: it doubles with each failure."""


def doubled(first: float, failures: int, maximum: float) -> float:
    """``first`` seconds, doubled for each of these failures; at most ``maximum`` seconds."""
    # The exponent is bounded because 2.0**1024 overflows after a long outage.
    return min(first * 2.0 ** min(failures, 60), maximum)
