"""A brute-force audit, written from docs/contributing/audit-verdicts.md alone. It shares no code with the pipeline.

It is slow and simple on purpose: sets, loops, one function per definition.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import msgspec

from pubsub_lib.journal.rows import Row
from tests.unit.audit.oracle_clocks import Clocks
from tests.unit.audit.oracle_listings import contradicted_by_listings, lacking_listings

INFINITE = float("inf")
PARTICIPANTS = ("writer", "service", "relay", "replica")
DELIVERED = {"ok", "reordered", "duplicate_dropped", "duplicate_applied", "stale_applied", "corrupt"}

P = ParamSpec("P")
R = TypeVar("R")


class Interval(NamedTuple):
    run: str
    topic: str
    begin: int
    end: float
    opened: Row
    dropped: Row | None
    syncs: tuple[Row, ...]
    until: float
    """The end of the whole interval."""
    reached: Row | None = None
    """Of a continued part: the record that shows what the replica had at its begin."""


class Item(NamedTuple):
    kind: str
    service: str
    uuid: str
    topic: str
    sequence: int
    position: int
    nonce: int
    p: int
    host: str
    written: int = 0


class Verdict(NamedTuple):
    """One row of the delivery table."""

    name: str
    kind: str
    service: str
    uuid: str
    topic: str
    sequence: int
    position: int
    nonce: int
    verdict: str
    detail: str
    blame: str
    way: str


class Stray(NamedTuple):
    name: str
    uuid: str
    topic: str
    sequence: int
    verdict: str


class StoreFinding(NamedTuple):
    topic: str
    position: int
    nonce: int
    verdict: str


class Difference(NamedTuple):
    name: str
    topic: str
    table: str
    key: str
    verdict: str
    versions_behind: int
    behind: int | None


def once(definition: Callable[Concatenate["Oracle", P], R]) -> Callable[Concatenate["Oracle", P], R]:
    """The definition, computed once for an oracle and arguments: the rows of an oracle do not change.

    The results are shared, so callers must not change them.
    """
    name = definition.__name__

    @wraps(definition)
    def kept(self: "Oracle", /, *arguments: P.args, **named: P.kwargs) -> R:
        key = (name, arguments, *named.values())
        if key not in self.kept:
            self.kept[key] = definition(self, *arguments, **named)
        found: R = self.kept[key]
        return found

    return kept


class Oracle:
    def __init__(
        self, rows: Iterable[Row], window: int, grace: int, bound: int, silence: int,
        torn: Iterable[tuple[str, int]] = (), listed: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """``torn``: run and number of each last record behind which bytes or files were not read.
        ``listed``: when the folders were listed, and how long their files were then read.
        """
        self.torn = set(torn)
        self.listed = listed
        self.kept: dict[tuple[object, ...], Any] = {}
        self.window, self.grace, self.bound, self.silence = window, grace, bound, silence
        unique = {(row.run, row.number): row for row in rows}
        self.runs: dict[str, list[Row]] = defaultdict(list)
        for row in sorted(unique.values(), key=lambda each: (each.run, each.number)):
            self.runs[row.run].append(row)
        self.clocks = Clocks(self.runs, bound, grace)
        corrected = {(row.run, row.number): row for row in self.clocks.corrected()}
        self.runs = {run: [corrected[run, row.number] for row in of_run] for run, of_run in self.runs.items()}
        self.rows = [row for run in self.runs.values() for row in run]
        self.named: dict[str, set[str]] = defaultdict(set)
        """The services that each child names as its parents."""
        for row in self.rows:
            if row.kind == "parent":
                self.named[row.run] |= {row.service} if row.uuid else set()
        self.expects_what_was_sent = not any(row.side == "store" for row in self.rows)
        """Of polling replicas; without a commit."""
        self.publications = self._publications()
        self.commits = self._commits()
        self.polling = {row.run for row in self.rows if row.kind == "interest" and row.cause == "poll"}
        self.intervals = self._intervals()
        self.receipts = [
            row
            for row in self.rows
            if row.kind == "data"
            and row.side == "replica"
            and row.run not in self.polling
            and row.uuid
            and row.sequence
            and row.service not in self.named.get(row.run, ())
            and not self._awaits_a_name(row)
            and self._is_receipt(row)
        ]
        self._skews: dict[tuple[str, str, int], int] = {}
        from tests.unit.audit.oracle_branches import branches_of

        self.branches: list[Oracle] = branches_of(self)

    # -- definitions ---------------------------------------------------------------------------------------------

    def _awaits_a_name(self, row: Row) -> bool:
        """Whether the child had just moved to another address, and nothing had named who is there."""
        if row.run not in self.named:
            return False
        known = [each for each in self.runs[row.run] if each.kind == "parent" and each.number < row.number]
        last = max(known, key=lambda each: each.number, default=None)
        return last is not None and not last.uuid and row.wall <= self.horizon(last.wall)

    def _is_receipt(self, row: Row) -> bool:
        """False: the run has lost its subscriptions, and the record may be of a change that it read by polling."""
        return self.follows(row.run) or self.was_sent(row.uuid, row.topic)

    @once
    def follows(self, run: str) -> bool:
        return any(row.kind == "interest" for row in self.runs[run])

    @once
    def was_sent(self, uuid: str, topic: str) -> bool:
        return any(each[:2] == (uuid, topic) for each in self.publications)

    @once
    def first_wall(self, run: str) -> int:
        return min(row.wall for row in self.runs[run])

    @once
    def last_wall(self, run: str) -> int:
        return max(row.wall for row in self.runs[run])

    @once
    def gaps(self, run: str) -> list[tuple[int, float, float, float]]:
        """(lo, lo's wall, hi, hi's wall)."""
        rows = self.runs[run]
        found: list[tuple[int, float, float, float]] = []
        if rows[0].number != 1:
            found.append((0, -INFINITE, rows[0].number, rows[0].wall))
        for one, two in pairwise(rows):
            if two.number != one.number + 1:
                found.append((one.number, one.wall, two.number, two.wall))
        if (run, rows[-1].number) in self.torn and all(row.kind != "close" for row in rows):
            found.append((rows[-1].number, self.last_wall(run), INFINITE, self._next_begin(run)))
        if self.expired(run):
            found.append((rows[-1].number, self.last_wall(run), INFINITE, self.last_wall(run) + self.silence))
        return found

    def _next_begin(self, run: str) -> float:
        """The first wall of the next run of the same participant, if that is after the last wall of this run."""
        runs = [each for each in self.runs if self._who(each) == self._who(run)]
        later = sorted((self.first_wall(each), each) for each in runs)
        place = later.index((self.first_wall(run), run)) + 1
        begin = later[place][0] if place < len(later) else INFINITE
        return begin if begin > self.last_wall(run) else INFINITE

    def _who(self, run: str) -> tuple[str, str, str]:
        return (self.runs[run][0].side, self.runs[run][0].name, self.runs[run][0].host)

    @once
    def successor(self, run: str) -> float:
        """The first wall of the run's successor; infinite without one."""
        side, name, host = self._who(run)
        after = self.last_wall(run)
        if side == "replica":
            after = max(after - self.grace, self.first_wall(run))
        begins = [
            self.first_wall(other)
            for other in self.runs
            if self._who(other)[:2] == (side, name) and (side == "replica" or self._who(other)[2] == host)
        ]
        return min((begin for begin in begins if begin > after), default=INFINITE)

    @once
    def ended(self, run: str) -> bool:
        return any(row.kind == "close" for row in self.runs[run])

    def over(self, run: str) -> bool:
        return self.ended(run) or self.successor(run) < INFINITE

    @once
    def expired(self, run: str) -> bool:
        until = self.last_wall(run) + self.silence
        latest = min(max((self.last_wall(each) for each in self.participants()), default=0), self.listed_at())
        alone = not self.ended(run) and self.successor(run) > until
        return run in self.participants() and alone and latest > until

    @once
    def participants(self) -> list[str]:
        return [run for run, rows in self.runs.items() if rows[0].side in PARTICIPANTS]

    @once
    def closed_until(self) -> float:
        runs = self.participants()
        if not runs:
            return -INFINITE
        frontiers = [INFINITE]
        for run in runs:
            if not self.over(run) and not self.expired(run):
                marks = [row.wall for row in self.runs[run] if row.kind == "mark"]
                frontiers.append(min(max(marks) if marks else self.first_wall(run), self.listed_at()))
        return min(frontiers) - self.bound - 2 * self.grace

    def closed(self, time: int) -> bool:
        return (time // self.window + 1) * self.window <= self.closed_until()

    def _publications(self) -> dict[tuple[str, str, int], list[Row]]:
        found = defaultdict(list)
        for row in self.rows:
            if row.kind == "data" and row.outcome == "sent" and row.side != "relay":
                found[row.uuid, row.topic, row.sequence].append(row)
        return {each: sorted(rows, key=lambda row: (row.wall, row.run, row.number)) for each, rows in found.items()}

    def _commits(self) -> dict[tuple[str, int, int], list[Row]]:
        found = defaultdict(list)
        for row in self.rows:
            if row.kind == "data" and row.outcome in ("committed", "handed", "taken"):
                found[row.topic, row.position, row.nonce].append(row)
        return dict(found)

    def _intervals(self) -> list[Interval]:
        found = []
        for run, rows in self.runs.items():
            if rows[0].side == "replica" and run not in self.named:
                found += self.wholes(run)
                found += [] if self.relayed() else self._shown(run)
        return found

    def relayed(self) -> bool:
        return any(row.side == "relay" or row.kind == "parent" for row in self.rows)

    def _shown(self, run: str) -> list[Interval]:
        """The intervals that only receipts show: the begin of the run is missing."""
        rows = self.runs[run]
        if rows[0].number == 1:
            return []
        found = []
        for topic in {row.topic for row in rows if row.topic}:
            messages = [
                row
                for row in rows
                if row.kind == "data" and row.topic == topic and row.sequence > 0 and self.was_sent(row.uuid, topic)
            ]
            applied = [row for row in messages if row.outcome == "applied"]
            marks = [row for row in rows if row.kind in ("interest", "drop") and row.topic in (topic, "")]
            if not applied or any(mark.number < applied[0].number for mark in marks):
                continue
            begin = messages[0].number - 1
            first = {each: next((mark for mark in marks if mark.topic == each), None) for each in (topic, "")}
            drops = [mark for mark in marks if mark.kind == "drop" and (mark.topic == topic or mark == first[""])]
            drop = drops[0] if drops else None
            end = INFINITE if drop is None else drop.number
            syncs = tuple(
                row
                for row in rows
                if row.kind == "sync_end" and row.outcome in ("delta", "full") and row.topic in (topic, "")
                if begin < row.number < end
            )
            found.append(Interval(run, topic, begin, end, messages[0], drop, syncs, end, applied[0]))
        return found

    def wholes(self, run: str) -> list[Interval]:
        """The intervals of a run."""
        found = []
        rows = self.runs[run]
        for topic in {row.topic for row in rows if row.kind == "interest"}:
            begin: Row | None = None
            for row in rows:
                if row.topic == topic and row.kind == "interest" and begin is None:
                    begin = row
                elif row.topic == topic and row.kind == "drop" and begin is not None:
                    found.append(self._interval(run, topic, begin, row))
                    begin = None
            if begin is not None:
                found.append(self._interval(run, topic, begin, None))
        return found

    def _interval(self, run: str, topic: str, opened: Row, drop: Row | None) -> Interval:
        end = INFINITE if drop is None else drop.number
        syncs = tuple(
            row
            for row in self.runs[run]
            if row.kind == "sync_end"
            and row.outcome in ("delta", "full")
            and row.topic == topic
            and opened.number < row.number < end
        )
        return Interval(run, topic, opened.number, end, opened, drop, syncs, end)

    def skew(self, replica: str, publisher: str, time: int) -> int:
        if replica == publisher or not publisher:
            return 0
        window = time // self.window
        if (replica, publisher, window) not in self._skews:
            self._skews[replica, publisher, window] = self._measured(replica, publisher, window)
        return self._skews[replica, publisher, window]

    def _measured(self, replica: str, publisher: str, window: int) -> int:
        unit = max(100 * self.bound, 100_000)
        samples = [
            (
                1000 * (received.wall - ask.wall) - received.wall // unit * unit,
                received.wall - ask.wall,
                (ask.wall + received.wall) // 2 - sent.wall,
            )
            for ask in self.rows
            if ask.kind == "ask" and ask.host == replica
            for received in self.runs[ask.run]
            if received.kind == "hello" and received.peer == ask.peer and received.wall // self.window <= window
            for sent in self.rows
            if sent.kind == "hello" and sent.side in ("writer", "service") and sent.host == publisher
            if (sent.peer, sent.uuid) == (ask.peer, received.uuid)
        ]
        if samples:
            return min(samples)[-1]
        raw = [0]
        for row in self.receipts:
            if row.host == replica and (row.uuid, row.topic, row.sequence) in self.publications:
                sent = self.publications[row.uuid, row.topic, row.sequence][0]
                known = sent.wall // self.window <= window and row.wall <= self.horizon(sent.wall)
                if sent.host == publisher and known:
                    raw.append(row.wall - sent.wall)
        return min(raw)

    @once
    def matching(self, topic: str, name: str, *, polling: bool) -> list[Interval]:
        found = [
            each
            for each in self.intervals
            if each.topic in (topic, "")
            and self.runs[each.run][0].name == name
            and (each.run in self.polling) == polling
        ]
        return sorted(found, key=lambda each: (self.first_wall(each.run), each.run, each.begin))

    def horizon(self, time: int) -> int:
        return time + self.bound + 2 * self.grace

    def until(self, intervals: list[Interval], horizon: int) -> list[Interval]:
        """The intervals that were open at the horizon, with their syncs until then."""
        return [
            each._replace(syncs=tuple(row for row in each.syncs if row.wall <= horizon))
            for each in intervals
            if each.opened.wall <= horizon
        ]

    def names(self) -> list[str]:
        return sorted({rows[0].name for rows in self.runs.values() if rows[0].side == "replica"})

    def astray(self, receipt: Row) -> bool:
        for each in self.intervals:
            if each.run == receipt.run and each.topic in (receipt.topic, "") and each.begin < receipt.number:
                if receipt.number < each.end:
                    return False
                if each.dropped is not None and receipt.mono <= each.dropped.mono + self.grace:
                    return False
        return True

    # -- delivery ------------------------------------------------------------------------------------------------

    def items(self) -> list[Item]:
        found = []
        for (uuid, topic, sequence), rows in self.publications.items():
            first = rows[0]
            found.append(
                Item(
                    "publication",
                    first.service,
                    uuid,
                    topic,
                    sequence,
                    first.position,
                    first.nonce,
                    first.wall,
                    first.host,
                    first.written,
                )
            )
        points: dict[tuple[str, int, int], int] = {}
        for rows in self.publications.values():
            for row in rows:
                point = (row.topic, row.position, row.nonce)
                points[point] = min(points.get(point, row.wall), row.wall)
        for (topic, position, nonce), rows in self.commits.items():
            written = [row.written for row in rows if row.written > 0]
            p = min(written) if written else min(row.wall for row in rows)
            service = min((row.cause for row in rows if row.cause), default="")
            if points.get((topic, position, nonce), INFINITE) > self.horizon(p):
                found.append(Item("unpublished", service, "", topic, 0, position, nonce, p, ""))
            found.append(Item("polled", service, "", topic, 0, position, nonce, p, ""))
        if self.expects_what_was_sent:
            for topic, position, nonce in points.keys() - self.commits.keys():
                rows = self._sent_at((topic, position, nonce))
                p = min([row.written for row in rows if row.written > 0] or [row.wall for row in rows])
                service = min(row.service for row in rows)
                found.append(Item("polled", service, "", topic, 0, position, nonce, p, ""))
        return found

    def _sent_at(self, point: tuple[str, int, int]) -> list[Row]:
        """All records of publications with this topic and point."""
        every = (row for rows in self.publications.values() for row in rows)
        return [row for row in every if (row.topic, row.position, row.nonce) == point]

    @once
    def delivery(self) -> list[Verdict]:
        return sorted(row for each in (self, *self.branches) for row in each.judged())

    def judged(self) -> list[Verdict]:
        """The verdicts of the trunk, or of one branch."""
        found = []
        for item in self.items():
            for name in self.names():
                intervals = self.matching(item.topic, name, polling=item.kind == "polled")
                intervals = self.until(intervals, self.horizon(item.p))
                if intervals:
                    found.append(self._judge(item, name, intervals))
        for name, uuid, topic, sequence in self._unrecorded():
            over = self.closed(self.unrecorded_p(uuid, topic, sequence))
            what = ("unknown", "unrecorded") if over else ("pending", "")
            found.append(Verdict(name, "unrecorded", "", uuid, topic, sequence, 0, 0, *what, "", ""))
        return found

    def _received(self, item: Item, name: str) -> list[Row]:
        """All receipts of the item by this replica until its horizon, in order."""
        return [row for row in self._ever_received(item, name) if row.wall <= self.horizon(item.p)]

    def _ever_received(self, item: Item, name: str) -> list[Row]:
        """All receipts of the item by this replica, in order."""
        if item.kind != "publication":
            return []
        found = [
            row
            for row in self.receipts
            if row.name == name and (row.uuid, row.topic, row.sequence) == (item.uuid, item.topic, item.sequence)
        ]
        return sorted(found, key=lambda row: (self.first_wall(row.run), row.run, row.number))

    def _settled(self, item: Item, interval: Interval, received: Sequence[Row]) -> int | None:
        skew = self.skew(self.runs[interval.run][0].host, item.host, item.p)
        walls = [
            row.wall
            for row in received
            if row.run == received[0].run == interval.run and self._is_taken(row)
        ]
        if walls and min(walls) - skew <= item.p + self.bound:
            return min(walls)
        walls += [row.wall for row in self._applications(item, interval)]
        walls += [
            row.wall
            for row in interval.syncs
            if self._covers(row, item)
            and not self._replaced(item, interval, row.position, row.wall, row.number)
        ]
        return min(walls, default=None)

    def _is_taken(self, receipt: Row) -> bool:
        """Whether the replica applied a received message, or had shown before that it has the change."""
        if receipt.outcome != "old":
            return receipt.outcome == "applied"
        if any(hi <= receipt.number for _, _, hi, _ in self.gaps(receipt.run)):
            return True
        if self._is_undone(receipt.position, receipt.nonce):
            return self._reached(receipt.run, receipt.topic, receipt.number) >= receipt.position
        return any(self._shows(row, receipt) for row in self.runs[receipt.run] if row.number < receipt.number)

    def _shows(self, row: Row, receipt: Row) -> bool:
        """Whether a record of a replica shows that it has a received change."""
        if (row.kind, row.outcome) == ("sync_end", "full"):
            return row.topic in (receipt.topic, "") and row.position >= receipt.position
        point = (receipt.topic, receipt.position, receipt.nonce)
        return (row.kind, row.outcome) == ("data", "applied") and (row.topic, row.position, row.nonce) == point

    def _reached(self, run: str, topic: str, number: int) -> int:
        """The highest position that a run's records before a number show of a topic."""
        rows = self.runs[run]
        everything = any(row.kind == "interest" and not row.topic for row in rows)
        found = [
            row.prev_position if row.kind == "sync_begin" else row.position
            for row in rows
            if row.number < number and (everything or row.topic == topic)
            if row.kind in ("sync_begin", "sync_end") or (row.kind == "data" and row.outcome == "applied")
            if row.kind != "sync_end" or row.outcome in ("delta", "full")
        ]
        return max(found, default=-1)

    def _committed_at(self, item: Item) -> int:
        """The time of the commit of an item."""
        return min(item.p, item.written) if item.written > 0 else item.p

    def _replaced(self, item: Item, interval: Interval, position: int, wall: int, number: int) -> bool:
        """Whether what an interval had reached before the item was committed is of a history that a restore undid."""
        back = any(row.number > number and row.position < item.position for row in interval.syncs)
        return position >= item.position and wall < self._committed_at(item) - self.grace and back

    def _base(self, interval: Interval) -> int | None:
        """What the first sync shows that the replica has. Of a delta that is what it knew before."""
        if interval.reached is not None:
            return interval.reached.position
        if not interval.syncs:
            return None
        first = interval.syncs[0]
        return first.position if first.outcome == "full" else min(self._known_before(first), first.position)

    def _base_is_below(self, item: Item, interval: Interval) -> bool:
        base = self._base(interval)
        if base is None:
            return False
        first = interval.opened if interval.reached is not None else interval.syncs[0]
        number = interval.begin if interval.reached is not None else first.number
        replaced = self._replaced(item, interval, base, first.wall, number)
        return base < item.position or replaced or self._is_doubtful(item, interval)

    def _is_doubtful(self, item: Item, interval: Interval) -> bool:
        """Whether the record of an earlier sync than that of the base may be lost, and the item came after it."""
        if self._base(interval) is None or interval.reached is not None:
            return False
        first = interval.syncs[0].number
        lost = any(hi > interval.begin and lo < first for lo, _, hi, _ in self.gaps(interval.run))
        return lost and self._committed_at(item) >= interval.opened.wall - self.grace

    def _base_is_timely(self, item: Item, interval: Interval) -> bool:
        """Whether the base was read before, or at about, the time of the item's commit."""
        if interval.reached is not None or self._is_doubtful(item, interval):
            return True
        end = interval.syncs[0]
        begins = [
            row.wall
            for row in self.runs[end.run]
            if row.kind == "sync_begin" and (row.topic, row.sequence) == (end.topic, end.sequence)
        ]
        return min(begins, default=end.wall) <= self._committed_at(item) + self.grace

    def _applications(self, item: Item, interval: Interval) -> list[Row]:
        """What the replica applied of the item's point in the interval until the horizon."""
        return [row for row in self._ever_applied(item, interval) if row.wall <= self.horizon(item.p)]

    def _ever_applied(self, item: Item, interval: Interval) -> list[Row]:
        """What the replica applied of the item's point in the interval."""
        good = ("applied", "old") if item.kind == "polled" else ("applied",)
        return [
            row
            for row in self.runs[interval.run]
            if row.kind == "data"
            and row.outcome in good
            and interval.begin < row.number < interval.until
            and (row.topic, row.position, row.nonce) == (item.topic, item.position, item.nonce)
        ]

    def _sent(self, item: Item) -> list[Row]:
        """What the publications show that are an item's own."""
        point = (item.topic, item.position, item.nonce)
        if item.kind == "polled" and point not in self.commits:
            return [row for row in self._sent_at(point) if row.parts == 1]
        if item.kind != "publication":
            return []
        return self.publications[item.uuid, item.topic, item.sequence]

    def _contents(self, item: Item) -> list[set[int]]:
        """The hashes that were recorded until each hop: committed, handed, taken, sent."""
        rows = [
            row
            for row in self.commits.get((item.topic, item.position, item.nonce), [])
            if row.parts == 1 and (row.outcome == "committed" or row.wall <= self.horizon(item.p))
        ]
        found: list[set[int]] = [set()]
        for outcome in ("committed", "handed", "taken"):
            found.append(found[-1] | {row.hash for row in rows if row.outcome == outcome})
        sent = self._sent(item)
        found.append(found[-1] | {row.hash for row in sent if sent[0].parts == 1})  # of a split link nothing
        return found[1:]

    def _changed_at(self, item: Item) -> str:
        """The first hop behind which another content is recorded; "" if there is none until the sending."""
        for hashes, hop in zip(self._contents(item), ("writer", "writer", "hop", "publisher"), strict=True):
            if len(hashes) > 1:
                return hop
        return ""

    def _covers(self, end: Row, item: Item) -> bool:
        """Whether a sync read the item. What a delta brought is shown by the links that the replica applied."""
        if end.outcome == "full":
            return end.position >= item.position
        return self._known_before(end) < item.position <= end.position and self._is_undone(item.position, item.nonce)

    def _is_undone(self, position: int, nonce: int) -> bool:
        """Whether the position of a point was used again, after a restore."""
        return any(each != nonce for each in self._nonces().get(position, ()))

    @once
    def _nonces(self) -> dict[int, set[int]]:
        """The nonces of the commits of all topics, by position."""
        found: dict[int, set[int]] = defaultdict(set)
        for _, position, nonce in self.commits:
            found[position].add(nonce)
        return found

    def _polled(self, item: Item, interval: Interval) -> int | None:
        """The time when a polling replica recorded the item itself."""
        walls = [
            row.wall
            for row in self.runs[interval.run]
            if row.kind == "data"
            and row.outcome in ("applied", "old")
            and interval.begin < row.number < interval.end
            and (row.topic, row.position, row.nonce) == (item.topic, item.position, item.nonce)
            and row.wall <= self.horizon(item.p)
        ]
        return min(walls, default=None) if item.kind == "polled" else None

    def _judge(self, item: Item, name: str, intervals: list[Interval]) -> Verdict:
        def verdict(what: str, detail: str = "", blame: str = "", way: str = "") -> Verdict:
            return Verdict(name, *item[:7], what, detail, blame, way)

        every = self._received(item, name)
        sent = self._sent(item)
        hashes = {row.hash for row in [*every, *sent]}
        changed_at = self._changed_at(item)
        where = changed_at or ("publisher" if len({row.hash for row in sent}) > 1 else "wire")
        is_other = len(hashes) > 1 or changed_at != ""
        received = [row for row in every if not self.astray(row)]
        if received:
            first = received[0]
            interval = [each for each in intervals if each.run == first.run and each.begin < first.number][-1]
            settled = self._settled(item, interval, received)
            if settled is not None:
                what = "corrupt" if is_other else self._delivered(item, first, received, settled)
                return verdict(what, where if is_other else "", way="message")
            if is_other:
                return verdict("corrupt", where, way="message")
        candidates = [each for each in intervals if self._base_is_below(item, each)]
        candidates = [each for each in candidates if self._base_is_timely(item, each)] or candidates
        if not candidates:
            if any(self._base(each) is not None for each in intervals):
                return verdict("excused", "covered")
            ends = [self._end(each) for each in intervals]
            if all(end is not None and end <= self.horizon(item.p) for end in ends):
                return verdict("excused", "not following")
            return verdict("unknown", "no sync") if self.closed(item.p) else verdict("pending")
        if item.kind == "unpublished" and not self.closed(item.p):
            return verdict("pending")
        interval = candidates[-1]
        skew = self.skew(self.runs[interval.run][0].host, item.host, item.p)
        settled, polled = self._settled(item, interval, received), self._polled(item, interval)
        applied = {row.hash for row in self._applications(item, interval) if row.parts == 1}
        if applied and len(applied | self._contents(item)[-1]) > 1:
            if item.kind == "polled":
                return verdict("corrupt", changed_at or "polling", way="polling")
            return verdict("corrupt", changed_at or "sync", self._blame(item, bool(received)), "repair")
        if settled is not None and settled == polled:
            return verdict("ok" if polled <= item.p + self.bound else "late", way="polling")
        opened, end = interval.opened.wall, self._end(interval)
        read = opened > item.p + 2 * self.grace or (settled is not None and settled <= opened + self.bound)
        if interval.reached is not None and item.p < opened - skew and read:
            return verdict("excused", "covered")
        if interval.end < interval.until and end is not None and end - skew <= item.p:
            return verdict("excused", "stopped")
        if self._is_not_stored(item) and not self._applications(item, interval):
            return verdict("excused", "not stored")
        if self._hidden(item, interval, skew):
            return verdict("unknown", "gap")
        unproved = self._is_doubtful(item, interval) and (self._base(interval) or 0) >= item.position
        if unproved and not self._applications(item, interval):
            return verdict("unknown", "gap") if self.closed(item.p) else verdict("pending")
        if item.kind == "unpublished" and self._hidden_at_publisher(item):
            return verdict("unknown", "gap of a publisher")
        point = (item.topic, item.position, item.nonce)
        if item.kind == "unpublished" and settled is not None and self._shown_until(point, self.horizon(item.p)):
            return verdict("unknown", "unrecorded")
        blame = self._blame(item, bool(received))
        if settled is not None:
            return verdict("repaired" if settled - skew <= item.p + self.bound else "late", "", blame, "repair")
        if end is not None and end - skew < item.p + self.bound:
            if self._broke_off(interval):
                if self._is_covered_later(item, interval, intervals):
                    return verdict("excused", "covered")
                if self._committed_at(item) <= self.successor(interval.run) + self.grace:
                    return verdict("unknown", "gap") if self.closed(item.p) else verdict("pending")
            if self._is_back_without_a_sync(item, interval, intervals, skew):
                return verdict("unknown", "no sync") if self.closed(item.p) else verdict("pending")
            return verdict("excused", "stopped")
        if not self.closed(item.p):
            return verdict("pending")
        belated = self._belated(item, name, interval, blame)
        return verdict(*belated or ("lost", self._where(item, interval.run), blame))

    def _broke_off(self, interval: Interval) -> bool:
        """Whether nothing shows that the run was stopped in order."""
        moves = any(row.kind == "parent" for row in self.runs[interval.run])
        return interval.dropped is None and not moves and not self.ended(interval.run)

    def _is_covered_later(self, item: Item, broken: Interval, intervals: list[Interval]) -> bool:
        """Whether the first sync of a later interval has the item."""
        later = intervals[intervals.index(broken) + 1 :]
        since = self._committed_at(item) - self.grace
        return any(
            (self._base(each) or 0) >= item.position and each.syncs[0].wall >= since
            for each in later
            if each.reached is None and each.syncs
        )

    def _is_back_without_a_sync(self, item: Item, stopped: Interval, intervals: list[Interval], skew: int) -> bool:
        """Whether the replica came back in time after this interval, and read nothing."""
        later = intervals[intervals.index(stopped) + 1 :]
        if any(self._base(each) is not None for each in later):
            return False
        p = item.p + skew
        for each in later:
            opened, end = each.opened.wall, self._end(each)
            until = max(p, opened) + self.bound
            stays = end is None or end > self.horizon(item.p) or end >= until
            if opened <= p + min(self.bound, 2 * self.grace) and stays:
                return True
        return False

    def _belated(self, item: Item, name: str, interval: Interval, blame: str) -> tuple[str, str, str, str] | None:
        """Verdict, detail, blame and way of an item that was settled after its horizon; None: it never was."""
        (whole,) = [each for each in self.intervals if each[:3] == interval[:3]]
        applied = self._ever_applied(item, interval)
        covering = [
            row.wall
            for row in whole.syncs
            if self._covers(row, item) and row.wall > self.horizon(item.p)
        ]
        if not applied and not covering:
            return ("late", "", blame, "repair") if self._returned(item, name, interval) else None
        every = self._ever_received(item, name)
        came = [row for row in every if not self.astray(row)]
        by_message = bool(came) and came[0].run == interval.run
        by_polling = item.kind == "polled" and min((row.wall for row in applied), default=INFINITE) <= min(
            covering, default=INFINITE
        )
        way = "message" if by_message else "polling" if by_polling else "repair"
        blame = blame if way == "repair" else ""
        changed_at, sent = self._changed_at(item), {row.hash for row in self._sent(item)}
        if by_message:
            if changed_at or len({row.hash for row in every} | sent) > 1:
                return "corrupt", changed_at or ("publisher" if len(sent) > 1 else "wire"), "", way
            if sum(row.run == interval.run and row.outcome == "applied" for row in came) > 1:
                return "duplicate_applied", "", "", way
            if self._stale(item, interval.run, INFINITE):
                return "stale_applied", "", "", way
            return "late", "", "", way
        hashes = {row.hash for row in applied if row.parts == 1}
        if hashes and len(hashes | self._contents(item)[-1]) > 1:
            return "corrupt", changed_at or ("polling" if item.kind == "polled" else "sync"), blame, way
        return "late", "", blame, way

    def _returned(self, item: Item, name: str, interval: Interval) -> bool:
        """Whether a later interval of the replica began with a sync that has the item."""
        every = self.matching(item.topic, name, polling=item.kind == "polled")
        (place,) = [number for number, each in enumerate(every) if each[:3] == interval[:3]]
        since = self._committed_at(item) - self.grace
        return any(
            (self._base(each) or 0) >= item.position and each.syncs[0].wall >= since
            for each in every[place + 1 :]
            if each.reached is None and each.syncs
        )

    def _end(self, interval: Interval) -> int | None:
        if interval.dropped is not None:
            return interval.dropped.wall
        return self.last_wall(interval.run) if self.over(interval.run) else None

    def _delivered(self, item: Item, first: Row, received: list[Row], settled: int) -> str:
        run = first.run
        here = [row for row in received if row.run == run]
        if sum(row.outcome == "applied" for row in here) > 1:
            return "duplicate_applied"
        if self._stale(item, run, self.horizon(item.p)):
            return "stale_applied"
        if settled - self.skew(first.host, item.host, item.p) > item.p + self.bound:
            return "late"
        stream = (item.uuid, item.topic)
        last = max(sequence for *each, sequence in self.publications if tuple(each) == stream)
        if any(
            row.run == run
            and (row.uuid, row.topic) == (item.uuid, item.topic)
            and item.sequence < row.sequence <= last
            and row.number < first.number
            and not self.astray(row)
            for row in self.receipts
        ):
            return "reordered"
        return "duplicate_dropped" if len(here) > 1 else "ok"

    def _stale(self, item: Item, run: str, until: float) -> bool:
        newest: dict[tuple[str, str], int] = {}
        for row in self.runs[run]:
            if row.kind == "sync_end" and row.outcome == "full" and row.topic in (item.topic, ""):
                newest = {}
            if row.kind != "data" or row.outcome != "applied" or row.topic != item.topic:
                continue
            mine = (row.position, row.nonce) == (item.position, item.nonce)
            mine = mine and row.wall <= until
            if mine and any(newest.get((each.table, each.key), -1) > each.version for each in row.changes):
                return True
            for each in row.changes:
                newest[each.table, each.key] = max(newest.get((each.table, each.key), -1), each.version)
        return False

    def _hidden(self, item: Item, interval: Interval, skew: int) -> bool:
        signs = [
            interval.begin,
            *(
                row.number
                for row in self.runs[interval.run]
                if interval.begin < row.number <= interval.end
                and (
                    (row.kind == "data" and interval.topic in (row.topic, ""))
                    or (row.kind in ("drop", "sync_begin", "sync_end") and row.topic == interval.topic)
                )
            ),
        ]
        committed = self._committed_at(item)
        for lo, lo_wall, hi, hi_wall in self.gaps(interval.run):
            inside = hi > interval.begin and lo < interval.end
            around = hi_wall - skew >= committed or lo >= max(signs)
            known = lo_wall <= self.horizon(item.p)
            at_end = hi == INFINITE and lo_wall - skew < item.p + self.bound
            if inside and known and (lo_wall - skew <= item.p + self.grace or at_end) and around:
                return True
        return False

    def _hidden_at_publisher(self, item: Item) -> bool:
        runs = [run for run, rows in self.runs.items() if rows[0].side in ("writer", "service")]
        sending = [run for run in runs if self.runs[run][0].side == "service" or self._sends(run)]
        if not any(self.first_wall(run) <= self.horizon(item.p) for run in sending):
            return True
        return any(
            lo_wall <= item.p + self.grace and hi_wall >= item.p
            for run in runs
            for _, lo_wall, _, hi_wall in self.gaps(run)
        )

    @once
    def _sends(self, run: str) -> bool:
        return any(row.kind == "data" and row.outcome == "sent" for row in self.runs[run])

    def _blame(self, item: Item, received: bool) -> str:
        if received:
            return "subscriber"
        if item.kind == "publication":
            return "wire"
        if item.kind == "polled":
            return "polling"
        rows = self.commits[item.topic, item.position, item.nonce]
        outcomes = {row.outcome for row in rows if row.wall <= self.horizon(item.p)}
        return "service" if "taken" in outcomes else "hop" if "handed" in outcomes else "writer"

    def _where(self, item: Item, run: str) -> str:
        if item.kind != "publication":
            return ""
        received = [
            row.sequence
            for row in self.receipts
            if row.run == run
            and (row.uuid, row.topic) == (item.uuid, item.topic)
            and row.wall <= self.horizon(item.p)
            and not self.astray(row)
        ]
        if not received or item.sequence > max(received):
            return "suffix"
        return "prefix" if item.sequence < min(received) else "middle"

    # -- unexpected receipts and unrecorded publications ---------------------------------------------------------------

    def _is_phantom(self, uuid: str, topic: str, sequence: int) -> bool:
        mine = sorted(
            (row for rows in self.publications.values() for row in rows if row.uuid == uuid),
            key=lambda row: (row.wall, row.run, row.number),
        )
        runs = {row.run for row in mine}
        p = self.unrecorded_p(uuid, topic, sequence)
        if not mine or not self.closed(p) or any(self._holed(run, p) for run in runs):
            return False
        received = [
            row.wall - self.skew(row.host, mine[0].host, self.unrecorded_p(uuid, topic, sequence))
            for row in self.receipts
            if (row.uuid, row.topic, row.sequence) == (uuid, topic, sequence)
        ]
        return max(self.last_wall(run) for run in runs) >= min(received)

    def unrecorded_p(self, uuid: str, topic: str, sequence: int) -> int:
        """The p of an unrecorded item."""
        walls = [row.wall for row in self.receipts if (row.uuid, row.topic, row.sequence) == (uuid, topic, sequence)]
        later = [each for each in self.publications if each[:2] == (uuid, topic) and each[2] > sequence]
        return min(walls) if walls else self.publications[min(later)][0].wall

    def _holed(self, run: str, time: int) -> bool:
        return any(lo_wall <= self.horizon(time) for _, lo_wall, _, _ in self.gaps(run))

    def _unrecorded(self) -> list[tuple[str, str, str, int]]:
        received = {(row.uuid, row.topic, row.sequence) for row in self.receipts}
        missing = {each for each in received if self._is_unrecorded(*each) and not self._commit_stands_for(*each)}
        streams = defaultdict(set)
        runs: dict[str, set[str]] = defaultdict(set)
        for (uuid, topic, sequence), rows in self.publications.items():
            streams[uuid, topic].add(sequence)
            runs[uuid] |= {row.run for row in rows}
        for (uuid, topic), sequences in streams.items():
            for one, two in pairwise(sorted(sequences)):
                after = self.publications[uuid, topic, two][0].wall
                if any(self._holed(run, after) for run in runs[uuid]):
                    unreceived = [each for each in range(one + 1, two) if (uuid, topic, each) not in received]
                    stand = self._commits_between(uuid, topic, one, two)
                    missing |= {(uuid, topic, each) for each in unreceived[stand:]}
        return [
            (name, *each)
            for each in missing
            for name in self.names()
            if self.until(self.matching(each[1], name, polling=False), self.horizon(self.unrecorded_p(*each)))
        ]

    def _is_unrecorded(self, uuid: str, topic: str, sequence: int) -> bool:
        return (uuid, topic, sequence) not in self.publications and not self._is_phantom(uuid, topic, sequence)

    def _published_until(self, point: tuple[str, int, int], time: int) -> bool:
        every = (row for rows in self.publications.values() for row in rows)
        return any((row.topic, row.position, row.nonce) == point and row.wall <= time for row in every)

    def _shown_until(self, point: tuple[str, int, int], time: int) -> bool:
        """Whether a receipt of an unrecorded message shows the point."""
        return any(
            (row.topic, row.position, row.nonce) == point
            and row.wall <= time
            and self._is_unrecorded(row.uuid, row.topic, row.sequence)
            for row in self.receipts
        )

    def _commit_stands_for(self, uuid: str, topic: str, sequence: int) -> bool:
        """Whether an unpublished commit represents the delivery."""
        horizon = self.horizon(self.unrecorded_p(uuid, topic, sequence))
        points = {
            (row.topic, row.position, row.nonce)
            for row in self.receipts
            if (row.uuid, row.topic, row.sequence) == (uuid, topic, sequence)
        }
        return any(point in self.commits and not self._published_until(point, horizon) for point in points)

    def _commits_between(self, uuid: str, topic: str, one: int, two: int) -> int:
        """The number of unpublished commits that the sequences between two neighbours may have carried."""
        before, after = self.publications[uuid, topic, one][0], self.publications[uuid, topic, two][0]
        horizon = self.horizon(after.wall)
        return sum(
            point[0] == topic
            and before.position < point[1] < after.position
            and min((row.cause for row in rows if row.cause), default="") in ("", after.service)
            and not self._published_until(point, horizon)
            and not self._shown_until(point, horizon)
            for point, rows in self.commits.items()
        )

    @once
    def strays(self) -> list[Stray]:
        return sorted({row for each in (self, *self.branches) for row in each.unexpected()})

    def unexpected(self) -> set[Stray]:
        """The strays of the trunk, or of one branch."""
        found = set()
        for row in self.receipts:
            if (row.uuid, row.topic, row.sequence) not in self.publications:
                if self._is_phantom(row.uuid, row.topic, row.sequence):
                    found.add(Stray(row.name, row.uuid, row.topic, row.sequence, "phantom"))
                elif self._is_foreign(row):
                    found.add(Stray(row.name, row.uuid, row.topic, row.sequence, "unknown"))
            elif self.astray(row) and not any(lo < row.number for lo, _, _, _ in self.gaps(row.run)):
                found.add(Stray(row.name, row.uuid, row.topic, row.sequence, "misrouted"))
        return found

    def _is_foreign(self, row: Row) -> bool:
        """Whether a receipt is of an unrecorded message of which the replica expects nothing."""
        p = self.unrecorded_p(row.uuid, row.topic, row.sequence)
        listening = self.until(self.matching(row.topic, row.name, polling=False), self.horizon(p))
        return self.astray(row) and self.closed(p) and not listening

    def timed(self) -> list[tuple[Verdict | Stray, int]]:
        """The rows of delivery and strays, each with the time that decides its window."""
        times: dict[tuple[object, ...], int] = {item[:7]: item.p for item in self.items()}
        found: list[tuple[Verdict | Stray, int]] = [pair for each in self.branches for pair in each.timed()]
        for row in self.judged():
            of_item = tuple(row)[1:8]
            unrecorded = row.kind == "unrecorded"
            time = self.unrecorded_p(row.uuid, row.topic, row.sequence) if unrecorded else times[of_item]
            found.append((row, time))
        for stray in self.unexpected():
            walls = [
                row.wall for row in self.receipts if (row.name, row.uuid, row.topic, row.sequence) == tuple(stray)[:4]
            ]
            found.append((stray, min(walls)))
        return found

    # -- store to publisher ------------------------------------------------------------------------------------------

    @once
    def store(self) -> list[StoreFinding]:
        rotten = {
            StoreFinding(row.topic, 0, 0, "rot")
            for row in self.rows
            if (row.kind, row.side, row.cause) == ("rot", "service", "store")
        }
        limits = [row for row in self.rows if row.kind == "changelog"]
        if not limits:
            return sorted(rotten)
        floor, head = min(row.prev_position for row in limits), max(row.position for row in limits)
        committed = {
            (row.topic, row.position, row.nonce): row
            for row in self.rows
            if row.kind == "data" and row.outcome == "committed"
        }
        sent = {(row.topic, row.position, row.nonce) for rows in self.publications.values() for row in rows}
        found = rotten
        for point in self.commits.keys() - committed.keys() - sent:
            if floor < point[1] <= head:
                is_lost = self._survived(point[1]) > self._commit_p(point)
                found.add(StoreFinding(*point, "unknown" if is_lost else "phantom_commit"))
        for item in self.items():
            point = (item.topic, item.position, item.nonce)
            certain = self.closed(item.p) and not self._hidden_at_publisher(item) and point not in sent
            if item.kind == "unpublished" and point in committed and certain:
                found.add(StoreFinding(*point, "unpublished"))
        found |= {
            StoreFinding(*point, "unknown" if self._may_be_restored(point, floor) else "phantom_publish")
            for point in sent
            if floor < point[1] <= head and point not in committed
        }
        by_topic = defaultdict(list)
        for point, row in committed.items():
            by_topic[point[0]].append(row)
        for rows in by_topic.values():
            rows.sort(key=lambda row: (row.position, row.nonce))
            for one, two in pairwise(rows):
                if (two.prev_position, two.prev_nonce) != (one.position, one.nonce):
                    found.add(StoreFinding(two.topic, two.position, two.nonce, "chain_broken"))
        return sorted(found)

    @once
    def _in_changelog(self) -> frozenset[tuple[str, int, int]]:
        every = (row for row in self.rows if row.kind == "data" and row.outcome == "committed")
        return frozenset((row.topic, row.position, row.nonce) for row in every)

    @once
    def _survived(self, position: int) -> float:
        """When the store had certainly another commit at this position, or later ones."""
        return min((self._commit_p(each) for each in self._in_changelog() if each[1] >= position), default=INFINITE)

    def _is_not_stored(self, item: Item) -> bool:
        """Whether the store lacked the change when it had to be in every replica."""
        limits = [row for row in self.rows if row.kind == "changelog"]
        if not limits or (item.topic, item.position, item.nonce) in self._in_changelog():
            return False
        floor, head = min(row.prev_position for row in limits), max(row.position for row in limits)
        return floor < item.position <= head and self._survived(item.position) <= item.p + self.bound

    def _may_be_restored(self, point: tuple[str, int, int], floor: int) -> bool:
        """Whether a restored backup may have replaced the history with this point."""
        sent = [
            row
            for rows in self.publications.values()
            for row in rows
            if (row.topic, row.position, row.nonce) == point
        ]
        p = min(row.wall for row in sent)
        committed_at = min([p, *(row.written for row in sent if row.written > 0)])
        survived = self._survived(point[1])
        noticed = survived + self.bound + 2 * self.grace
        if survived <= committed_at:
            return False
        if any(p - self.grace <= wall < noticed for wall in self._signs_of_a_restore(floor)):
            return True
        return not any(
            each.topic in (point[0], "")
            and each.opened.wall <= p
            and (self.last_wall(each.run) if each.dropped is None else each.dropped.wall) >= noticed
            for each in self.intervals
        )

    def _signs_of_a_restore(self, floor: int) -> list[int]:
        """When replicas noticed that the history had been replaced."""
        found = []
        for row in self.rows:
            if row.kind == "sync_begin" and row.cause == "history changed":
                found.append(row.wall)
            if row.kind == "sync_end" and row.outcome == "incomplete" and self._known_before(row) > floor:
                found.append(row.wall)
        return found

    def _known_before(self, end: Row) -> int:
        """The position that the begin of a sync records as known."""
        begins = [
            row.prev_position
            for row in self.runs[end.run]
            if row.kind == "sync_begin" and (row.topic, row.sequence) == (end.topic, end.sequence)
        ]
        return min(begins, default=0)

    def _commit_p(self, commit: tuple[str, int, int]) -> int:
        """The p of a commit."""
        rows = self.commits[commit]
        written = [row.written for row in rows if row.written > 0]
        return min(written) if written else min(row.wall for row in rows)

    # -- state ---------------------------------------------------------------------------------------------------

    def _listings(self, side: str) -> dict[tuple[str, str], tuple[Row, dict[tuple[str, str], tuple[int, int]]]]:
        """(name, topic) -> the last complete listing: its end, and its objects' versions and hashes."""
        found: dict[tuple[str, str], tuple[Any, Row, dict[tuple[str, str], tuple[int, int]]]] = {}
        for run, rows in self.runs.items():
            if rows[0].side != side:
                continue
            for end in (row for row in rows if row.kind == "listing"):
                objects = {}
                number = 0
                for row in rows:
                    if row.kind == "object" and (row.topic, row.sequence) == (end.topic, end.sequence):
                        number += 1
                        objects[row.changes[0].table, row.changes[0].key] = (
                            row.changes[0].version,
                            row.changes[0].hash,
                        )
                if number != end.count:
                    continue
                order: Any = (
                    (end.position, run, end.sequence) if side == "store" else (self.first_wall(run), run, end.number)
                )
                who = "" if side == "store" else end.name
                if (who, end.topic) not in found or order > found[who, end.topic][0]:
                    found[who, end.topic] = (order, end, objects)
            for end in self._unlisted(run) if side == "replica" else ():
                order = (self.first_wall(run), run, end.number)
                if (end.name, end.topic) not in found or order > found[end.name, end.topic][0]:
                    found[end.name, end.topic] = (order, end, {})
        return {each: (end, objects) for each, (_, end, objects) in found.items()}

    def _unlisted(self, run: str) -> list[Row]:
        """Empty listings of the topics that a replica of everything does not list, and the store has."""
        rows = self.runs[run]
        ends = [row for row in rows if row.kind == "listing"]
        subscribed = [row.kind for row in rows if row.kind in ("interest", "drop") and row.topic == ""]
        if not ends or self.gaps(run) or subscribed[-1:] != ["interest"]:
            return []
        stored = {topic for (_, topic), (_, objects) in self._listings("store").items() if objects}
        there = {row.topic for row in rows if row.kind in ("object", "listing")}
        return [msgspec.structs.replace(ends[-1], topic=topic, count=0) for topic in sorted(stored - there)]

    @once
    def state(self) -> list[Difference]:
        return sorted([*self._listed_differences(), *self._held_differences()], key=str)

    def _held_differences(self) -> set[Difference]:
        links = [row for row in self.rows if row.kind == "data" and row.outcome == "committed"]
        points = {(row.position, row.nonce) for row in links}
        found = set()
        for run, rows in self.runs.items():
            if rows[0].side != "replica":
                continue
            last: dict[str, Row] = {}
            for row in rows:
                if row.kind == "held" and self.expects_what_was_sent and self._is_refuted(row):
                    found.add(Difference(row.name, row.topic, "", "", "diverged", 0, None))
                if row.kind == "rot" and row.cause == "memory":
                    found.add(Difference(row.name, row.topic, "", "", "rot", 0, None))
                if row.kind != "held":
                    continue
                last[row.topic] = row
                until = [each for each in links if each.topic == row.topic and each.position <= row.position]
                if until and (row.position, row.nonce) in points:
                    link = max(until, key=lambda each: (each.position, each.run, each.number))
                    if (link.count, link.digest) != (row.count, row.digest):
                        found.add(Difference(row.name, row.topic, "", "", "diverged", 0, None))
            for topic in contradicted_by_listings(rows, self.gaps(run)):
                found.add(Difference(rows[0].name, topic, "", "", "diverged", 0, None))
            for topic, held in last.items():
                if self._contradicts(held, rows, [hi for _, _, hi, _ in self.gaps(run)]):
                    found.add(Difference(held.name, topic, "", "", "diverged", 0, None))
        return found

    @once
    def _by_publishers(self, topic: str) -> list[Row]:
        """What publishers recorded about the links of a topic, in the order of their positions."""
        found = [
            row
            for row in self.rows
            if row.kind == "data" and row.side in ("writer", "service") and row.parts == 1 and row.topic == topic
            if row.outcome in ("handed", "taken", "sent")
        ]
        return sorted(found, key=lambda row: (row.position, row.run, row.number))

    @once
    def _published_points(self) -> set[tuple[int, int]]:
        return {(row.position, row.nonce) for topic in {row.topic for row in self.rows}
                for row in self._by_publishers(topic)}  # fmt: skip

    def _is_refuted(self, held: Row) -> bool:
        """Whether publishers recorded another content of the topic at the same point."""
        point, content = (held.position, held.nonce), (held.count, held.digest)
        links = self._by_publishers(held.topic)
        here = [(row.count, row.digest) for row in links if (row.position, row.nonce) == point]
        if here:
            return content not in here
        below = [row for row in links if row.position <= held.position]
        above = [row for row in links if row.position > held.position]
        if point not in self._published_points() or not below or not above:
            return False
        last = below[-1]
        follows = (above[0].prev_position, above[0].prev_nonce) == (last.position, last.nonce)
        return follows and (last.count, last.digest) != content

    def _contradicts(self, held: Row, rows: Sequence[Row], gaps: Sequence[float]) -> bool:
        """Whether the replica recorded before that it has a later change, and no full sync led back."""
        since = max((hi for hi in gaps if hi <= held.number), default=0)
        for row in rows:
            if row.kind == "sync_end" and row.outcome == "full" and row.topic in (held.topic, ""):
                since = max(since, row.number) if row.number < held.number else since
        return any(
            row.topic == held.topic
            and since <= row.number < held.number
            and row.position > held.position
            and (
                (row.kind == "data" and row.outcome in ("applied", "old"))
                or (row.kind == "sync_end" and row.outcome == "delta")
            )
            for row in rows
        )

    def _listed_differences(self) -> list[Difference]:
        stored = self._listings("store")
        limits = [row for row in self.rows if row.kind == "changelog"]
        changes: dict[tuple[str, str, str], dict[int, tuple[str, int]]] = defaultdict(dict)
        for row in self.rows:
            if row.kind == "data" and row.outcome == "committed":
                for each in row.changes:
                    changes[row.topic, each.table, each.key][each.version] = (each.action, row.written)
        links = [row for row in self.rows if row.kind == "data" and row.outcome == "committed"]
        points = {(row.position, row.nonce) for row in links}
        found: list[Difference] = []
        if not stored:
            return found
        found += [Difference(*each, "", "", "unknown", 0, None) for each in lacking_listings(self)]
        for (name, topic), (mine, held) in self._listings("replica").items():
            if ("", topic) not in stored and mine.position == 0 and not held:
                continue
            if ("", topic) not in stored or mine.position > stored["", topic][0].position:
                read = stored["", topic][0].wall if ("", topic) in stored else 0
                verdict = "foreign_history" if read > mine.wall + self.grace else "unknown"
                found.append(Difference(name, topic, "", "", verdict, 0, None))
                continue
            end, there = stored["", topic]
            floor = min(row.prev_position for row in limits) if limits else end.position
            if limits and mine.position > floor and (mine.position, mine.nonce) not in points:
                if not self._held_later(mine, points):
                    found.append(Difference(name, topic, "", "", "unknown", 0, None))
                continue
            for table, key in held.keys() | there.keys():
                one = held.get((table, key))
                two = there.get((table, key))
                verdict = self._compare(one, two, changes[topic, table, key], mine, end.position, floor)
                if not verdict:
                    continue
                low = one[0] if one else -1
                high = two[0] if two else end.position
                between = {
                    version: written
                    for version, (_, written) in changes[topic, table, key].items()
                    if low < version <= high
                }
                first = between[min(between)] if between else 0
                behind = mine.wall - first if first > 0 else None
                found.append(Difference(name, topic, table, key, verdict, len(between), behind))
        return found

    def _held_later(self, listing: Row, points: set[tuple[int, int]]) -> bool:
        """Whether the replica recorded later that it holds the topic at a point in the changelog."""
        return any(
            (row.kind, row.side, row.name, row.topic) == ("held", "replica", listing.name, listing.topic)
            and (self.first_wall(row.run), row.run, row.number)
            > (self.first_wall(listing.run), listing.run, listing.number)
            and (row.position, row.nonce) in points
            for row in self.rows
        )

    def _compare(
        self,
        one: tuple[int, int] | None,
        two: tuple[int, int] | None,
        changes: dict[int, tuple[str, int]],
        mine: Row,
        head: int,
        floor: int,
    ) -> str:
        def due(version: int) -> bool:
            written = changes[version][1] if version in changes else 0
            return version <= mine.position or (written > 0 and written + self.bound <= mine.wall)

        if one is None:
            assert two is not None
            return "missing" if due(two[0]) else "behind"
        if two is not None:
            if one[0] < two[0]:
                return "stale" if due(two[0]) else "behind"
            return "wrong_value" if one != two else ""
        deletes = [
            version for version, (action, _) in changes.items() if action == "delete" and one[0] < version <= head
        ]
        if deletes:
            return "zombie" if due(min(deletes)) else "behind"
        return "zombie" if mine.position >= floor else "unknown"

    # -- sums ----------------------------------------------------------------------------------------------------

    def balance(self) -> dict[str, int]:
        found = dict.fromkeys(("expected", "delivered", "repaired", "lost", "pending", "excused", "unknown"), 0)
        for row in self.delivery():
            found["expected"] += 1
            if row.way in ("message", "polling"):
                found["delivered"] += 1
            elif row.way == "repair":
                found["repaired"] += 1
            else:
                found[row.verdict] += 1
        return found

    def silent(self) -> list[str]:
        return sorted(run for run in self.participants() if self.expired(run) and not self.over(run))

    def listed_at(self) -> float:
        """The time at which the folders were listed, not earlier than the last record minus the time of reading."""
        if self.listed is None:
            return INFINITE
        wall, took = self.listed
        return max([wall, *(self.last_wall(run) - took for run in self.participants())])

    def headless(self) -> list[str]:
        replicas = (run for run in self.participants() if self.runs[run][0].side == "replica")
        return sorted(run for run in replicas if self._lost_its_begin(run))

    def _lost_its_begin(self, run: str) -> bool:
        numbers = [row.number for row in self.runs[run]]
        return min(numbers) > 1 or (not self.follows(run) and len(set(numbers)) < max(numbers))

    def unsubscribed(self) -> list[str]:
        """Runs of replicas that have records of a topic whose subscription is among the lost records."""
        replicas = (run for run in self.participants() if self.runs[run][0].side == "replica")
        return sorted(run for run in replicas if not self._lost_its_begin(run) and self._lost_a_subscription(run))

    def _lost_a_subscription(self, run: str) -> bool:
        rows = self.runs[run]
        holes = [two.number for one, two in pairwise(rows) if two.number != one.number + 1]
        for row in rows:
            if row.kind not in ("sync_begin", "held") or not any(number <= row.number for number in holes):
                continue
            follows = False
            for topic in {row.topic, ""}:
                marks = [
                    each
                    for each in rows
                    if each.kind in ("interest", "drop") and each.topic == topic and each.number < row.number
                ]
                if marks and (marks[-1].kind == "interest" or row.mono <= marks[-1].mono + self.grace):
                    follows = True
            if not follows:
                return True
        return False

    def holed_publishers(self) -> list[str]:
        """Runs of publishers that lost records between others."""
        publishers = (run for run in self.participants() if self.runs[run][0].side != "replica")
        return sorted(run for run in publishers if any(lo > 0 and hi < INFINITE for lo, _, hi, _ in self.gaps(run)))

    def overlaps(self) -> list[tuple[str, str]]:
        """Each run of a replica that began during another one of its name, and the latest such other one."""
        replicas = [run for run in self.participants() if self.runs[run][0].side == "replica"]
        begun = sorted((self.first_wall(run), run) for run in replicas)
        found = []
        for place, (first, run) in enumerate(begun):
            mine = self.runs[run][0]
            others = []
            for _, other in begun[:place]:
                theirs = self.runs[other][0]
                late = self.last_wall(other) - (0 if theirs.host == mine.host else self.grace)
                if theirs.name == mine.name and late > first:
                    others.append((theirs.host == mine.host, self.last_wall(other), other))
            if others:
                found.append((run, max(others)[2]))
        return sorted(found)

    def unknown_requests(self) -> list[str]:
        """Nonces of hello requests that no replica recorded, although its journal had no gap then."""
        return sorted(peer for peer, wall in self._unrecorded_requests().items() if not self._hides(wall))

    def hidden_requests(self) -> list[str]:
        """Nonces of hello requests that no replica recorded, while records of a replica were lost."""
        return sorted(peer for peer, wall in self._unrecorded_requests().items() if self._hides(wall))

    def _hides(self, answered: int) -> bool:
        """Whether a replica's journal has a gap around the reply or up to the grace before it."""
        replicas = [run for run in self.participants() if self.runs[run][0].side == "replica"]
        gaps = [gap for run in replicas for gap in self.gaps(run)]
        return any(lo_wall <= answered <= hi_wall + self.grace for _, lo_wall, _, hi_wall in gaps)

    def _unrecorded_requests(self) -> dict[str, int]:
        """Nonces of hello requests that were answered in closed windows, and that no replica recorded."""
        answered: dict[str, int] = {}
        recorded = set()
        for row in self.rows:
            if row.kind in ("hello", "ask") and row.peer and not row.peer.startswith("observer-"):
                if row.side == "replica":
                    recorded.add(row.peer)
                elif row.side in ("writer", "service", "relay"):
                    answered[row.peer] = min(row.wall, answered.get(row.peer, row.wall))
        until = self.listed_at() - self.grace
        known = {peer: wall for peer, wall in answered.items() if peer not in recorded and wall <= until}
        return {peer: wall for peer, wall in known.items() if self.closed(wall)}

    def databases(self) -> list[set[str]]:
        """The ids of stores; together those that one run recorded. Not of runs without any."""
        found: list[set[str]] = []
        for rows in self.runs.values():
            ids = {row.peer for row in rows if row.kind in ("mark", "close") and row.peer}
            same = [each for each in found if each & ids]
            if ids:
                found = [each for each in found if each not in same] + [ids.union(*same)]
        return found

    def without_replica(self) -> bool:
        sides = {self.runs[run][0].side for run in self.participants()}
        return bool(sides) and "replica" not in sides

    def missing(self) -> bool:
        """Whether participants or parts of their journals are missing, or two replicas share a name."""
        strange = bool(self.headless() or self.overlaps() or self._unrecorded_requests() or self.unknown_parents())
        strange = strange or bool(self.unsubscribed() or self.holed_publishers()) or len(self.databases()) > 1
        strange = strange or bool(self.stateless())
        return strange or self.without_replica()

    def stateless(self) -> list[str]:
        """Replicas that read objects, and recorded nothing of what they hold, although the store lists objects."""
        if not any(row.side == "store" and row.kind == "listing" for row in self.rows):
            return []
        of_replicas = [row for row in self.rows if row.side == "replica"]
        read = {row.name for row in of_replicas if row.kind == "sync_end" and row.outcome in ("delta", "full")}
        return sorted(read - {row.name for row in of_replicas if row.kind in ("held", "listing")})

    def unknown_parents(self) -> list[str]:
        """Services that a child names as its parent, and that have no journal."""
        there = {rows[0].name for rows in self.runs.values() if rows[0].side in ("relay", "service", "writer")}
        return sorted({name for names in self.named.values() for name in names} - there)

    def bits(self) -> int:
        seen = {row.verdict for row in self.delivery()} | {row.verdict for row in self.strays()}
        seen |= {row.verdict for row in self.store()} | {row.verdict for row in self.state()}
        bits = 0
        for bit, kinds in {
            1: {"lost"},
            2: {"corrupt", "phantom", "misrouted", "phantom_publish", "phantom_commit"},
            4: {"missing", "stale", "wrong_value", "zombie", "chain_broken", "foreign_history", "diverged", "rot"},
            8: {"late"},
            16: {"duplicate_applied", "stale_applied"},
            32: {"unknown"},
        }.items():
            bits |= bit if seen & kinds else 0
        walls = [row.wall for run in self.participants() for row in self.runs[run]]
        incomplete = not walls or not self.closed(min(walls)) or bool(self.silent() or self.missing())
        return bits | (32 if incomplete else 0)
