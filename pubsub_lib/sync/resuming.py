"""What is kept of an answer that broke off: topics of a first sync whose objects arrived complete (rule W6).

The next question asks for the links after the point of such a topic, in place of its objects. So the next answer alone
shows what is in the history now, and how old that is: what is kept is no answer, and has no age. A prepared snapshot of
a server is used in the same way.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from pubsub_lib.core.contents import Contents, contents_of
from pubsub_lib.core.model import ALL, Delta, Full, Incomplete, SyncAnswer, TopicSnapshot, Want
from pubsub_lib.errors import FrameError
from pubsub_lib.sync.checks import advanced
from pubsub_lib.sync.question import SyncQuestion

_FIRST: Final = Want()


class KeptTopics:
    """The topics that are kept, with objects of ``max_bytes`` together. Not thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._topics: dict[str, tuple[TopicSnapshot, int]] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def clear(self) -> None:
        """Forget all of them."""
        self._topics.clear()

    def keep(self, arrived: Mapping[str, Full], wants: Mapping[str, Want]) -> int:
        """Keep the complete topics of an answer that broke off; returns their number. One whose number of objects or
        digest differs from those of its head may lack a page, and is not kept.
        """
        before = len(self._topics)
        room = self._max_bytes - sum(size for _, size in self._topics.values())
        for topic, part in arrived.items():
            if topic == ALL or wants.get(topic) != _FIRST:
                continue
            snapshot = part.topics[topic]
            records, head = snapshot.records, snapshot.head
            if not isinstance(records, Contents) or (len(records), records.digest) != (head.count, head.digest):
                continue
            size = sum(len(each.value) for objects in records.tables.values() for each in objects.values())
            if head.count and size <= room:
                self._topics[topic] = snapshot, size
                room -= size
        return len(self._topics) - before

    def shorter(self, question: SyncQuestion) -> SyncQuestion:
        """The question without the objects that are kept. Forgets topics that it does not ask for."""
        wants = question.wants
        self._topics = {topic: each for topic, each in self._topics.items() if wants.get(topic) == _FIRST}
        if not self._topics:
            return question
        after = {topic: Want(each.head.point) for topic, (each, _) in self._topics.items()}
        # A relay renews its proof for a question about objects by itself, but this one is about links (rule R3).
        return SyncQuestion({**wants, **after}, refresh=True)

    def completed(self, answer: SyncAnswer) -> SyncAnswer | None:
        """The answer to the whole question, from that to the shorter one. None: some topics are not in the history as
        they were kept, and are forgotten; ask again.
        """
        if not self._topics:
            return answer
        chains = dict(answer.chains)
        outdated = []
        for topic, (kept, _) in self._topics.items():
            part = chains.get(topic)
            if part is None:
                continue  # the relay does not have the topic now
            full = _after(kept, topic, part)
            if full is None:
                outdated.append(topic)
            else:
                chains[topic] = full
        for topic in outdated:
            del self._topics[topic]
        if outdated:
            return None
        # Those that the relay does not have stay; the caller has the others, and changes them.
        self._topics = {topic: each for topic, each in self._topics.items() if topic not in chains}
        return msgspec.structs.replace(answer, chains=chains)


def _after(kept: TopicSnapshot, topic: str, part: Delta | Incomplete | Full) -> Full | None:
    """All objects of the topic, after the links of this part. None: the part does not lead from the kept objects to a
    head.
    """
    if not isinstance(part, Delta) or topic not in part.heads or part.heads[topic].point != part.head:
        return None
    head = part.heads[topic]
    records = kept.records
    if part.links:
        if part.links[0].prev != kept.head.point:
            return None
        try:
            records = contents_of(topic, advanced(topic, records, part.links, head.point))
        except FrameError:  # the links do not follow each other
            return None
    elif head.point != kept.head.point:
        return None
    return Full({topic: TopicSnapshot(head, records)}, head.point)
