"""Mistakes in the defence against publishers and workers that lie (rules 14 and 15), caught by runs with liars."""

from typing import Any

from pubsub_lib.core import unleased_messages
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.chain import Chain
from pubsub_lib.core.excluded_links import ExcludedLinks
from pubsub_lib.core.freshness import Freshness
from pubsub_lib.core.handoffs import Handoffs
from pubsub_lib.core.model import TopicSnapshot
from pubsub_lib.core.provoked_reads import ProvokedReads
from pubsub_lib.core.quarantine import Quarantine
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.core.transitions import Trigger
from pubsub_lib.core.unleased_messages import UnleasedMessages
from pubsub_lib.core.verification import Verification
from simulator.handoff_check import HandoffCheck
from simulator.service import Service
from tests.simulator.registry import Patch, mutant

# -- the anchor --------------------------------------------------------------------------------------------------------


@mutant("a replica whose publishers prove that it is fresh never reads the store", liars=True)
def lies_never_verified() -> list[Patch]:
    return [(Verification, "_next", lambda self, now: float("inf"))]


@mutant("objects that differ from the store's digest are not read again", liars=True)
def lies_not_compared() -> list[Patch]:
    return [(ReplicaState, "mismatched", lambda self, topic, now, **more: None)]


@mutant("with liars: objects that a snapshot lacks stay", liars=True)
def lies_stay_in_replaced_topic() -> list[Patch]:
    replace = Cache.replace

    def _replace(self: Any, topic: str, snapshot: TopicSnapshot, **more: Any) -> Any:
        there = {(at.table, at.key) for at in snapshot.records}
        stay = [at for at in self.topic_records(topic) if (at.table, at.key) not in there]
        return replace(self, topic, TopicSnapshot(snapshot.head, [*snapshot.records, *stay]), **more)

    return [(Cache, "replace", _replace)]


@mutant("a point that the store does not contain is not rolled back", liars=True)
def lies_not_rolled_back() -> list[Patch]:
    trigger = Tracker._trigger

    def _trigger(self: Any, chain: Any, what: Any, now: float) -> None:
        kept = what is Trigger.INCOMPLETE and chain.source is not None
        trigger(self, chain, Trigger.BEHIND if kept else what, now)

    return [(Tracker, "_trigger", _trigger)]


# -- the quarantine ----------------------------------------------------------------------------------------------------


@mutant("the messages of an excluded publisher are used", liars=True)
def excluded_publisher_used() -> list[Patch]:
    return [(Quarantine, "excludes", lambda self, uuid, now: False)]


@mutant("a contradicted publisher is never excluded", liars=True)
def liar_never_excluded() -> list[Patch]:
    return [(Quarantine, "contradicted", lambda self, uuid, reached, now: False)]


@mutant("a quarantine never ends", liars=True)
def excluded_for_ever() -> list[Patch]:
    return [(Quarantine, "excludes", lambda self, uuid, now: uuid in self.until)]


@mutant("a link that had waited has no publisher, and accuses no publisher", liars=True)
def waiting_liar_not_accused() -> list[Patch]:
    drain = Tracker._drain

    def _drain(self: Any, chain: Any, now: float, applied: Any) -> None:
        before = chain.known
        drain(self, chain, now, applied)
        if chain.known != before:
            chain.source = None

    return [(Tracker, "_drain", _drain)]


@mutant("a store that went back accuses honest publishers", liars=True)
def honest_publisher_excluded() -> list[Patch]:
    return [(Quarantine, "excuses", lambda self, reached: False)]


@mutant("a publisher is excluded at its third contradiction only, although the leases are known", liars=True)
def liar_excluded_late() -> list[Patch]:
    contradicted = Quarantine.contradicted

    def _contradicted(self: Any, publisher: Any, reached: float, now: float) -> bool:
        self.at_once = False
        return contradicted(self, publisher, reached, now)

    return [(Quarantine, "contradicted", _contradicted)]


@mutant("what an excluded publisher sends is not judged: it is believed again soon", liars=True)
def excluded_links_not_judged() -> list[Patch]:
    return [(ExcludedLinks, "false", lambda self, answer, chain: {})]


@mutant("the store's position in a hello is believed for ever", liars=True)
def covered_position_not_judged() -> list[Patch]:
    return [(Freshness, "denied", lambda self, store, begun, changed: None)]


# -- workers -----------------------------------------------------------------------------------------------------------


@mutant("the links of an excluded worker are published", liars=True)
def excluded_worker_used() -> list[Patch]:
    return [(Handoffs, "excludes", lambda self, uuid: False)]


@mutant("after a lie the links of workers that the changelog has not confirmed are published", liars=True)
def unconfirmed_worker_used() -> list[Patch]:
    return [(Handoffs, "doubts", lambda self, uuid: False)]


@mutant("a worker that hands over what was never committed is not excluded", liars=True)
def lying_worker_never_excluded() -> list[Patch]:
    return [(Handoffs, "judge", lambda self, points, held, now: [])]


@mutant("each worker whose transaction is looked up is excluded", liars=True)
def honest_worker_excluded() -> list[Patch]:
    judge = Handoffs.judge
    return [(Handoffs, "judge", lambda self, points, held, now: judge(self, points, [False] * len(held), now))]


@mutant("each reading of the changelog ends the check of earlier transactions of workers", liars=True)
def handed_over_forgotten() -> list[Patch]:
    return [(Handoffs, "confirm", lambda self, links: self.forget() or [])]


@mutant("with liars: a service takes each reading for one of another history", liars=True)
def history_taken_for_another() -> list[Patch]:
    read = HandoffCheck.read
    return [(HandoffCheck, "read", lambda self, links, complete: read(self, links, complete=False))]


# -- the store's id ----------------------------------------------------------------------------------------------------


@mutant("with liars: a service publishes the links of another store's workers", liars=True)
def lies_of_another_store_published() -> list[Patch]:
    return [(Service, "is_own", lambda self, item: True)]


# -- messages without a lease ------------------------------------------------------------------------------------------


@mutant("links of a publisher without a lease are applied", liars=True)
def unleased_link_used() -> list[Patch]:
    hold = UnleasedMessages.hold
    return [(UnleasedMessages, "hold", lambda self, envelope, now: hold(self, envelope, now) or envelope)]


@mutant("links that waited for a publisher's lease are not used when it is shown", liars=True)
def unleased_link_lost() -> list[Patch]:
    taken = UnleasedMessages.taken
    return [(UnleasedMessages, "taken", lambda self, leased, now: taken(self, leased, now)[:0])]


@mutant("links of a publisher are dropped by a reading that began before its lease was stored", liars=True)
def unleased_link_dropped_early() -> list[Patch]:
    return [(unleased_messages, "KEPT", 0.0)]


# -- the budget of full syncs ------------------------------------------------------------------------------------------


@mutant("each false digest in a hello causes a reading at once", liars=True)
def false_digests_without_pause() -> list[Patch]:
    return [(ProvokedReads, "may_compare", lambda self, uuid, now: True)]


@mutant("an invented link costs a reading of all objects", liars=True)
def lie_costs_all_objects() -> list[Patch]:
    trigger = Chain.trigger

    def _trigger(self: Any, what: Any) -> None:
        if what is Trigger.INCOMPLETE:
            self.repair = self.undone = False
        trigger(self, what)

    return [(Chain, "trigger", _trigger)]
