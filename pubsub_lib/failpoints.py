"""Named places where a test can kill, stop or fail a process: ``PUBSUB_LIB_FAILPOINT=writer.after_counter=kill@3``.

Several are separated by commas. ``@n`` means the n-th time that the place is reached (default: the first); the place
acts only once. Actions: ``kill`` (SIGKILL to the own process), ``stop`` (SIGSTOP) and ``raise``
(:class:`FailpointReached`). The variable is read once, at import; without it :func:`hit` is one comparison, and on the
path of each commit not even called (``if armed: hit(...)``).
"""

import os
import signal
import threading
from typing import Final

from pubsub_lib.errors import ConfigError, PubSubError

VARIABLE: Final = "PUBSUB_LIB_FAILPOINT"
ACTIONS: Final = frozenset({"kill", "stop", "raise"})
NAMES: Final = frozenset(
    {
        "writer.after_lock",
        "writer.after_counter",
        "writer.before_commit",
        "writer.after_commit",
        "sync.during_snapshot",
        "sync.during_delta",
        "service.before_receive",
        "service.after_receive",
        "service.before_send",
        "service.after_send",
        "service.after_prepared",
        "service.before_answer",
        "service.while_following",
        "service.while_taking_over",
        "worker.after_push",
        "replica.in_handler",
        "follower.before_window",
        "lake.before_ready",
        "lake.before_move",
    }
)


class FailpointReached(PubSubError):
    """Raised by the action ``raise``, in tests only."""


class Armed:
    """One armed place: counts down to its hit, then acts once."""

    def __init__(self, action: str, countdown: int) -> None:
        self.action = action
        self.countdown = countdown

    def reached(self, name: str) -> None:
        """Count one passage and act on the last. Not for concurrent threads at the same place."""
        self.countdown -= 1
        if self.countdown != 0:
            return
        if self.action == "raise":
            raise FailpointReached(f"the failpoint {name} was reached")
        # To this thread: a signal to the process may reach another thread first, and this one runs on meanwhile.
        signal.pthread_kill(threading.get_ident(), signal.SIGKILL if self.action == "kill" else signal.SIGSTOP)


def parse(text: str) -> dict[str, Armed]:
    """The armed places that the variable's text names. Raises ConfigError for an unknown name, action or count."""
    armed: dict[str, Armed] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = part.partition("=")
        action, _, times = rest.partition("@")
        if name not in NAMES:
            raise ConfigError(f"{VARIABLE} names an unknown failpoint {name!r}; use one of {', '.join(sorted(NAMES))}")
        if action not in ACTIONS:
            known = ", ".join(sorted(ACTIONS))
            raise ConfigError(f"{VARIABLE} gives {name} the unknown action {action!r}; use one of {known}")
        if times and not (times.isdecimal() and int(times) > 0):
            raise ConfigError(f"{VARIABLE} gives {name} the count {times!r}; give a number from 1")
        armed[name] = Armed(action, int(times or 1))
    return armed


armed: Final = parse(os.environ.get(VARIABLE, ""))
"""The armed places by name; empty without the variable."""


def hit(name: str) -> None:
    """Run the action that the variable sets for this place, if any. Raises FailpointReached for ``raise``."""
    if armed and name in armed:
        armed[name].reached(name)
