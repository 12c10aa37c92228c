"""A replica's journal (docs/journals.md): what it heard and decided, written before anything of it is applied."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pubsub_lib.core.actions import Action, Apply, Replace, RequestHello, StartSync
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL, ZERO, Delta, Full, Incomplete, Link, Point, Record, SyncAnswer
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.journal import Journal
from pubsub_lib.journal.rows import Outcome

_APPLIED: Final[tuple[Outcome]] = ("applied",)
_DROPPED: Final[tuple[Outcome]] = ("dropped",)
_Key = tuple[str, Point]


class ReplicaJournal:
    """Notes for one replica; see :class:`pubsub_lib.core.follower.Witness`. The caller holds the replica's lock,
    except in ``following``, ``dropping`` and ``asking``. Nothing here raises because of the disk.
    """

    def __init__(self, journal: Journal, *, polls: bool) -> None:
        """``polls``: the driver carries no messages, the replica reads the changelog itself."""
        self._journal = journal
        self._polls = polls
        self._listings = 0

    # -- topics and questions ----------------------------------------------------------------------------------------

    def following(self, topics: Sequence[str]) -> None:
        """From now on messages of these may come."""
        for topic in topics:
            self._journal.note("interest", topic=topic, cause="poll" if self._polls else "")

    def dropping(self, topic: str) -> None:
        """The topic is not followed any more."""
        self._journal.note("drop", topic=topic)

    def asking(self, question: RequestHello) -> None:
        """Every publisher is asked for a hello now."""
        self._journal.note("ask", peer=question.nonce)

    # -- what arrives ------------------------------------------------------------------------------------------------

    def heard(self, envelope: Envelope, actions: Sequence[Action], tracker: Tracker) -> None:
        """See :meth:`pubsub_lib.core.follower.Witness.heard`."""
        hello = envelope.hello
        if hello is not None and hello.nonce:
            self._journal.note("hello", peer=hello.nonce, service=envelope.service, uuid=envelope.uuid)
        applied = [link for action in actions if isinstance(action, Apply) for link in action.links]
        messages = envelope.messages
        if not messages:
            self._journal.links("applied", applied)
        elif len(applied) == len(messages) and all(
            link is message.link for link, message in zip(applied, messages, strict=True)
        ):
            self._journal.messages(_APPLIED, envelope)
        elif (ALL if ALL in tracker.topics else envelope.topic) not in tracker.topics:
            self._journal.messages(_DROPPED, envelope, cause="not followed")
        else:
            self._mixed(envelope, applied, tracker)

    def _mixed(self, envelope: Envelope, applied: Sequence[Link], tracker: Tracker) -> None:
        """Not everything that came is applied, or more than that."""
        known = tracker.chain(ALL if ALL in tracker.topics else envelope.topic).known
        last = {(each.link.topic, each.link.point): index for index, each in enumerate(envelope.messages)}
        now = {(link.topic, link.point) for link in applied}
        outcomes: list[Outcome] = []
        for index, message in enumerate(envelope.messages):
            key = (message.link.topic, message.link.point)
            if key in now and last[key] == index:
                outcomes.append("applied")
            elif message.parts > 1 and (key in now or not _reached(message.link, known)):
                outcomes.append("part")
            else:
                outcomes.append("old" if _reached(message.link, known) else "waiting")
        self._journal.messages(outcomes, envelope)
        self._journal.links("applied", [link for link in applied if (link.topic, link.point) not in last])

    # -- syncs -------------------------------------------------------------------------------------------------------

    def sync_begins(self, job: StartSync) -> None:
        """The store is asked now."""
        for chain, want in job.wants.items():
            cause = job.causes.get(chain, "")
            self._journal.note(
                "sync_begin", topic=chain, sequence=job.number, cause=cause, prev=want.after if want.after else ZERO
            )

    def synced(self, answer: SyncAnswer, number: int, actions: Sequence[Action], tracker: Tracker) -> None:
        """See :meth:`pubsub_lib.core.follower.Witness.synced`."""
        for action in actions:
            if isinstance(action, Apply):
                self._journal.links("applied", action.links, cause="delta")
        replaced = {action.chain for action in actions if isinstance(action, Replace)}
        for chain, part in answer.chains.items():
            if isinstance(part, Full):
                records = [record for snapshot in part.topics.values() for record in snapshot.records]
                # Some buckets only are no evidence of all objects; an answer that came too late was not used.
                whole = all(snapshot.buckets is None for snapshot in part.topics.values())
                self._ended(
                    number, chain, "full" if whole and chain in replaced else "failed", part.head, len(records),
                    sum(len(record.value) for record in records),
                )  # fmt: skip
            elif isinstance(part, Delta):
                changes = [change for link in part.links for change in link.changes]
                used = chain in tracker.topics and _at_least(tracker.chain(chain).known, part.head)
                self._ended(
                    number, chain, "delta" if used else "failed", part.head, len(part.links),
                    sum(len(change.value or b"") for change in changes),
                )  # fmt: skip
            else:
                assert isinstance(part, Incomplete)
                self._ended(number, chain, "incomplete", ZERO, 0, 0)

    def sync_failed(self, job: StartSync, why: str) -> None:
        """The store did not answer."""
        for chain in job.wants:
            self._journal.note("sync_end", topic=chain, sequence=job.number, outcome="failed", cause=why)

    def _ended(self, number: int, chain: str, outcome: Outcome, head: Point, count: int, size: int) -> None:
        self._journal.note(
            "sync_end", topic=chain, sequence=number, outcome=outcome, point=head, count=count, size=size
        )

    # -- the end -----------------------------------------------------------------------------------------------------

    def watch(self, rejected: Callable[[], Mapping[str, int]]) -> None:
        """See :meth:`pubsub_lib.journal.Journal.watch`."""
        self._journal.watch(rejected)

    def listing(self, topic: str, known: Point, records: Sequence[Record]) -> None:
        """All objects of a topic as they are held at ``known``."""
        self._listings += 1
        self._journal.listing(self._listings, topic, known, records)

    def counters(self) -> Mapping[str, int]:
        """``written`` and ``lost`` records."""
        return self._journal.counters()

    @property
    def error(self) -> str:
        """Why records are being lost right now; "" while all is well."""
        return self._journal.error

    def close(self) -> None:
        """The replica ends here. Idempotent."""
        self._journal.close()


def _reached(link: Link, known: Point | None) -> bool:
    return known is not None and link.point.position <= known.position


def _at_least(known: Point | None, head: Point) -> bool:
    return known is not None and known.position >= head.position
