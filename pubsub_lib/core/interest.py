"""Number of users of each followed topic. A topic is dropped with its last user."""

from collections.abc import Collection


class Interest:
    """Counts the users of topics. Not thread-safe: the caller holds one lock around every call; no call blocks."""

    def __init__(self) -> None:
        self._users: dict[str, int] = {}

    def without_users(self, topics: Collection[str]) -> tuple[str, ...]:
        """The topics without users, each once, in their order."""
        return tuple(topic for topic in dict.fromkeys(topics) if topic not in self._users)

    def add(self, topics: Collection[str]) -> None:
        """Add one user to each of these topics; a topic that is named twice in one call counts once."""
        for topic in dict.fromkeys(topics):
            self._users[topic] = self._users.get(topic, 0) + 1

    def leave(self, topic: str) -> int:
        """Remove one user of the topic. Returns the number of users left; 0 also for a topic that had none."""
        left = self._users.pop(topic, 1) - 1
        if left:
            self._users[topic] = left
        return left
