"""Types of an HTTP endpoint's routes, and the header of its POST requests. In their own module, because the endpoint
needs the extra ``metrics``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

POST_HEADER: Final = "Pubsub-Request"
"""A header that every POST request must have. No form of a web page can send it, and scripts of other sites would need
a permission that the endpoint never gives."""

Query = Mapping[str, Sequence[str]]
Answered = tuple[int, bytes, str]
Route = Callable[[Query], Answered]
"""From a request's parameters to status, body and content type. Any thread."""


class Streamed(NamedTuple):
    """An answer that is sent part by part, until the end of the connection."""

    status: int
    kind: str
    """The content type."""
    parts: Iterator[bytes]
    headers: Mapping[str, str]


class Body(Protocol):
    """The body of a request, which was not received yet. One of the two methods is called."""

    def read(self) -> bytes:
        """Receive the body. Raises ConnectionError when it ends too early, TimeoutError."""

    def skip(self) -> None:
        """Receive the body without keeping it: else the client would send, and not read the answer."""


class Streaming(Protocol):
    """A route with a large body or answer. Unlike other POST routes it is open to other hosts, as far as the endpoint's
    address is, and has its own bound on requests at the same time instead of pauses. Any thread.
    """

    @property
    def max_body_bytes(self) -> int:
        """Maximum size of a request's body."""

    @property
    def max_seconds(self) -> float:
        """Maximum seconds from the end of a request's headers until the client has taken the whole answer: to receive
        the body, to make the answer and to send it.
        """

    def serve(self, body: Body, *, gzip: bool) -> AbstractContextManager[Streamed]:
        """The answer to a request, which is sent within the block. ``gzip``: the client reads compressed bytes."""
