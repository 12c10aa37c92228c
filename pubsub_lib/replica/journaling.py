"""A replica's journal (docs/audit.md): its received messages and decisions, written before they are applied."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.effects import Apply, Effect, Replace, RequestHello, StartSync
from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.model import ALL, ZERO, Delta, Full, Incomplete, Link, Point, Record, SyncAnswer
from pubsub_lib.core.quarantine import Publisher
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.topic_objects import Rot
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.journal import Journal, open_journal
from pubsub_lib.journal.rows import PLAIN, SCHEMA, Outcome
from pubsub_lib.replica.held_contents import HeldContents, LockOwner
from pubsub_lib.settings import Settings

_APPLIED: Final[tuple[Outcome]] = ("applied",)
_DROPPED: Final[tuple[Outcome]] = ("dropped",)
_Key = tuple[str, Point]


class ReplicaJournal:
    """The records of one replica; see :class:`pubsub_lib.core.replica_state.Witness`. The caller holds the replica's
    lock, except in ``following``, ``dropping``, ``parent`` and ``asking``. No method raises an error of the disk.
    """

    def __init__(self, journal: Journal, *, polls: bool, relay: Publisher | None = None) -> None:
        """``polls``: the driver sends no messages, the replica reads the changelog itself. ``relay``: the service name
        and UUID of the relay whose replica this is.
        """
        self._journal = journal
        self._cause = "poll" if polls else "" if relay is None else "relay"
        self._relay = relay or ("", "")
        self._listings = 0
        self._known: dict[str, Point | None] = {}
        """The known point of each chain after the last step: a message up to it is old, a later one is not."""
        self.held = HeldContents(journal)

    # -- topics and hello requests -----------------------------------------------------------------------------------

    def following(self, topics: Sequence[str]) -> None:
        """From now on messages of these topics may arrive."""
        service, uuid = self._relay
        for topic in topics:
            self._journal.note("interest", topic=topic, cause=self._cause, service=service, uuid=uuid)

    def dropping(self, topic: str) -> None:
        """The topic is not subscribed to any more."""
        self._known.pop(topic, None)
        self._journal.note("drop", topic=topic)

    def parent(self, address: str, speaker: Publisher | None) -> None:
        """The parent at this address is followed from now on; None: its first hello has not come yet. Any thread."""
        service, uuid = speaker or ("", "")
        self._journal.note("parent", cause=address, service=service, uuid=uuid)

    def asking(self, request: RequestHello) -> None:
        """A hello request is sent to every publisher now."""
        self._journal.note("ask", peer=request.nonce)

    # -- received messages -------------------------------------------------------------------------------------------

    def received(self, envelope: Envelope, effects: Sequence[Effect], tracker: Tracker) -> None:
        """See :meth:`pubsub_lib.core.replica_state.Witness.received`."""
        hello = envelope.hello
        if hello is not None and hello.nonce:
            self._journal.note("hello", peer=hello.nonce, service=envelope.service, uuid=envelope.uuid)
        applied = [link for effect in effects if isinstance(effect, Apply) for link in effect.links]
        messages = envelope.messages
        if not messages:
            self._journal.links("applied", applied)
            self.held.touch(link.topic for link in applied)
            return
        self.held.touch((envelope.topic,))
        chain = ALL if ALL in tracker.topics else envelope.topic
        if len(applied) == len(messages) and all(
            link is message.link for link, message in zip(applied, messages, strict=True)
        ):
            self._journal.messages(_APPLIED, envelope)
        elif chain not in tracker.topics:
            self._journal.messages(_DROPPED, envelope, cause="not followed")
        else:
            self._mixed(envelope, applied, self._before(tracker.chain(chain), applied))
        if applied:
            self._known[chain] = applied[-1].point

    def _before(self, chain: Chain, applied: Sequence[Link]) -> Point | None:
        """The known point before this step, which applied these links."""
        if chain.name in self._known:
            return self._known[chain.name]
        return chain.previous(applied[0]) if applied else chain.known

    def _mixed(self, envelope: Envelope, applied: Sequence[Link], known: Point | None) -> None:
        """Write the messages of an envelope that is not applied exactly as received. ``known``: the point before it.

        Receipts are written in the order of arrival, and applied links in the order in which they are applied. A
        message that arrived before another one and is applied after it is written twice: as ``waiting``, and later as
        ``applied`` (without a sequence).
        """
        turns = {(link.topic, link.point): turn for turn, link in enumerate(applied)}
        passed = {link.point.position for link in applied}
        completing = _completing(envelope.messages)
        outcomes: list[Outcome] = []
        begin = written = 0
        for index, message in enumerate(envelope.messages):
            key = (message.link.topic, message.link.point)
            turn = turns.get(key)
            if turn is None:
                old = _reached(message.link, known) or message.link.point.position in passed
                outcomes.append("old" if old else "part" if message.parts > 1 else "waiting")
            elif completing[key] != index:
                outcomes.append("part" if index < completing[key] else "old")
            elif any(completing.get((link.topic, link.point), 0) > index for link in applied[written:turn]):
                outcomes.append("waiting")
            else:
                if turn > written:
                    self._received(envelope, begin, outcomes)
                    self._journal.links("applied", applied[written:turn])
                    begin, outcomes = index, []
                outcomes.append("applied")
                written = turn + 1
        self._received(envelope, begin, outcomes)
        self._journal.links("applied", applied[written:])

    def _received(self, envelope: Envelope, begin: int, outcomes: Sequence[Outcome]) -> None:
        """Write the messages of an envelope from ``begin`` on, one for each outcome."""
        if len(outcomes) == len(envelope.messages):
            self._journal.messages(outcomes, envelope)
        elif outcomes:
            messages = envelope.messages[begin : begin + len(outcomes)]
            sequence = envelope.sequence + begin if envelope.sequence else 0
            self._journal.messages(outcomes, msgspec.structs.replace(envelope, sequence=sequence, messages=messages))

    # -- syncs -------------------------------------------------------------------------------------------------------

    def sync_begins(self, job: StartSync) -> None:
        """The sync starts to read from the store now."""
        for chain, want in job.wants.items():
            cause = job.causes.get(chain, "")
            self._journal.note(
                "sync_begin", topic=chain, sequence=job.number, cause=cause, prev=want.after if want.after else ZERO
            )

    def synced(self, answer: SyncAnswer, number: int, effects: Sequence[Effect], tracker: Tracker) -> None:
        """See :meth:`pubsub_lib.core.replica_state.Witness.synced`."""
        self._journal.of_store(answer.store_id)
        replaced = {effect.chain for effect in effects if isinstance(effect, Replace)}
        applied: dict[str, list[Link]] = {}
        for link in (link for effect in effects if isinstance(effect, Apply) for link in effect.links):
            applied.setdefault(ALL if ALL in answer.chains else link.topic, []).append(link)
        for chain, part in answer.chains.items():
            links = applied.get(chain, [])
            self.held.touch([chain, *(part.topics if isinstance(part, Full) else [link.topic for link in links])])
            if chain in tracker.topics:
                self._known[chain] = tracker.chain(chain).known
            if isinstance(part, Full):
                self._full(number, chain, part, used=chain in replaced)
                # Links that had waited are applied to the objects that were read, so they are written after them.
                self._journal.links("applied", links)
                continue
            self._journal.links("applied", links, cause="delta")
            if isinstance(part, Delta):
                changes = [change for link in part.links for change in link.changes]
                used = chain in tracker.topics and _at_least(tracker.chain(chain).known, part.head)
                self._ended(
                    number, chain, "delta" if used else "failed", part.head, len(part.links),
                    sum(len(change.value or b"") for change in changes),
                )  # fmt: skip
            else:
                assert isinstance(part, Incomplete)
                self._ended(number, chain, "incomplete", ZERO, 0, 0)

    def drained(self, links: Sequence[Link], tracker: Tracker) -> None:
        """See :meth:`pubsub_lib.core.replica_state.Witness.drained`."""
        self._journal.links("applied", links)
        self.held.touch(link.topic for link in links)
        for link in links:
            self._known[ALL if ALL in tracker.topics else link.topic] = link.point

    def _full(self, number: int, chain: str, part: Full, *, used: bool) -> None:
        parts = [snapshot.records for snapshot in part.topics.values()]
        # If only some buckets were read, the digests of the others were equal. A late answer is not used.
        self._ended(
            number, chain, "full" if used else "failed", part.head, sum(map(len, parts)),
            sum(len(record.value) for records in parts for record in records),
        )  # fmt: skip

    def rotted(self, rot: Rot) -> None:
        """Altered or lost objects were found in memory; they are read again."""
        self.held.touch((rot.topic,))
        self._journal.note("rot", topic=rot.topic, cause="memory", count=rot.objects)

    def sync_failed(self, job: StartSync, why: str) -> None:
        """The store did not answer."""
        for chain in job.wants:
            self._journal.note("sync_end", topic=chain, sequence=job.number, outcome="failed", cause=why)

    def _ended(self, number: int, chain: str, outcome: Outcome, head: Point, count: int, size: int) -> None:
        self._journal.note(
            "sync_end", topic=chain, sequence=number, outcome=outcome, point=head, count=count, size=size
        )

    def history_changed(self, change: HistoryChange) -> None:
        """The store does not contain the points to which publishers' messages had led these chains."""
        for chain, publisher in change.publishers.items():
            before, after = change.points[chain]
            cause = "quarantined" if publisher in change.quarantined else ""
            service, uuid = publisher
            self._journal.note(
                "contradicted", topic=chain, service=service, uuid=uuid, point=before, prev=after, cause=cause
            )

    def quarantined(self, publishers: Iterable[Publisher]) -> None:
        """These publishers are not used from now on, because of something else than an undone point."""
        for service, uuid in publishers:
            self._journal.note("contradicted", service=service, uuid=uuid, cause="quarantined")

    # -- the end -----------------------------------------------------------------------------------------------------

    def watch(self, rejected: Callable[[], Mapping[str, int]], owner: LockOwner) -> None:
        """Record counters of rejected messages (see :meth:`pubsub_lib.journal.Journal.watch`), and the contents, at
        each mark.
        """

        def at_mark() -> Mapping[str, int]:
            self.held.at_mark(owner)
            return rejected()

        self._journal.watch(at_mark)

    def list_objects(self, state: ReplicaState) -> None:
        """Write all objects of every topic, so that an audit can compare them with the store."""
        tracker, cache = state.tracker, state.cache
        self.held.record_all(state)
        for name in tracker.topics:
            known = tracker.chain(name).known
            if known is not None and not tracker.chain(name).frozen:
                for topic in cache.topics() if name == ALL else [name]:
                    records = cache.topic_records(topic)
                    # For a topic without any commit the store has no list to compare with.
                    if records or known.position:
                        self.listing(topic, known, records)

    def listing(self, topic: str, known: Point, records: Sequence[Record]) -> None:
        """All objects of a topic, at the point ``known``."""
        self._listings += 1
        self._journal.listing(self._listings, topic, known, records)

    def counters(self) -> Mapping[str, int]:
        """``written`` and ``lost`` records."""
        return self._journal.counters()

    @property
    def error(self) -> str:
        """Why records are being lost now; "" when none are."""
        return self._journal.error

    def close(self) -> None:
        """Close the journal at the replica's end. Idempotent."""
        self._journal.close()


def journal_of(
    settings: Settings, name: str, *, polls: bool = False, relay: Publisher | None = None
) -> ReplicaJournal | None:
    """The journal of a replica of this name; None when the settings name no folder. See :class:`ReplicaJournal`."""
    schema = SCHEMA if settings.parents or relay is not None else PLAIN
    journal = open_journal(settings.journal, "replica", name, schema)
    return None if journal is None else ReplicaJournal(journal, polls=polls, relay=relay)


def _completing(messages: Sequence[Message]) -> dict[_Key, int]:
    """The index of the message that completes each received link; of a repeated message the first copy counts."""
    seen: set[tuple[_Key, int]] = set()
    places: dict[_Key, int] = {}
    for index, message in enumerate(messages):
        key = (message.link.topic, message.link.point)
        if (key, message.part) not in seen:
            seen.add((key, message.part))
            places[key] = index
    return places


def _reached(link: Link, known: Point | None) -> bool:
    return known is not None and link.point.position <= known.position


def _at_least(known: Point | None, head: Point) -> bool:
    return known is not None and known.position >= head.position
