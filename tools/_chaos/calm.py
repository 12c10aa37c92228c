"""The calm phase after the last fault: each worker must commit again, and each replica must receive messages of each
sender again. No I/O.

A replica whose subscription is lost for good still gets every change from the database, and then equals the store. So
only this phase shows that the transport recovered.
"""

from collections.abc import Collection
from typing import Final

from _chaos.messages import Followed, Message, Wrote

CALM: Final = 60.0
"""Maximum number of seconds of the phase. Processes start again, connect, and wait for pauses of reconnections."""


class Calm:
    """What is still missing. Only reports of the phase count, and each process is compared with its own first one."""

    def __init__(self, senders: Collection[str], workers: Collection[str], receiving: Collection[str]) -> None:
        """``senders``: of messages, in general the services. ``receiving``: the replicas that receive messages, which
        are all that do not poll by design.
        """
        self._senders = tuple(senders)
        self._receiving = tuple(receiving)
        self._idle = dict.fromkeys(workers)
        """Workers that committed nothing."""
        self._silent = {name: set(senders) for name in receiving}
        """For each replica the senders of which no message came."""
        self._polling = dict.fromkeys(receiving, True)
        self._first: dict[tuple[str, int], Message] = {}

    def note(self, name: str, start: int, message: Message) -> None:
        """Note a report. ``start``: the number of the process."""
        if not isinstance(message, Wrote | Followed):
            return
        first = self._first.setdefault((name, start), message)
        match first, message:
            case Wrote(), Wrote() if message.done > first.done:
                self._idle.pop(name, None)
            case Followed(), Followed() if name in self._silent:
                self._polling[name] = message.polling
                self._silent[name] -= {
                    each for each in self._senders if message.messages.get(each, 0) > first.messages.get(each, 0)
                }

    def problems(self) -> list[str]:
        """A sentence for each participant that does not work again; empty: all of them do."""
        found = [f"{name} committed nothing after the last fault" for name in self._idle]
        for name in self._receiving:
            found += [
                f"{name} received no message of {each} after the last fault" for each in sorted(self._silent[name])
            ]
            if self._polling[name]:
                found.append(f"{name} still polls the database after the last fault")
        return found
