"""What an HTTP endpoint is given to answer with. Apart from the endpoint, which needs the extra ``metrics``."""

from collections.abc import Callable, Mapping, Sequence

Query = Mapping[str, Sequence[str]]
Answered = tuple[int, bytes, str]
Route = Callable[[Query], Answered]
"""From a question's parameters to status, body and kind. Any thread."""
