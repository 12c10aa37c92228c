"""Types of an HTTP endpoint's routes. In their own module, because the endpoint needs the extra ``metrics``."""

from collections.abc import Callable, Mapping, Sequence

Query = Mapping[str, Sequence[str]]
Answered = tuple[int, bytes, str]
Route = Callable[[Query], Answered]
"""From a request's parameters to status, body and content type. Any thread."""
