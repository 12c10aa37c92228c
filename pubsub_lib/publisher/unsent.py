"""Which links of a commit were not sent, for the journal and the counters."""

from collections.abc import Sequence

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import Link
from pubsub_lib.journal import Journal


def unsent(links: Sequence[Link], sent: Sequence[Envelope]) -> list[Link]:
    """The links that these envelopes do not contain completely: a large link is sent when its last part is sent."""
    whole = {
        (message.link.topic, message.link.point)
        for envelope in sent
        for message in envelope.messages
        if message.part == message.parts
    }
    return [link for link in links if (link.topic, link.point) not in whole]


def note_unsent(journal: Journal | None, links: Sequence[Link], sent: Sequence[Envelope]) -> None:
    """Write the unsent links of a commit to the journal, if there is one."""
    if journal is not None:
        # Links that were sent have a record "sent"; a second record would only cost time.
        journal.links("handed", unsent(links, sent))
