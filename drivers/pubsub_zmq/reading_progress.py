"""What a publisher's sending thread has read of its clients' messages, for the thread that watches the connections."""

from collections import Counter
from typing import Final

FRAMING: Final = 12
"""Bytes that ZMTP 3.1 needs for a subscription beside its prefix: the frame's header of 2, and the command's name."""
LEAST_FRAMING: Final = 3
"""Bytes that ZMTP 3.0 needs beside it: the frame's header, and one that distinguishes a subscription from its end."""
KEYED_FRAMING: Final = FRAMING + 52
"""With keys: also CURVE's header, nonce and authenticator."""


class ReadingProgress:
    """The sending thread writes, the guard's thread reads. Single entries, so no lock is needed."""

    def __init__(self, framing: int = FRAMING) -> None:
        """``framing``: bytes that a message needs in the connection beside its content, at most."""
        self._framing = framing
        self.emptied = 0
        """How often the thread found that nothing waits: until then, all that ZeroMQ had passed on was read."""
        self.total = 0
        """Bytes of all messages, as the connections brought them at least."""
        self._bytes = Counter[int]()
        self._emptied_before: dict[int, int] = {}

    def read(self, descriptor: int | None, size: int) -> None:
        """The thread read a message of this size from a connection; None: ZeroMQ made it for one that had ended."""
        if descriptor is not None:
            self.total += size + LEAST_FRAMING
            self._bytes[descriptor] += size + self._framing
            self._emptied_before[descriptor] = self.emptied

    def found_empty(self) -> None:
        """Nothing waits now."""
        self.emptied += 1

    def bytes_of(self, descriptor: int) -> int:
        """Bytes of the messages of all connections that have had this descriptor until now, at most."""
        return self._bytes[descriptor]

    def last_of(self, descriptor: int) -> int:
        """The value of ``emptied`` when the last message of this descriptor was read; -1 without one."""
        return self._emptied_before.get(descriptor, -1)
