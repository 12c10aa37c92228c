"""When the state in a sync's answer was the store's, and whether the answer may be used (rules R1 to R4).

The primary's answer is of the moment at which it was requested, and always counts. A relay's answer may be older than
what the replica has: than its last proof, or than the links that it applied since. Both count from the moment at which
the server that answered was asked, and not from the begin of the sync: others may have hung before.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from pubsub_lib.core.chain import Chain, steps
from pubsub_lib.core.freshness import NEVER_YET, Freshness, HeadReading
from pubsub_lib.core.model import AnswerAge, Delta, Full, Incomplete, Point, SyncAnswer
from pubsub_lib.core.sync_scheduler import SyncScheduler

UNKNOWN: Final = AnswerAge(float("inf"), float("inf"))
MAX_NAMED: Final = 5
"""Maximum number of topics that a sentence names."""


class AnswerTime(msgspec.Struct, frozen=True):
    """The two ends, on the replica's clock, of the moment at which one chain's answer was the store's state."""

    earliest: float
    latest: float
    turn: int
    """What the replica received before this turn is covered by the answer (rule R4)."""
    applied: float = float("-inf")
    """The earliest time at which the relay can have had the first link of its delta."""
    relayed: bool = False

    def reading(self, store: Point) -> HeadReading:
        """The answer as a reading in which this was the store's point."""
        return HeadReading(self.earliest, store, publisher=False, latest=self.latest)


class Verdict(Enum):
    """What an answer is good for."""

    USED = "used"
    REFUSED = "refused"
    """It is not newer than what the replica has (rule R3): as if the sync had failed. Ordinary below relays."""
    LACKING = "lacking"
    """The answer does not contain the chain: the sync failed."""
    ANOTHER_HISTORY = "another history"
    """The store's history changed (rule R2): all objects are to be read."""


class Judged(NamedTuple):
    """What a chain uses of an answer, and what that proves."""

    verdict: Verdict
    at: AnswerTime
    part: Delta | Incomplete | Full | None


def judge_all(
    chains: Iterable[Chain], fresh: Mapping[str, Freshness], answer: SyncAnswer, syncs: SyncScheduler, turn: int,
    now: float,
) -> list[tuple[Chain, Judged]]:  # fmt: skip
    """Judge the parts of the running sync's answer, and end the sync. The next one waits as after a failure when a part
    is not used.
    """
    judged = [(chain, judge(chain, fresh[chain.name], answer, syncs, turn, now)) for chain in chains]
    left_out = [chain.name for chain, each in judged if each.verdict is Verdict.LACKING]
    if left_out:
        syncs.failed(now, why=lacking(left_out))
    elif any(each.verdict is Verdict.REFUSED for _, each in judged):
        syncs.failed(now)
    else:
        syncs.ended(now)
    return judged


def lacking(topics: Collection[str]) -> str:
    """The sentence about topics that an answer does not contain."""
    return (
        f"the answer lacks the topic{'s' * (len(topics) > 1)} {names(topics)}; the relay that answered does not follow "
        "each of them, or does not have its objects yet: compare its topics with those of this replica"
    )


def names(topics: Collection[str]) -> str:
    """The names of a few of these topics, and the number of the others."""
    named = ", ".join(map(repr, sorted(topics)[:MAX_NAMED]))
    return f"{named} and {len(topics) - MAX_NAMED} more" if len(topics) > MAX_NAMED else named


def judge(chain: Chain, fresh: Freshness, answer: SyncAnswer, syncs: SyncScheduler, turn: int, now: float) -> Judged:
    """Judge a chain's part of the running sync's answer, which is received ``now``, in this turn."""
    at = time_of(answer, chain, syncs, turn, now)
    if not at.relayed:
        return Judged(Verdict.USED, at, answer.chains[chain.name])
    part = answer.chains.get(chain.name)
    verdict = _verdict(chain, fresh, part, at, syncs.begun)
    if verdict is Verdict.REFUSED and isinstance(part, Delta):
        reached = reach(chain, fresh, part, at)
        if reached is not None:
            covered = chain.turn_of(fresh.pending[reached].time, turn)
            links = [link for link in part.links if link.point.position <= reached.position]
            return Judged(Verdict.USED, _of_begin(at, covered), Delta(links, reached))
    return Judged(verdict, at, part)


def _of_begin(at: AnswerTime, covered: int) -> AnswerTime:
    """The time of a delta's begin, up to the head of a reading: that reading counts by itself, and covers what was
    received before it. The answer's own moment is that of the whole delta, so it proves and covers nothing here.
    """
    return AnswerTime(NEVER_YET, NEVER_YET, covered, at.applied, relayed=True)


def time_of(answer: SyncAnswer, chain: Chain, syncs: SyncScheduler, turn: int, now: float) -> AnswerTime:
    """When a chain's part of an answer was the store's state (rule R1)."""
    asked = min(syncs.begun + answer.asked_after, now)
    if answer.ages is None:
        return AnswerTime(asked, now, syncs.turn)
    age = answer.ages.get(chain.name, UNKNOWN)
    # The question arrived when it was sent or later, and the answer was sent when it is received or earlier.
    earliest = min(asked - age.age, now)
    covered = chain.turn_of(earliest, turn)
    return AnswerTime(earliest, now - age.least, covered, asked - age.applied, relayed=True)


def _verdict(
    chain: Chain, fresh: Freshness, part: Delta | Incomplete | Full | None, at: AnswerTime, begun: float
) -> Verdict:
    if part is None:
        return Verdict.LACKING
    if isinstance(part, Incomplete) or chain.known is None:
        return Verdict.USED
    if isinstance(part, Full):
        return Verdict.USED if at.earliest > max(fresh.latest, chain.known_at) else Verdict.REFUSED
    if part.head.position <= chain.known_position and part.head != chain.known:
        if part.head.position == chain.known_position or at.earliest > chain.known_at:
            return Verdict.ANOTHER_HISTORY
        # Known passed the delta's head during the sync, or the relay is behind the point that it was asked about.
        return Verdict.USED if chain.known_at > begun else Verdict.REFUSED
    links = any(link.point.position > chain.known_position for link in part.links)
    return Verdict.USED if not links or reach(chain, fresh, part, at) == part.head else Verdict.REFUSED


def reach(chain: Chain, fresh: Freshness, delta: Delta, at: AnswerTime) -> Point | None:
    """The last point up to which a relay's delta counts: its head, or the head of a reading that waits for known to
    reach it. None: it does not count at all (rule R3).
    """
    reached, latest, changes = None, fresh.latest, False
    for links in steps(delta.links):
        point = links[0].point
        if point.position <= chain.known_position:
            continue
        changes = changes or any(link.changes for link in links)
        reading = fresh.pending.get(point)
        if reading is None and point != delta.head:
            continue
        read, applied = NEVER_YET if reading is None else reading.time, at.applied if changes else NEVER_YET
        if max(at.earliest, applied, read) > latest:
            reached = point
        if reading is not None:  # known passes this head on the way to the later ones
            latest = max(latest, reading.latest)
    return reached
