"""What waits together is delivered together: fewer calls, and larger frames behind them."""

from collections.abc import Iterator

from pubsub_lib.core.envelope import Envelope, Message


class _Group:
    """Consecutive messages of one worker on one topic."""

    __slots__ = ("first", "messages")

    def __init__(self, first: Envelope) -> None:
        self.first = first
        self.messages: list[Message] = list(first.messages)

    def continued_by(self, envelope: Envelope) -> bool:
        return envelope.sequence == self.first.sequence + len(self.messages)


class Batch:
    """Messages of many workers, come in turns; out come envelopes with each worker's consecutive ones on a topic.

    The order of one worker's messages on one topic stays; that between topics and workers means nothing to a receiver.
    """

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._open: dict[tuple[str, str], _Group] = {}

    def add(self, envelope: Envelope) -> None:
        """One envelope more. A hello, or one behind a gap, stands alone."""
        name = (envelope.uuid, envelope.topic)
        group = self._open.get(name)
        if group is not None and envelope.messages and group.continued_by(envelope):
            group.messages += envelope.messages
            return
        group = _Group(envelope)
        self._groups.append(group)
        if envelope.messages:
            self._open[name] = group

    def envelopes(self) -> Iterator[Envelope]:
        """All of it."""
        for group in self._groups:
            first = group.first
            if len(group.messages) == len(first.messages):
                yield first
            else:
                yield Envelope(first.service, first.uuid, first.topic, first.sequence, group.messages)
