"""Types of an HTTP endpoint's routes, and the header of its POST requests. In their own module, because the endpoint
needs the extra ``metrics``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

POST_HEADER: Final = "Pubsub-Request"
"""A header that every POST request must have. No form of a web page can send it, and scripts of other sites would need
a permission that the endpoint never gives."""

Query = Mapping[str, Sequence[str]]
Answered = tuple[int, bytes, str]
Route = Callable[[Query], Answered]
"""From a request's parameters to status, body and content type. Any thread."""
