"""The branches of the brute-force audit (docs/contributing/audit-verdicts.md, "Relays")."""

from typing import NamedTuple

import msgspec

from pubsub_lib.journal.rows import Row
from tests.unit.audit.oracle import Interval, Item, Oracle


class Stretch(NamedTuple):
    service: str
    begin: Row
    named: Row
    """The first record that names the service."""
    end: Row | None


def stretches(rows: list[Row]) -> list[Stretch]:
    """The stretches of one run."""
    found: list[Stretch] = []
    move: Row | None = None
    following: tuple[str, Row, Row] | None = None
    for row in rows:
        if row.kind != "parent" or (following is not None and row.uuid and row.service == following[0]):
            continue
        if following is not None:
            found.append(Stretch(*following, row))
        if not row.uuid:
            following, move = None, row
        else:
            following = row.service, row if following is not None or move is None else move, row
    if following is not None:
        found.append(Stretch(*following, None))
    return found


def branches_of(whole: Oracle) -> list[Oracle]:
    """One branch for each service that is named as a parent, and for each relay with a sending run."""
    names = {name for of_run in whole.named.values() for name in of_run}
    names |= {rows[0].name for rows in whole.runs.values() if rows[0].side == "relay"}
    return [] if isinstance(whole, Branch) else [Branch(whole, name) for name in sorted(names)]


class Branch(Oracle):
    """Judges what the children of one service must receive from it."""

    def __init__(self, whole: Oracle, service: str) -> None:
        self.whole, self.service = whole, service
        self.window, self.grace, self.bound, self.silence = whole.window, whole.grace, whole.bound, whole.silence
        self.kept, self.branches, self.named, self._skews = {}, [], {}, {}
        self.polling, self.expects_what_was_sent = whole.polling, False
        self.stretches = {
            run: [each for each in stretches(whole.runs[run]) if each.service == service] for run in whole.named
        }
        self.runs = {run: self._of_child(whole.runs[run]) for run, each in self.stretches.items() if each}
        for run, rows in whole.runs.items():
            if rows[0].side in ("relay", "service", "writer") and rows[0].name == service:
                side = "writer" if rows[0].side == "writer" else "service"
                self.runs[run] = [msgspec.structs.replace(row, side=side) for row in rows]
        self.rows = [row for run in self.runs.values() for row in run]
        self.publications = self._publications()
        self.commits = self._commits()
        self.is_relay = False
        for rows in whole.runs.values():
            if any(row.kind == "interest" and row.cause == "relay" and row.service == service for row in rows):
                self.is_relay = True
                self._take(rows)
        self.intervals = [part for run, each in self.stretches.items() if each for part in self._parts(run)]
        self.receipts = [
            row
            for row in self.rows
            if row.kind == "data"
            and row.side == "replica"
            and row.uuid
            and row.run not in self.polling
            and self._is_receipt(row)
        ]

    def _of_child(self, rows: list[Row]) -> list[Row]:
        """A child's records: receipts of other publishers are not those of the branch."""
        return [
            msgspec.structs.replace(row, uuid="", sequence=0)
            if row.kind == "data" and not (row.uuid and row.sequence and row.service == self.service)
            else row
            for row in rows
        ]

    def _take(self, rows: list[Row]) -> None:
        """What the relay applied, it has to send on."""
        for row in rows:
            if row.kind == "data" and row.outcome == "applied":
                taken = msgspec.structs.replace(row, side="service", outcome="taken", cause=self.service, written=0)
                self.commits.setdefault((row.topic, row.position, row.nonce), []).append(taken)

    def _parts(self, run: str) -> list[Interval]:
        found = []
        for whole in self.wholes(run):
            for stretch in self.stretches[run]:
                end = float("inf") if stretch.end is None else stretch.end.number
                if stretch.begin.number < whole.end and end > whole.begin:
                    found.append(self._part(whole, stretch))
        return found

    def _part(self, whole: Interval, stretch: Stretch) -> Interval:
        part = whole
        if stretch.begin.number > whole.begin:
            reached = self._base_on_arrival(whole, stretch.begin.number)
            syncs = tuple(row for row in whole.syncs if row.number > stretch.begin.number)
            part = part._replace(begin=stretch.begin.number, syncs=syncs, reached=reached)
        part = part._replace(opened=max(whole.opened, stretch.named, key=lambda row: row.wall))
        if stretch.end is not None and stretch.end.number < whole.end:
            part = part._replace(end=stretch.end.number, dropped=stretch.end)
        return part

    def _base_on_arrival(self, whole: Interval, number: int) -> Row | None:
        """What a child had before this record of a whole interval: a row with the position; None before any sync."""
        syncs = [row for row in whole.syncs if row.number < number]
        if not syncs:
            return None
        there = [row for row in self.runs[whole.run] if whole.begin < row.number < number and row.topic == whole.topic]
        proofs = [row for row in syncs if row.outcome == "full"]
        proofs += [row for row in there if row.kind == "data" and row.outcome == "applied"]
        last = max([*syncs, *proofs], key=lambda row: row.number)
        known = min((row.prev_position for row in there if row.kind == "sync_begin"), default=0)
        proof = max(proofs, key=lambda row: row.number, default=None)
        since = whole.begin if proof is None else proof.number
        lost = any(hi > since and lo < last.number for lo, _, hi, _ in self.gaps(whole.run))
        if not whole.topic or lost:
            return last
        claims = [row.position for row in syncs if row.number > since]
        return msgspec.structs.replace(last, position=min([known if proof is None else proof.position, *claims]))

    def _blame(self, item: Item, received: bool) -> str:
        blame = super()._blame(item, received)
        return "relay" if self.is_relay and blame == "service" else blame

    # -- what is of the whole domain ---------------------------------------------------------------------------------

    def closed_until(self) -> float:
        return self.whole.closed_until()

    def gaps(self, run: str) -> list[tuple[int, float, float, float]]:
        return self.whole.gaps(run)

    def over(self, run: str) -> bool:
        return self.whole.over(run)
