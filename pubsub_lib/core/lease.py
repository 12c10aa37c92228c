"""A lease from its holder's side (Gray and Cheriton, "Leases", SOSP 1989).

The database decides by its own clock which process holds a lease. The holder may act only while it is certain: for the
lease time *from its request*, on its own clock. That ends before the database's grant, however long the answer took.
"""

NEVER_YET = float("-inf")
RENEWALS_PER_LEASE = 3
"""Renewals per lease time: two consecutive renewals may fail."""


class Lease:
    """One lease of one holder. Sans-I/O, not thread-safe. ``seconds``: duration of the database's grant."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._until = NEVER_YET
        self._ask_at = now

    def held(self, now: float) -> bool:
        """True while it is certain that no other process holds the lease. Check right before every act under it."""
        return now < self._until

    def due(self, now: float) -> bool:
        """True when the lease should be requested or renewed."""
        return now >= self._ask_at

    def asked(self, now: float) -> None:
        """The request to the database is sent now."""
        self._ask_at = now + self._seconds / RENEWALS_PER_LEASE

    def granted(self, asked: float) -> None:
        """The database granted the lease on the request sent at ``asked``."""
        self._until = max(self._until, asked + self._seconds)

    def refused(self) -> None:
        """Another process holds the lease."""
        self._until = NEVER_YET

    def next_time(self) -> float:
        """When ``due`` will next be true."""
        return self._ask_at
