"""What readings of the store show about the publishers of one replica (rule 14). Not thread-safe."""

from collections.abc import Collection, Sequence

from pubsub_lib.core.effects import Replace
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.excluded_links import ExcludedLink, ExcludedLinks
from pubsub_lib.core.leased_publishers import LeasedPublishers
from pubsub_lib.core.model import SyncAnswer
from pubsub_lib.core.quarantine import Publisher, Quarantine
from pubsub_lib.core.tracker import Tracker


class Contradictions:
    """The lies of publishers, and the publishers that are excluded because of them."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self.quarantine = Quarantine()
        self._links = ExcludedLinks()
        self.has_parents = False
        """Whether relays are its publishers."""
        self._read_position = 0
        """The store's position in the last reading of the store itself."""
        self._undone: set[Publisher] = set()
        """The publishers whose links the last reading did not contain."""

    def exclude(self, envelope: Envelope, chain: str, now: float) -> None:
        """Count what a publisher in quarantine sent: it is not used, and was not lost. ``chain``: that of its topic."""
        tracker, number = self._tracker, len(envelope.messages)
        sender = envelope.service, envelope.uuid
        tracker.counters.quarantined += max(1, number)
        if envelope.hello is not None and envelope.hello.store is not None:
            self._links.add(ExcludedLink(None, envelope.hello.store, sender, now))
        if number and chain in tracker.topics:
            tracker.gaps.received(*sender, envelope.topic, envelope.sequence, number)
            for message in envelope.messages:
                self._links.add(ExcludedLink(chain, message.link.point, sender, now))

    def reading(self, chains: Collection[str]) -> None:
        """A reading of these chains begins."""
        self._links.reading(chains)

    def answered(self, answer: SyncAnswer, leased: LeasedPublishers, now: float) -> None:
        """A sync was answered in time; the answer is used next."""
        # A relay may have been misled itself, as a source of syncs and as a publisher.
        of_store = answer.ages is None
        self.quarantine.at_once = of_store and leased.required and not self.has_parents
        self._undone.clear()
        if of_store:
            if answer.store.position < self._read_position:
                self.quarantine.went_back(now)
            self._read_position = answer.store.position

    def undone(
        self, replaced: Sequence[Replace], excluded: Sequence[Publisher], now: float
    ) -> tuple[Publisher, ...]:
        """The store does not contain the points to which publishers led these chains. Those whose quarantine begins.
        ``excluded``: those whose quarantine began already in this step.
        """
        self._undone = {each.source for each in replaced if each.source is not None}
        self._tracker.counters.contradicted += len(self._undone)
        begun = self.quarantine.judge(replaced, now) if replaced else ()
        if begun or excluded:
            self._tracker.freshness.distrust([*begun, *excluded], now)
        return begun

    def denied(self, answer: SyncAnswer, now: float) -> Sequence[Publisher]:
        """The store's own answer was used. The publishers whose quarantine begins, because it denies their covered
        positions, or links that were not used.
        """
        tracker = self._tracker
        false = self._links.false(answer, lambda name: tracker.chain(name) if name in tracker.topics else None)
        found, tracker.freshness.denied = [*tracker.freshness.denied, *false.items()], []
        denied = [(publisher, at) for publisher, at in found if not self.quarantine.excuses(at)]
        tracker.counters.contradicted += len({publisher for publisher, _ in denied} - self._undone)
        begun = [publisher for publisher, at in denied if self.quarantine.contradicted(publisher, at, now)]
        if begun:
            tracker.freshness.distrust(begun, now)
        return begun
