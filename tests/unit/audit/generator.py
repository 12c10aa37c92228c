"""Journals with random planted faults, as rows. A small model of the data path plants the faults at random.

Times are in microseconds, and small: a window has ``WINDOW``.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pubsub_lib.journal.rows import ChangeRow, Row, Side

WINDOW, GRACE, BOUND, SILENCE = 10_000, 5_000, 3_000, 25_000
BEGIN = 10_000_000_000
"""Later than any clock here is behind: times are not negative."""
MONO = 77
"""The monotonic clock is this much ahead of the right time."""


TORN: set[tuple[str, int]] = set()
"""Run and number of the last record of each file behind whose records bytes were lost, as tests add them."""


HOUR, DAY = 3_600_000_000, 86_400_000_000


def stepped(steps: Sequence[tuple[int, int]], time: int) -> int:
    """By how much the wall clock has stepped until a time."""
    return sum(by for at, by in steps if at <= time)


class Participant:
    """One run. ``rows`` numbers its events in the order of their times."""

    def __init__(self, side: Side, name: str, host: str, run: str, skew: int, begin: int) -> None:
        self.side: Side = side
        self.name, self.host, self.run, self.skew = name, host, run, skew
        self.begin = begin
        self.steps: Sequence[tuple[int, int]] = ()
        """Times at which the host's wall clock steps, and by how much."""
        self.rate = 0
        """By how many parts in a million the clocks of the host are fast, from ``BEGIN`` on."""
        self.end: int | None = None
        self.frozen: tuple[int, int] | None = None
        """When the process is stopped, and when it goes on: nothing is recorded in between."""
        self.clean = True
        self.events: list[tuple[int, dict[str, Any]]] = [(begin, {"kind": "open"})]

    def record(self, time: int, **columns: Any) -> None:
        self.events.append((time, columns))

    def thawed(self, time: int) -> int:
        """The time at which the process does what it would do at this time."""
        return self.frozen[1] if self.frozen and self.frozen[0] <= time < self.frozen[1] else time

    def gained(self, time: int) -> int:
        """By how much the clocks have gained until a time."""
        return (time - BEGIN) * self.rate // 1_000_000

    def alive(self, time: int) -> bool:
        return self.begin < time and (self.end is None or time < self.end)

    def finish(self, last: int, *, close: bool, every: int = 1000) -> None:
        """Add the marks. A run that has no end closes long after ``last``; without ``close`` its marks end early."""
        end = self.end or last + (60_000 if close else 4000)
        for at in range(self.begin + 500, end, every):
            self.record(at, kind="mark")
        self.events = [(at, columns) for at, columns in self.events if self.end is None or at < self.end]
        if self.end is None and close:
            self.record(end, kind="close")

    def rows(self) -> list[Row]:
        found = []
        events = [(self.thawed(time), columns) for time, columns in sorted(self.events, key=lambda each: each[0])]
        for number, (time, columns) in enumerate(sorted(events, key=lambda each: each[0]), 1):
            found.append(
                Row(
                    side=self.side,
                    name=self.name,
                    host=self.host,
                    run=self.run,
                    number=number,
                    wall=time + self.skew + stepped(self.steps, time) + self.gained(time),
                    mono=time + MONO + self.gained(time),
                    **columns,
                )
            )
        return found


