"""The client library's parser of the protocol, for subjects with control characters."""

from typing import Final

from nats.protocol.parser import AWAITING_CONTROL_LINE, CRLF_SIZE, Parser

_NO_SPACES: Final = bytes.maketrans(b"\v\f", b"??")


class SubjectParser(Parser):
    """The base class takes vertical tabs and form feeds for ends of words. NATS servers do not, so that any client may
    publish subjects with them: the base class would end the connection, or report another subject than the server has
    checked. Here they become question marks, which no topic's token has. In data they stay: so the base class gets one
    line, or a part of one message's data, at a time.
    """

    def reset(self) -> None:
        """Forget what was received."""
        super().reset()
        self._rest = bytearray()

    async def parse(self, data: bytes = b"") -> None:
        """Handle what was received."""
        self._rest += data
        while part := self._next():
            await super().parse(part)

    def _next(self) -> bytes:
        """Take a complete line, or what there is of the data that is awaited; empty when there is none."""
        if self.state == AWAITING_CONTROL_LINE:
            end = self._rest.find(b"\n") + 1
            part = self._rest[:end].translate(_NO_SPACES)
        else:
            end = self.needed + CRLF_SIZE - len(self.buf)
            part = self._rest[:end]
        del self._rest[:end]
        return bytes(part)
