"""What publishers and workers need of a store."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from pubsub_lib.core.model import Heads, Link


class PublishedStore(Protocol):
    """The methods of a store that a publisher needs."""

    @property
    def store_id(self) -> bytes:
        """The id of the store, as it was last read or written."""

    def read_heads(self, topics: Collection[str]) -> Heads:
        """The heads in one consistent reading. Blocks; raises PubSubError: StoreError, ConfigError when the database
        refuses the login or a right, ClosedError.
        """

    def on_commit(self, callback: Callable[[Sequence[Link]], None]) -> Callable[[], None]:
        """Call back with the links of every commit, in the writer's thread. Returns a function that stops the calls."""


class CommittingStore(Protocol):
    """What a worker needs of a store."""

    @property
    def store_id(self) -> bytes:
        """The id of the store, as it was last read or written."""

    def on_commit(
        self, callback: Callable[[Sequence[Link]], None], *, after_fork: bool = False, unless_published: bool = False
    ) -> Callable[[], None]:
        """Call back with the links of every commit, in the writer's thread. Returns a function that stops the calls."""