class Generator:
    """The journals of one domain. ``faults`` scales the probability of faults; 0: no faults. ``clocks``: the hosts'
    clocks are far apart and step, and every replica compares its clock early.
    """

    def __init__(self, rng: random.Random, faults: float = 1.0, domain: str = "d", *, clocks: bool = False) -> None:
        self.rng = rng
        self.faults = faults
        self.domain = domain
        self.position = 0
        self.heads: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self.links: list[dict[str, Any]] = []
        self.sequences: dict[tuple[str, str], int] = defaultdict(int)
        self.participants: list[Participant] = []
        self.runs = 0
        self.topics = [f"t{index}" for index in range(rng.choice((1, 1, 2, 3)))]
        self.hosts = {f"h{index}": rng.choice((0, 0, rng.randint(-5000, 5000))) for index in range(3)}
        self.steps: dict[str, Sequence[tuple[int, int]]] = dict.fromkeys(self.hosts, ())
        self.clocks = random.Random(f"clocks of {domain}") if clocks else None
        self.time = BEGIN + rng.randrange(WINDOW)
        if self.clocks is not None:
            for host in self.hosts:
                self.hosts[host] += self.clocks.choice((0, HOUR, -20_000_000, -HOUR, 5_000_017))
                if self.clocks.random() < 0.5:
                    at = self.time + self.clocks.randrange(1000, 40_000)
                    self.steps[host] = [(at, self.clocks.choice((-30_000_000, DAY, 150_000)))]
        self.objects: dict[str, dict[str, int]] = defaultdict(dict)
        self.marks = random.Random(f"marks of {domain}")
        """Decides about records of held contents, apart from everything else."""
        self.freezes = random.Random(f"freezes of {domain}")
        """Decides about processes that are stopped for a while, apart from everything else."""
        self.incompletes = random.Random(f"incompletes of {domain}")
        """Decides about deltas that the store cannot give, and rot in it, apart from everything else."""
        self.lies = random.Random(f"lies of {domain}")
        """Decides about links that were never committed, apart from everything else."""
        self.arrivals: dict[str, list[tuple[int, dict[str, Any], dict[str, Any]]]] = defaultdict(list)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share * self.faults

    def participant(self, side: Side, name: str, host: str, begin: int) -> Participant:
        self.runs += 1
        run = f"{self.domain}-{self.runs:03d}"
        one = Participant(side, name, host, run, self.hosts[host], begin)
        one.steps = self.steps[host]
        self.participants.append(one)
        return one

    def wall(self, time: int) -> int:
        """The writer's wall clock."""
        return time + self.hosts["h0"] + stepped(self.steps["h0"], time)

    # -- all journals ------------------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        rng = self.rng
        self.last = self.time + rng.randrange(20_000, 70_000)
        writer = self.participant("writer", "w", "h0", self.time - 10)
        services = self._lives("service", [("s0", "h0"), ("s1", "h1")][: rng.choice((1, 1, 2))])
        replicas = self._lives("replica", [(f"r{index}", f"h{index}") for index in range(rng.choice((1, 2, 3)))])
        if self.chance(0.05):
            services = []
        self._freeze([*services, *replicas])
        polling = {each.name for each in replicas if rng.random() < 0.15}
        followed = {each.run: self._follows(each, each.name in polling) for each in replicas}
        for _ in range(rng.choice((0, 3, 10, 25, 40))):
            self.time += rng.choice((50, 200, 1000, 3000))
            if self.time >= self.last:
                break
            alive = [each for each in services if each.alive(self.time)]
            self._commit(writer, alive, replicas)
            if alive and self.lies.random() < 0.02 * self.faults:
                self._lie(self.lies.choice(alive), replicas)
        for replica in replicas:
            self._replica(replica, followed[replica.run], replica.name in polling)
        self._marks()
        self._hellos(services, replicas)
        rows = [row for each in self.participants for row in each.rows()]
        rows = self._with_gaps(rows)
        rows += self._store_rows(rows)
        rng.shuffle(rows)
        return rows

    def _lives(self, side: Side, names: Sequence[tuple[str, str]]) -> list[Participant]:
        found = []
        for name, host in names:
            begin = self.time - self.rng.randrange(1, 500)
            if self.rng.random() < 0.3:
                begin += self.rng.randrange(20_000)  # a late one
            one = self.participant(side, name, host, begin)
            found.append(one)
            while self.chance(0.25) and one.begin < self.last - 2000:
                one.end = self.rng.randrange(one.begin + 1, self.last)
                one.clean = self.rng.random() < 0.4
                if self.chance(0.2):
                    break  # it never comes back
                one = self.participant(side, name, host, one.end + self.rng.randrange(1, 8000))
                found.append(one)
        return found

    def _freeze(self, participants: Sequence[Participant]) -> None:
        """Stop some processes for longer than it takes to a horizon, and for less than the silence."""
        for each in participants:
            begin = each.begin + 1000 + self.freezes.randrange(30_000)
            end = begin + self.freezes.randrange(SILENCE // 3, SILENCE - 3000)
            often = self.freezes.random() < 0.15 * self.faults
            if often and end < min(self.last, each.end or self.last):
                each.frozen = (begin, end)

    def _follows(self, replica: Participant, polling: bool) -> list[tuple[str, int, int | None]]:
        """(topic, from, until): the topics that the replica follows, and when."""
        rng = self.rng
        topics = [""] if rng.random() < 0.25 else rng.sample(self.topics, rng.randint(1, len(self.topics)))
        found: list[tuple[str, int, int | None]] = []
        for topic in topics:
            time = replica.begin + rng.randrange(1, 100)
            while True:
                until = time + rng.randrange(1, 40_000) if rng.random() < 0.25 else None
                found.append((topic, time, until))
                replica.record(time, kind="interest", topic=topic, cause="poll" if polling else "")
                if self.chance(0.05):
                    replica.record(time + 1, kind="interest", topic=topic, cause="poll" if polling else "")
                if until is None:
                    break
                replica.record(until, kind="drop", topic=topic)
                if rng.random() < 0.5:
                    break
                time = until + rng.randrange(1, 9000)
        return found

    # -- the path of a link ------------------------------------------------------------------------------------------

    def _commit(self, writer: Participant, services: list[Participant], replicas: list[Participant]) -> None:
        rng = self.rng
        topic = rng.choice(self.topics)
        changes = []
        for _ in range(rng.choice((1, 1, 2))):
            self.position += 1
            action = rng.choice(("create", "set", "set", "delete"))
            value = 0 if action == "delete" else rng.getrandbits(62)
            changes.append(ChangeRow("t", f"k{rng.randrange(4)}", self.position, action, value, 9))
            self.objects[topic].pop(changes[-1].key, None)
            if action != "delete":
                self.objects[topic][changes[-1].key] = self.position
        prev, point = self.heads[topic], (self.position, rng.getrandbits(40))
        self.heads[topic] = point
        columns = {
            "kind": "data", "topic": topic, "position": point[0], "nonce": point[1], "prev_position": prev[0],
            "prev_nonce": prev[1], "hash": rng.getrandbits(62), "changes": tuple(changes), "part": 1, "parts": 1,
            "written": self.wall(self.time) if not self.chance(0.05) else 0,
            "count": len(self.objects[topic]), "digest": sum(self.objects[topic].values()),
        }  # fmt: skip
        self.links.append(columns)
        origin = services[0].name if services else "s0"
        if self.chance(0.05):
            return
        columns = self._changed(columns)
        writer.record(self.time + 1, **columns, outcome="handed", cause=origin)
        if not services or self.chance(0.05):
            return
        for service in services if self.chance(0.1) else services[:1]:
            time = service.thawed(self.time + rng.randrange(2, 30))
            if not service.alive(time):
                continue
            taken = self._changed(columns)
            service.record(time, **taken, outcome="taken", cause=origin)
            if self.chance(0.05):
                continue
            self._publish(service, time + 1, self._changed(taken), replicas)

    def _lie(self, service: Participant, replicas: list[Participant]) -> None:
        """The service takes a link that was never committed, in the place of the last one, and perhaps sends it."""
        rng, time = self.lies, service.thawed(self.time + self.lies.randrange(2, 30))
        if not service.alive(time):
            return
        written = rng.choice((0, self.wall(self.time) - 1))
        false = {**self.links[-1], "nonce": rng.getrandbits(40), "hash": rng.getrandbits(62), "written": written}
        service.record(time, **false, outcome="taken", cause=service.name)
        if rng.random() < 0.4:
            return
        uuid = f"u-{service.run}"
        self.sequences[uuid, false["topic"]] += 1
        numbered = {"service": service.name, "uuid": uuid, "sequence": self.sequences[uuid, false["topic"]]}
        sent = {**false, **numbered, "outcome": "sent"}
        service.record(time + 1, **sent)
        for replica in replicas:
            if rng.random() < 0.6:
                self.arrivals[replica.run].append((time + rng.choice((2, 5, 200)), false, sent))

    def _changed(self, columns: dict[str, Any]) -> dict[str, Any]:
        """The columns of a link with another content, rarely; or those of a part of it."""
        if self.chance(0.01):
            return {**columns, "parts": 2, "hash": self.rng.getrandbits(62)}
        return {**columns, "hash": self.rng.getrandbits(62)} if self.chance(0.02) else columns

    def _publish(self, service: Participant, time: int, columns: dict[str, Any], replicas: list[Participant]) -> None:
        rng = self.rng
        uuid = f"u-{service.run}"
        self.sequences[uuid, columns["topic"]] += 1
        if self.chance(0.02):
            self.sequences[uuid, columns["topic"]] += 1  # the publisher skips a sequence
        sequence = self.sequences[uuid, columns["topic"]]
        sent = {**columns, "outcome": "sent", "service": service.name, "uuid": uuid, "sequence": sequence}
        service.record(time, **sent)
        if self.chance(0.02):
            service.record(time + 1, **{**sent, "hash": rng.getrandbits(62)} if rng.random() < 0.5 else sent)
        if self.chance(0.02):
            return self._unrecord(service)
        for replica in replicas:
            self._carry(replica, time, columns, sent)
        return None

    def _unrecord(self, service: Participant) -> None:
        service.events.pop()

    def _carry(self, replica: Participant, time: int, columns: dict[str, Any], sent: dict[str, Any]) -> None:
        rng = self.rng
        if self.chance(0.12):
            return
        times = [time + rng.choice((1, 5, 20, 200))]
        if self.chance(0.08):
            times = [time + rng.choice((2900, 2999, 3000, 3001, 3500, 9000))]
        if self.chance(0.08):
            times.append(time + rng.randrange(1, 4000))
        for at in times:
            received = dict(sent)
            if self.chance(0.02):
                received["hash"] = rng.getrandbits(62)
            if self.chance(0.01):
                received["sequence"] += rng.choice((50, 1))  # one that was never sent, or that of another message
            if self.chance(0.01):
                received["uuid"] = "u-unknown"
            if self.chance(0.02):
                received["topic"] = rng.choice([*self.topics, "elsewhere"])
            self.arrivals[replica.run].append((at, columns, received))

    # -- a replica ---------------------------------------------------------------------------------------------------

    def _replica(self, replica: Participant, follows: list[tuple[str, int, int | None]], polling: bool) -> None:
        rng = self.rng
        last = replica.end or self.last
        known: dict[str, int] = defaultdict(int)
        syncs = 0
        events: list[tuple[int, int, Any]] = []
        for topic, begin, until in follows:
            limit = min(until or last, last)
            if not self.chance(0.06):
                first = begin + rng.randrange(1, 600)
                events.append((first, 0, topic))
                more = [rng.randrange(first, max(limit, first + 1)) + 1 for _ in range(rng.choice((0, 0, 1, 3)))]
                events += [(time, 1, topic) for time in more]
            if polling:
                events += [
                    (begin + step, 1, topic) for step in range(700, max(limit - begin, 701), rng.choice((900, 5000)))
                ]
        if not polling:
            events += [(time, 2, (columns, received)) for time, columns, received in self.arrivals[replica.run]]

        def follows_at(topic: str, time: int) -> bool:
            return any(
                name in (topic, "") and begin <= time and (until is None or time < until)
                for name, begin, until in follows
            )

        for time, what, detail in sorted(events, key=lambda each: (each[0], each[1])):
            if not replica.alive(time):
                continue
            self._hold(replica, time, known)
            if what == 2:
                columns, received = detail
                topic = received["topic"]
                if not follows_at(topic, time) and not self.chance(0.3):
                    continue
                if received["position"] <= known[topic]:
                    outcome = "old"
                elif received["prev_position"] <= known[topic] and not self.chance(0.03):
                    outcome = "applied"
                    known[topic] = received["position"]
                else:
                    outcome = rng.choice(("waiting", "waiting", "dropped", "part"))
                if self.chance(0.04):
                    outcome = rng.choice(("applied", "old", "waiting"))
                if self.chance(0.12) and outcome == "old":
                    outcome = "applied"
                replica.record(time, **{**received, "outcome": outcome})
                if outcome == "waiting" and rng.random() < 0.3:
                    replica.record(time + rng.choice((5, 100, 4000)), **{**columns, "outcome": "applied"})
                elif outcome == "waiting" and rng.random() < 0.8:
                    syncs += 1
                    chain = topic if any(name == topic for name, _, _ in follows) else ""
                    self._sync(replica, time + rng.choice((20, 500, 2500)), syncs, chain, full=False, known=known)
                continue
            syncs += 1
            self._sync(replica, time, syncs, detail, full=what == 0, known=known)
        for topic in sorted({topic or each for topic, _, _ in follows for each in self.topics if topic in ("", each)}):
            if rng.random() < 0.7:
                self._listing(replica, topic, known[topic], last - 1)

    def _hold(self, replica: Participant, time: int, known: dict[str, int]) -> None:
        """Record what the replica holds of a topic, perhaps wrongly."""
        rng = self.marks
        if rng.random() > 0.2:
            return
        topic, wrong = rng.choice(self.topics), int(self.faults > 0 and rng.random() < 0.03)
        position = known[topic]
        nonces = [link["nonce"] for link in self.links if link["position"] == position]
        until = [link for link in self.links if link["topic"] == topic and link["position"] <= position]
        count, digest = (until[-1]["count"], until[-1]["digest"]) if until else (0, 0)
        replica.record(
            time, kind="held", topic=topic, position=position - (5 if self.faults and rng.random() < 0.02 else 0),
            nonce=nonces[0] if nonces else 0, count=count, digest=digest + wrong,
        )  # fmt: skip
        if self.faults and rng.random() < 0.02:
            replica.record(time, kind="rot", topic=topic, cause=rng.choice(("memory", "store")), count=1)

    def _sync(
        self, replica: Participant, time: int, number: int, topic: str, *, full: bool, known: dict[str, int]
    ) -> None:
        rng = self.rng
        asked = [link for link in self.links if topic in (link["topic"], "")]
        visible = [link for link in asked if link["written"] <= self.wall(time)]
        head = visible[-1] if visible else {"position": 0, "nonce": 0}
        before = known[topic]
        cause = "history changed" if self.faults and time % 16 == 0 else "expired"
        replica.record(time, kind="sync_begin", sequence=number, topic=topic, cause=cause, prev_position=before)
        if self.chance(0.1):
            return
        outcome = "failed" if self.chance(0.1) else "full" if full or self.chance(0.1) else "delta"
        end = time + rng.choice((3, 50, 2500))
        if outcome == "delta" and self.faults and self.incompletes.random() < 0.05:
            replica.record(end, kind="sync_end", sequence=number, topic=topic, outcome="incomplete")
            return
        brought = 0
        if outcome == "delta":
            for link in visible:
                if link["position"] > known[link["topic"]]:
                    brought += 1
                    replica.record(end - 1, **{**self._changed(link), "outcome": "applied", "cause": "delta"})
                    known[link["topic"]] = link["position"]
        elif outcome == "full":
            brought = 1
            for link in visible:
                known[link["topic"]] = max(known[link["topic"]], link["position"])
        known[topic] = max(known[topic], head["position"])
        replica.record(
            end, kind="sync_end", sequence=number, topic=topic, outcome=outcome, position=head["position"],
            nonce=head["nonce"], count=brought, size=brought * 9,
        )  # fmt: skip

    def _listing(self, replica: Participant, topic: str, position: int, time: int) -> None:
        state: dict[str, ChangeRow] = {}
        for link in self.links:
            if link["topic"] == topic and link["position"] <= position and not self.chance(0.04):
                for each in link["changes"]:
                    if each.action == "delete":
                        state.pop(each.key, None)
                    else:
                        state[each.key] = each
        if state and self.chance(0.1):
            state.pop(self.rng.choice(sorted(state)))
        if state and self.chance(0.1):
            key = self.rng.choice(sorted(state))
            version = state[key].version + self.rng.choice((0, 0, 3))
            state[key] = ChangeRow("t", key, version, "set", 5, 9)
        self._record_listing(replica, topic, position, time, list(state.values()))

    def _record_listing(
        self, who: Participant, topic: str, position: int, time: int, objects: Sequence[ChangeRow]
    ) -> None:
        number = len(who.events)
        nonces = [link["nonce"] for link in self.links if link["position"] == position]
        common = {"topic": topic, "sequence": number, "position": position, "nonce": nonces[0] if nonces else 0}
        for each in objects:
            change = ChangeRow(each.table, each.key, each.version, "set", each.hash, each.size)
            who.record(time, kind="object", changes=(change,), **common)
        short = 1 if self.chance(0.05) else 0
        who.record(time, kind="listing", count=len(objects) + short, **common)

    # -- marks, hellos, gaps, the store --------------------------------------------------------------------------------

    def _marks(self) -> None:
        for each in self.participants:
            end = each.end or self.last + self.rng.choice((0, 9000, 9000, 30_000))
            for time in range(each.begin + 1, end, 1500):
                each.record(time, kind="mark")
            if each.side == "service" and self.faults and self.incompletes.random() < 0.1:
                each.record(each.begin + 2, kind="rot", topic=self.topics[0], cause="store", count=1)
            if each.end is not None:
                each.events = [(time, columns) for time, columns in each.events if time < each.end]
                if each.clean:
                    each.record(each.end, kind="close")
            elif self.rng.random() < 0.4:
                each.record(max(time for time, _ in each.events) + 1, kind="close")

    def _hellos(self, services: list[Participant], replicas: list[Participant]) -> None:
        number = 0
        for replica in replicas:
            for service in services:
                for _ in range(self.rng.choice((0, 1, 3))):
                    number += 1
                    time = self.rng.randrange(BEGIN, self.last)
                    if not (replica.alive(time - 50) and replica.alive(time + 300) and service.alive(time)):
                        continue
                    if any(each.thawed(at) != at for each in (replica, service) for at in (time - 50, time + 300)):
                        continue
                    nonce, uuid = f"n{number}", f"u-{service.run}"
                    replica.record(time - self.rng.randrange(50), kind="ask", peer=nonce)
                    service.record(time, kind="hello", peer=nonce, uuid=uuid, service=service.name)
                    if not self.chance(0.1):
                        there = time + self.rng.randrange(300)
                        replica.record(there, kind="hello", peer=nonce, uuid=uuid, service=service.name)
                if self.clocks is not None:
                    self._compare(service, replica, max(service.begin, replica.begin) + 200)

    def _compare(self, service: Participant, replica: Participant, time: int) -> None:
        """A hello request soon after both have begun."""
        running = all(each.thawed(at) == at for each in (replica, service) for at in (time - 20, time + 20))
        if running and replica.alive(time - 20) and replica.alive(time + 20) and service.alive(time):
            nonce, uuid = f"early-{replica.run}-{service.run}", f"u-{service.run}"
            replica.record(time - 20, kind="ask", peer=nonce)
            service.record(time, kind="hello", peer=nonce, uuid=uuid, service=service.name)
            replica.record(time + 20, kind="hello", peer=nonce, uuid=uuid, service=service.name)

    def _with_gaps(self, rows: list[Row]) -> list[Row]:
        for each in self.participants:
            mine = [row for row in rows if row.run == each.run]
            while self.chance(0.08) and len(mine) > 3:
                begin = self.rng.randrange(len(mine))
                gone = {row.number for row in mine[begin : begin + self.rng.choice((1, 2, 10))]}
                if len(gone) >= len(mine):
                    break
                rows = [row for row in rows if row.run != each.run or row.number not in gone]
                mine = [row for row in mine if row.number not in gone]
        return rows

    def _store_rows(self, rows: list[Row]) -> list[Row]:
        rng = self.rng
        store = Participant("store", "store", "h0", f"{self.domain}-store", 0, self.last + 1)
        if rng.random() < 0.3:
            return []
        floor = rng.choice((0, 0, self.position // 3))
        if rng.random() < 0.8:
            for link in self.links:
                if link["position"] <= floor or self.chance(0.02):
                    continue
                columns = dict(link)
                if self.chance(0.01):
                    columns["prev_nonce"] += 1
                store.record(self.last + 2, **columns, outcome="committed", cause="s0")
            store.record(self.last + 3, kind="changelog", prev_position=floor, position=self.position)
        if rng.random() < 0.8:
            for topic in self.topics:
                if not self.chance(0.1):
                    state: dict[str, ChangeRow] = {}
                    for link in self.links:
                        for each in link["changes"] if link["topic"] == topic else ():
                            if each.action == "delete":
                                state.pop(each.key, None)
                            else:
                                state[each.key] = each
                    behind = rng.choice((0, 0, 0, 2))
                    position = max(0, self.position - behind)
                    self._record_listing(store, topic, position, self.last + 4, list(state.values()))
        return store.rows()
