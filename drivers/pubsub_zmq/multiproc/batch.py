"""Delivers messages that wait together in one batch: this needs fewer calls, and allows larger frames later."""

from collections.abc import Iterator

from pubsub_lib.core.envelope import Envelope, Message


class _Group:
    """Consecutive messages of one worker on one topic."""

    __slots__ = ("first", "messages")

    def __init__(self, first: Envelope) -> None:
        self.first = first
        self.messages: list[Message] = list(first.messages)

    def continued_by(self, envelope: Envelope) -> bool:
        connects = envelope.sequence == self.first.sequence + len(self.messages)
        return connects and envelope.store_id == self.first.store_id


class Batch:
    """Joins messages of many workers into envelopes. An envelope holds consecutive messages of one worker on one topic.

    The order of one worker's messages on one topic is kept. The order between topics and workers is not, because no
    receiver depends on it.
    """

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._open: dict[tuple[str, str], _Group] = {}

    def add(self, envelope: Envelope) -> None:
        """Add an envelope. A hello, and an envelope after a gap, begins a new one."""
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
        """The joined envelopes."""
        for group in self._groups:
            first = group.first
            if len(group.messages) == len(first.messages):
                yield first
            else:
                yield Envelope(
                    first.service, first.uuid, first.topic, first.sequence, group.messages, None, first.store_id
                )
