"""Holding a lease, seen from its holder (Gray and Cheriton, "Leases", SOSP 1989).

The database decides by its own clock who holds a lease. The holder may act only while it is certain: for the lease
time *from when it asked*, on its own clock, which ends before the database's grant does however long the answer took.
"""

NEVER_YET = float("-inf")
RENEWALS_PER_LEASE = 3
"""A lease is renewed so often that two renewals in a row may fail."""


class Lease:
    """One lease of one holder. Sans-I/O, not thread-safe. ``seconds``: how long the database grants it for."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._until = NEVER_YET
        self._ask_at = now

    def held(self, now: float) -> bool:
        """True while it is certain that nobody else holds it. Ask again right before every act under the lease."""
        return now < self._until

    def due(self, now: float) -> bool:
        """True when it should be asked for, or renewed."""
        return now >= self._ask_at

    def asked(self, now: float) -> None:
        """The database is being asked now."""
        self._ask_at = now + self._seconds / RENEWALS_PER_LEASE

    def granted(self, asked: float) -> None:
        """The database granted it to the question sent at ``asked``."""
        self._until = max(self._until, asked + self._seconds)

    def refused(self) -> None:
        """Somebody else holds it."""
        self._until = NEVER_YET

    def next_time(self) -> float:
        """When ``due`` will next be true."""
        return self._ask_at
