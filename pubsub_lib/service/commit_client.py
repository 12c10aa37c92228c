"""One connection of a worker to the service that commits for it: its messages in both directions."""

import socket
from typing import Final

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import FrameError
from pubsub_lib.service.request_checks import check_request
from pubsub_lib.store import host_messages
from pubsub_lib.store.group_commit import Attempt
from pubsub_lib.store.host_messages import Declined, Frames, Hello, Refused, Welcome
from pubsub_lib.store.links import Commit
from pubsub_lib.store.writer import Work

SEND_WAIT: Final = 0.1
"""Maximum seconds to send a message. A worker that is stopped, with a full buffer, holds up a group for this time."""
_CHUNK: Final = 64 * 1024


class CommitClient:
    """Used by the server's thread only. A request waits for its answer before the next one is received."""

    def __init__(self, connection: socket.socket, own: Hello) -> None:
        """``own``: the first message that this service accepts."""
        connection.settimeout(SEND_WAIT)
        self.socket = connection
        self.closed = False
        """Whether no message can be sent any more."""
        self.refused = False
        """Whether it is closed because it is a worker of another kind."""
        self._own = own
        self._limits = Limits(**own.limits)
        self._frames = Frames(host_messages.MAX_REQUEST)
        self._greeted = False
        self._waits = False

    def receive(self) -> Work | None:
        """Read once; the transaction of a request that is complete. Raises FrameError."""
        try:
            data = self.socket.recv(_CHUNK)
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return None
        found: Work | None = None
        for body in self._frames.feed(data):
            message = host_messages.decode_request(body)
            if isinstance(message, Hello):
                self._greet(message)
            elif not self._greeted or self._waits:
                raise FrameError("a request was not expected here", "foreign")
            else:
                found = host_messages.work_of(message)
                check_request(found, self._limits)
                self._waits = True
        return found

    def prepare(self, commit: Commit) -> bool:
        """Send the point and links before the COMMIT. False: the worker is gone, or they are too large to send, and the
        transaction must not be committed.
        """
        frame = host_messages.encode(host_messages.prepared_of(commit))
        if len(frame) > host_messages.MAX_REPLY:
            self._answer(host_messages.encode(Declined()))
            return False
        return self._send(frame)

    def finish(self, attempt: Attempt, published: bool = False) -> None:
        """Send the result. ``published``: the service publishes the links."""
        self._answer(host_messages.encode(host_messages.finished_of(attempt, published)))

    def close(self) -> None:
        """Close. Idempotent."""
        self.closed = True
        self.socket.close()

    def _greet(self, given: Hello) -> None:
        if self._greeted:
            raise FrameError("a second greeting was not expected", "foreign")
        reason = host_messages.refusal(given, self._own)
        self._greeted = not reason
        self._send(host_messages.encode(Refused(reason) if reason else Welcome()))
        if reason:
            self.closed = self.refused = True

    def _answer(self, frame: bytes) -> None:
        self._waits = False
        self._send(frame)

    def _send(self, frame: bytes) -> bool:
        try:
            self.socket.sendall(frame, socket.MSG_NOSIGNAL)
        except OSError:
            # A part may be sent: no further message may follow it.
            self.closed = True
            return False
        return True
