"""A session with a database that the test controls: the base class of the doubles in the tests beside it."""

import threading
from collections.abc import Callable

from _patience import longest

LONG = longest(60.0)


class SessionDouble:
    """Connects and waits only as the test lets it. ``changed`` guards the state and announces each change of it."""

    def __init__(self) -> None:
        self.counts = {"connections": 0, "lost_connections": 0}
        self.changed = threading.Condition()
        self.up = True
        """Whether the database accepts connections."""
        self.connected = False
        self.closed = False
        self._woken = False

    def open(self) -> None:
        pass

    def wake(self) -> None:
        self.change()

    def change(self, **values: object) -> None:
        """Set these attributes, and end a wait."""
        with self.changed:
            for name, value in values.items():
                setattr(self, name, value)
            self._woken = True
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def until(self, condition: Callable[[], object]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, LONG)
