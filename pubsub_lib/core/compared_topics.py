"""The topics that a replica of everything names in its hello requests: their heads in the replies carry digests."""

from collections.abc import Callable
from typing import Final

from pubsub_lib.core.request_portions import cut

MAX_COMPARED: Final = 100
"""Maximum number of topics in each hello request of a replica of everything."""


class ComparedTopics:
    """Takes all topics in turn, some for each request. Not thread-safe."""

    def __init__(self) -> None:
        self._left: list[str] = []
        """Those that no request of this round has named."""

    def next(self, topics: Callable[[], list[str]]) -> tuple[str, ...]:
        """The topics of the next request: as many as one request holds. ``topics``: all that the replica has now;
        called at the begin of a round.
        """
        if not self._left:
            self._left = topics()
        portion = next(cut(self._left[-MAX_COMPARED:][::-1]), ())
        del self._left[len(self._left) - len(portion) :]
        return portion
