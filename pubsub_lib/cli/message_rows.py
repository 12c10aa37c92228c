"""Received messages as rows for people: sender, contents, latency and missing messages. Sans-I/O."""

from typing import Final

import msgspec

from pubsub_lib.core.envelope import Envelope, Hello, Message
from pubsub_lib.core.sequence_gaps import SequenceGaps

LINK: Final = "link"
HELLO: Final = "hello"


class ReceivedMessage(msgspec.Struct, frozen=True):
    """One message. ``at`` and ``latency`` in seconds of wall clocks, the reader's and (for latency) the writer's."""

    at: float
    kind: str
    """``link``, or ``hello`` for a hello with news: a loss, a start or a stop."""
    topic: str
    service: str
    uuid: str
    sequence: int
    position: int
    changes: int
    latency: float | None
    """Seconds from the writer's commit to this process, by the clocks of the two hosts; None when unknown."""
    holes: int
    """Messages of this service on this topic that are missing before this one."""
    missing: str
    """The sequences of the missing messages, ``17`` or ``17-19``."""
    note: str


class MessageRows:
    """Converts envelopes to rows. One thread at a time."""

    def __init__(self) -> None:
        self.gaps = SequenceGaps()
        self.last: dict[tuple[str, str], ReceivedMessage] = {}
        """The last received link of each (service, topic)."""
        self._uuids: dict[str, str] = {}

    def feed(self, envelope: Envelope, wall: float) -> list[ReceivedMessage]:
        """The rows of one envelope; hellos without news make none. ``wall``: Unix seconds now."""
        start = self._start(envelope)
        if envelope.hello is not None:
            return self._hello(envelope, envelope.hello, wall, start)
        rows = []
        for offset, message in enumerate(envelope.messages):
            row = self._message(envelope, envelope.sequence + offset, message, wall, start)
            self.last[row.service, row.topic] = row
            rows.append(row)
            start = ""
        return rows

    def _start(self, envelope: Envelope) -> str:
        before = self._uuids.get(envelope.service)
        self._uuids[envelope.service] = envelope.uuid
        return "started again" if before not in (None, envelope.uuid) else ""

    def _message(self, envelope: Envelope, sequence: int, message: Message, wall: float, start: str) -> ReceivedMessage:
        tally = self.gaps.tally
        holes, filled, repeated = tally.holes, tally.filled, tally.duplicates
        self.gaps.received(envelope.service, envelope.uuid, envelope.topic, sequence, 1)
        holes = tally.holes - holes
        notes = [start] if start else []
        if tally.filled > filled:
            notes.append("late, fills a hole")
        if tally.duplicates > repeated:
            notes.append("repeated")
        link = message.link
        if message.parts > 1:
            notes.append(f"part {message.part} of {message.parts}")
        return ReceivedMessage(
            at=wall,
            kind=LINK,
            topic=envelope.topic,
            service=envelope.service,
            uuid=envelope.uuid,
            sequence=sequence,
            position=link.point.position,
            changes=len(link.changes),
            latency=wall - link.written_at if link.written_at else None,
            holes=holes,
            missing=_range(sequence - holes, sequence - 1),
            note=", ".join(notes),
        )

    def _hello(self, envelope: Envelope, hello: Hello, wall: float, start: str) -> list[ReceivedMessage]:
        rows = []
        for topic, last in hello.sequences.items():
            before = self.gaps.tally.holes
            self.gaps.announced(envelope.service, envelope.uuid, topic, last)
            holes = self.gaps.tally.holes - before
            if holes:
                head = hello.heads.get(topic)
                position = head.point.position if head is not None else 0
                missing = _range(last - holes + 1, last)
                rows.append(
                    self._head_text(envelope, topic, last, position, wall, (holes, missing), "last messages lost")
                )
        notes = [start] if start else []
        if hello.goodbye:
            notes.append("stopped")
        if notes:
            position = hello.store.position if hello.store is not None else 0
            rows.append(self._head_text(envelope, envelope.topic, 0, position, wall, (0, ""), ", ".join(notes)))
        return rows

    def _head_text(
        self, envelope: Envelope, topic: str, last: int, position: int, wall: float, holes: tuple[int, str], note: str
    ) -> ReceivedMessage:
        return ReceivedMessage(
            wall, HELLO, topic, envelope.service, envelope.uuid, last, position, 0, None, holes[0], holes[1], note
        )


def _range(first: int, last: int) -> str:
    if first > last:
        return ""
    return str(first) if first == last else f"{first}-{last}"
