"""Small journals with one fault, built by hand. Times are in microseconds; a window has ``WINDOW``."""

from typing import Any

from pubsub_lib.journal.rows import ChangeRow, Row
from tests.unit.audit.generator import BEGIN, WINDOW, Participant

STEP = 100
WAY = 5  # from the sending to the receipt


class Scenario:
    """A writer, a service and a replica that begin at ``BEGIN``; ``rows()`` ends all of them in order."""

    def __init__(self, domain: str, skew: int = 0) -> None:
        self.domain = domain
        self.skew = skew
        self.count = 0
        self.position = 0
        self.history = 0
        """Added to the nonces of links: another number after each restore."""
        self.time = BEGIN + 1000
        self.heads: dict[str, tuple[int, int]] = {}
        self.links: list[dict[str, Any]] = []
        """The store's commits."""
        self.sequences: dict[tuple[str, str], int] = {}
        self.participants: list[Participant] = []
        self.writer = self.begin("writer", "w")
        self.service = self.begin("service", "s")
        self.replica = self.begin("replica", "r", skew=skew)
        self.store = Participant("store", "store", "h", f"{domain}-store", 0, BEGIN + 90_000)
        self.listed = False
        self.compared: dict[str, Any] = {}
        """What the store's changelog record has about the clock of the host that read it."""
        self.last, self.every = BEGIN, 1000
        """The runs close long after this time, with marks at these intervals."""

    def begin(self, side: Any, name: str, at: int = BEGIN, skew: int = 0, host: str = "") -> Participant:
        self.count += 1
        host = host or ("h-far" if skew else "h")
        one = Participant(side, name, host, f"{self.domain}-{self.count}", skew, at)
        self.participants.append(one)
        return one

    def follow(
        self, topic: str = "t", replica: Participant | None = None, at: int = BEGIN + 10, base: int = 0,
        *, polls: bool = False,
    ) -> None:  # fmt: skip
        """Follow a topic; a full sync at ``base`` ends a little later."""
        who = replica or self.replica
        who.record(at, kind="interest", topic=topic, cause="poll" if polls else "")
        self.sync(at + 10, topic, base, replica=who, outcome="full")

    def sync(
        self, at: int, topic: str, position: int, replica: Participant | None = None, outcome: str = "delta",
        count: int = 1, after: int = 0,
    ) -> None:  # fmt: skip
        """Record a sync. ``after``: the position that the replica knew at its begin. A delta brings what the replica
        has not applied, unless its ``count`` is 0.
        """
        who = replica or self.replica
        number = len(who.events)
        who.record(at - 5, kind="sync_begin", topic=topic, sequence=number, cause="expired", prev_position=after)
        for link in self._missing(who, topic, after, position) if outcome == "delta" and count else ():
            who.record(at, **link, outcome="applied", cause="delta")
        who.record(
            at, kind="sync_end", topic=topic, sequence=number, outcome=outcome, position=position, nonce=position,
            count=count, size=count * 9,
        )  # fmt: skip

    def _missing(self, who: Participant, topic: str, after: int, until: int) -> list[dict[str, Any]]:
        """The links that a replica has not applied, after a position and up to another one."""
        events = (event for _, event in who.events)
        applied = {(event["topic"], event["position"]) for event in events if event.get("outcome") == "applied"}
        return [
            each
            for each in self.links
            if topic in (each["topic"], "") and (each["topic"], each["position"]) not in applied
            if after < each["position"] <= until
        ]

    def link(self, topic: str = "t", key: str = "k", action: str = "set") -> dict[str, Any]:
        """The next transaction, committed now."""
        self.time += STEP
        self.position += 1
        prev = self.heads.get(topic, (0, 0))
        nonce = self.position + self.history
        self.heads[topic] = (self.position, nonce)
        value = 0 if action == "delete" else 1000 + self.position + self.history
        columns = {
            "kind": "data", "topic": topic, "position": self.position, "nonce": nonce,
            "prev_position": prev[0], "prev_nonce": prev[1], "hash": 5000 + self.position, "part": 1, "parts": 1,
            "written": self.time, "count": 1, "digest": 7000 + self.position,
            "changes": (ChangeRow("t", key, self.position, action, value, 9),),
        }  # fmt: skip
        self.store.record(BEGIN + 90_001, **columns, outcome="committed", cause="s")
        self.links.append(columns)
        return columns

    def restore(self, position: int) -> None:
        """The store loses all commits above a position. Later ones have other nonces."""
        self.history += 100_000
        self.position = position
        self.links = [each for each in self.links if each["position"] <= position]
        self.store.events = [each for each in self.store.events if each[1].get("position", 0) <= position]
        self.heads = {each["topic"]: (each["position"], each["nonce"]) for _, each in self.store.events[1:]}

    def hand(self, columns: dict[str, Any]) -> None:
        self.writer.record(self.time + 1, **columns, outcome="handed", cause="s")

    def take(self, columns: dict[str, Any]) -> None:
        self.service.record(self.time + 2, **columns, outcome="taken", cause="s")

    def send(self, columns: dict[str, Any], service: Participant | None = None) -> dict[str, Any]:
        """Number and send a message; returns its columns as a replica receives them."""
        who = service or self.service
        uuid = f"u-{who.run}"
        self.sequences[uuid, columns["topic"]] = self.sequences.get((uuid, columns["topic"]), 0) + 1
        sequence = self.sequences[uuid, columns["topic"]]
        sent = {**columns, "service": "s", "uuid": uuid, "sequence": sequence, "outcome": "sent"}
        who.record(self.time + 3, **sent)
        return sent

    def receive(
        self, sent: dict[str, Any], outcome: str = "applied", after: int = WAY, replica: Participant | None = None,
        at: int | None = None,
    ) -> None:  # fmt: skip
        (replica or self.replica).record(at or self.time + 3 + after, **{**sent, "outcome": outcome})

    def poll(self, after: int = WAY) -> None:
        """A commit that the replica reads from the changelog; its driver gives it another sequence."""
        sent = self.publish()
        polled = {**sent, "uuid": "polled", "service": "db-polling", "outcome": "applied"}
        self.replica.record(self.time + after, **polled)

    def publish(self, topic: str = "t", key: str = "k", service: Participant | None = None) -> dict[str, Any]:
        """Commit, hand over and send a message."""
        columns = self.link(topic, key)
        self.hand(columns)
        self.take(columns)
        return self.send(columns, service)

    def deliver(self, number: int, topic: str = "t") -> None:
        """Publish ``number`` messages, which arrive and are applied."""
        for _ in range(number):
            self.receive(self.publish(topic))

    def ask(
        self, at: int, replica: Participant | None = None, service: Participant | None = None, half: int = 10
    ) -> None:
        """A hello request and its reply, which compare the clocks: a round trip of 20, answered in the middle."""
        who, of = replica or self.replica, service or self.service
        who.record(at - half, kind="ask", peer=f"n{at}")
        of.record(at, kind="hello", peer=f"n{at}", uuid=f"u-{of.run}")
        who.record(at + half, kind="hello", peer=f"n{at}", uuid=f"u-{of.run}")

    def stored(self, objects: dict[str, tuple[int, int]], topic: str = "t") -> None:
        """The store holds these objects at its head: key -> (version, hash)."""
        self.listed = True
        self._list(self.store, BEGIN + 90_002, topic, self.position, objects)

    def held(self, objects: dict[str, tuple[int, int]], at: int, position: int, topic: str = "t") -> None:
        """The replica holds these objects at ``position``."""
        self._list(self.replica, at, topic, position, objects)

    def hold(self, position: int, count: int, digest: int, nonce: int | None = None, topic: str = "t") -> None:
        """The replica records how many objects it holds at a position, and their digest."""
        self.replica.record(
            self.time + 50, kind="held", topic=topic, position=position, nonce=position if nonce is None else nonce,
            count=count, digest=digest,
        )  # fmt: skip

    def _list(self, who: Participant, at: int, topic: str, position: int, objects: dict[str, tuple[int, int]]) -> None:
        number = len(who.events)
        nonce = position + (self.history if position else 0)
        common = {"topic": topic, "sequence": number, "position": position, "nonce": nonce}
        for key, (version, value) in objects.items():
            who.record(at, kind="object", changes=(ChangeRow("t", key, version, "set", value, 9),), **common)
        who.record(at, kind="listing", count=len(objects), **common)

    def rows(self, close: bool = True, store: bool = True) -> list[Row]:
        """All rows, with marks. Runs without an end close long after the last message. Without ``close`` they do not
        close, and their marks end early, so that windows stay open.
        """
        for each in self.participants:
            each.finish(self.last, close=close, every=self.every)
        self.store.record(BEGIN + 90_003, kind="changelog", prev_position=0, position=self.position, **self.compared)
        found = [row for each in self.participants for row in each.rows()]
        return found + (self.store.rows() if store else [])


assert WINDOW == 10_000  # the scenarios' times are chosen for it
