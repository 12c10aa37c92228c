"""The audit through relays: each hop by itself, joined by points (audit-verdicts.md, "Relays")."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pubsub_lib.audit.report import tree as tree_table
from pubsub_lib.audit.report import windows
from pubsub_lib.audit.report.evidence import evidence
from pubsub_lib.audit.report.summary import HOP_FAULTS, LAST_SEEN, category
from pubsub_lib.journal.rows import Row
from tests.unit.audit.conftest import LITTLE, MUCH, SETTINGS, Audit
from tests.unit.audit.generator import BOUND, GRACE, SILENCE, WINDOW
from tests.unit.audit.oracle import Oracle, StoreFinding, Stray, Verdict
from tests.unit.audit.oracle_branches import stretches
from tests.unit.audit.tree import Node, Tree, random_nodes, random_tree, with_gaps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Hop = tuple[str, str]
"""Publisher and replica."""
Anomaly = tuple[str, str, str, str, str, int]
"""Replica, service, verdict, detail, blame, position."""


def judged(tree: Tree, without: tuple[str, ...] = ()) -> Oracle:
    return Oracle(tree.rows(without=without), WINDOW, GRACE, BOUND, SILENCE)


def anomalies(oracle: Oracle) -> set[Anomaly]:
    return {found(row) for row in oracle.delivery() if row.verdict not in ("ok", "excused")}


def found(row: Verdict) -> Anomaly:
    return (row.name, row.service, row.verdict, row.detail, row.blame, row.position)


class TwoRelays:
    """An origin, two relays in a row, and a replica below each of the three."""

    def __init__(self, domain: str = "d", skews: dict[str, int] | None = None) -> None:
        self.tree = Tree(domain, skews)
        self.upper = self.tree.add("r1", relay=True)
        self.lower = self.tree.add("r2", self.upper, relay=True)
        parents = (None, self.upper, self.lower)
        self.agents = [self.tree.add(f"a{at}", parent) for at, parent in enumerate(parents)]
        self.publish(3)

    def named(self, name: str) -> Node:
        return {"upper": self.upper, "lower": self.lower, "a1": self.agents[1], "a2": self.agents[2]}[name]

    def publish(self, number: int = 1) -> int:
        return [self.tree.publish() for _ in range(number)][-1]

    def fault(self, what: str, node: Node, repaired: bool = True) -> int:
        """Plant a fault into the next change, and publish two more. Returns its position."""
        at = self.tree.position + 1
        self.tree.faults[what, node.name].add(at)
        if not repaired:
            self.tree.faults["never repair", node.name] |= {at + 1, at + 2}
        self.publish(3)
        return at


def test_correct_tree_has_no_anomaly_and_each_hop_is_judged_once() -> None:
    two = TwoRelays()
    oracle = judged(two.tree)
    counted = Counter((row.service, row.name, row.verdict) for row in oracle.delivery())
    hops = {("s", "r1"), ("r1", "r2"), ("s", "a0"), ("r1", "a1"), ("r2", "a2")}
    assert counted == {(*hop, "ok"): 3 for hop in hops}
    assert (oracle.strays(), oracle.store(), oracle.bits()) == ([], [], 0)


@pytest.mark.parametrize(
    ("what", "node", "hop", "blame"),
    [
        ("lose", "upper", ("r1", "s"), "wire"),
        ("lose", "lower", ("r2", "r1"), "wire"),
        ("lose", "a2", ("a2", "r2"), "wire"),
        ("ignore", "lower", ("r2", "r1"), "subscriber"),
        ("ignore", "a1", ("a1", "r1"), "subscriber"),
    ],
)
def test_message_that_is_lost_is_an_anomaly_of_its_hop_alone(
    what: str, node: str, hop: tuple[str, str], blame: str
) -> None:
    two = TwoRelays()
    at = two.fault(what, two.named(node), repaired=False)
    oracle = judged(two.tree)
    # The later messages were received, and wait for ever.
    lost = {(*hop, "lost", blame, at), *((*hop, "lost", "subscriber", at + more) for more in (1, 2))}
    assert {row[:3] + row[4:] for row in anomalies(oracle)} == lost
    assert oracle.bits() == 1


@pytest.mark.parametrize(("node", "hop"), [("upper", ("r1", "s")), ("lower", ("r2", "r1")), ("a2", ("a2", "r2"))])
def test_message_that_a_sync_repairs_is_one_of_its_hop_alone(node: str, hop: tuple[str, str]) -> None:
    two = TwoRelays()
    at = two.fault("lose", two.named(node))
    oracle = judged(two.tree)
    assert anomalies(oracle) == {(*hop, "repaired", "", "wire", at)}
    assert oracle.bits() == 0


def test_relay_that_forgets_to_pass_on_is_blamed_by_each_of_its_children() -> None:
    two = TwoRelays()
    at = two.fault("forget", two.upper)
    oracle = judged(two.tree)
    assert anomalies(oracle) == {
        ("r2", "r1", "repaired", "", "relay", at),
        ("a1", "r1", "repaired", "", "relay", at),
    }, "the relay below repaired it, and sent it on"


def test_change_that_a_relay_forgets_and_nothing_repairs_is_lost() -> None:
    two = TwoRelays()
    at = two.tree.position + 1
    agent = two.agents[2]
    two.tree.faults["forget", "r2"].add(at)
    two.tree.faults["never repair", agent.name] |= {at + 1}
    two.publish(2)
    oracle = judged(two.tree)
    lost = {row for row in anomalies(oracle) if row[5] == at}
    assert lost == {("a2", "r2", "lost", "", "relay", at)}
    assert oracle.bits() == 1


@pytest.mark.parametrize(("what", "where"), [("alter", "wire"), ("change", "publisher")])
def test_changed_content_is_found_at_its_hop(what: str, where: str) -> None:
    two = TwoRelays()
    node = two.agents[2] if what == "alter" else two.lower
    at = two.fault(what, node)
    assert anomalies(judged(two.tree)) == {("a2", "r2", "corrupt", where, "", at)}


def test_killed_relay_is_blamed_for_what_it_had_and_its_children_are_judged_at_the_next_one() -> None:
    two = TwoRelays()
    tree, agent = two.tree, two.agents[1]
    other = tree.add("r3", relay=True)
    forgotten = tree.position + 1
    tree.faults["forget", "r1"].add(forgotten)  # it was killed before it sent it
    two.publish()
    tree.stop(two.upper)
    early = two.publish()
    tree.move(agent, other)
    later = two.publish(2)
    tree.restart(two.upper)
    oracle = judged(tree)
    assert {row for row in anomalies(oracle) if row[0] == "a1"} == {("a1", "r1", "repaired", "", "relay", forgotten)}
    rows = {(row.service, row.position): (row.verdict, row.detail) for row in oracle.delivery() if row.name == "a1"}
    assert rows["r3", forgotten] == ("excused", "covered"), "sent before the replica came, which then read it"
    assert rows["r3", early] == ("excused", "covered")
    assert rows["r3", later] == ("ok", "")
    assert not any(service == "r1" and position >= early for service, position in rows)


def test_restarted_relay_is_the_same_parent() -> None:
    two = TwoRelays()
    tree = two.tree
    tree.stop(two.lower)
    tree.restart(two.lower)
    two.publish(3)
    oracle = judged(tree)
    assert anomalies(oracle) == set()
    assert Counter(row.verdict for row in oracle.delivery() if row.name == "a2") == {"ok": 6}
    at = two.fault("lose", two.agents[2])
    assert ("a2", "r2", "repaired", "", "wire", at) in anomalies(judged(tree))


@pytest.mark.parametrize(("after", "strays"), [(GRACE - 100, []), (GRACE + 500, ["misrouted"])])
def test_message_of_a_parent_that_was_left_is_late_or_misrouted(after: int, strays: list[str]) -> None:
    two = TwoRelays()
    tree, agent = two.tree, two.agents[1]
    sent = {**tree.links[0], "service": "r1", "uuid": two.upper.uuid, "sequence": 1, "outcome": "old"}
    tree.move(agent, tree.add("r3", relay=True))
    tree.receiving[agent].record(tree.time + after, **sent)
    found = judged(tree).strays()
    assert [row.verdict for row in found] == strays
    assert all((row.name, row.uuid, row.sequence) == ("a1", two.upper.uuid, 1) for row in found)


@pytest.mark.parametrize("to", ["relay", "origin"])
def test_messages_of_a_parent_that_nothing_names_are_no_strays(to: str) -> None:
    """The replica is killed before the first hello of its new parent."""
    two = TwoRelays()
    tree, agent = two.tree, two.agents[1]
    lower = {"service": "r2", "uuid": two.lower.uuid, "sequence": 1}
    origin = {"service": "s", "uuid": two.tree.uuid, "sequence": 1}
    tree.time += GRACE
    mine = tree.receiving[agent]
    mine.record(tree.time, kind="parent", cause="tcp://elsewhere")
    mine.record(tree.time + 1, **{**tree.links[0], **(lower if to == "relay" else origin), "outcome": "old"})
    tree.stop(agent)
    oracle = judged(tree)
    assert (oracle.strays(), anomalies(oracle)) == ([], set())
    assert Counter(row.verdict for row in oracle.delivery()) == {"ok": 15}


@pytest.mark.parametrize("missing", ["relay", "replica", "both"])
def test_missing_journal_of_a_relay_is_missing_evidence(missing: str) -> None:
    two = TwoRelays()
    sides = ("relay r1", "replica r1") if missing == "both" else (f"{missing} r1",)
    oracle = judged(two.tree, sides)
    below = {row for row in oracle.delivery() if row.name in ("a1", "r2")}
    if missing == "replica":
        assert {row.verdict for row in below} == {"ok"}
        assert oracle.unknown_requests() != [], "the origin answered it"
    else:
        detail = "unrecorded" if missing == "both" else "gap of a publisher"
        assert {(row.verdict, row.detail) for row in below} == {("unknown", detail)}
        assert oracle.unknown_parents() == ["r1"]
    assert oracle.bits() == 32
    assert {row.verdict for row in oracle.delivery() if row.name in ("a0", "a2")} == {"ok"}


def moved_after_a_delta(domain: str, *, claims: bool) -> Tree:
    """Neither relay had sent the last change. The replica comes within the bound to the other one, which sends it then.
    ``claims``: the delta that read the change before has no record of it.
    """
    two = TwoRelays(domain)
    tree, agent = two.tree, two.named("a1")
    at = tree.position + 1
    for relay in ("r1", "r2"):
        tree.faults["forget", relay].add(at)
    if claims:
        tree.faults["claim", agent.name].add(at)
    tree.publish()
    tree.time += 200
    for node in (two.lower, agent):
        tree.sync(node, tree.time)
    tree.move(agent, two.lower)
    tree.time += 2500
    tree.faults["forget", "r2"].clear()
    tree._pass_on(two.lower, tree.links[at - 1], tree.time)
    return tree


@pytest.mark.parametrize("claims", [False, True])
def test_claim_of_a_delta_is_no_proof_at_the_next_parent(claims: bool) -> None:
    tree = moved_after_a_delta("d", claims=claims)
    (row,) = [each for each in anomalies(judged(tree)) if each[0] == "a1"]
    lost = ("a1", "r2", "lost", "middle", "subscriber", 4)
    assert row == (lost if claims else ("a1", "r1", "repaired", "", "relay", 4))


def test_verdicts_do_not_change_when_the_hosts_clocks_differ() -> None:
    plain, skewed = TwoRelays(), TwoRelays(skews={"h-r1": 4_000_000, "h-r2": -7_000_000, "h-a2": 1_000_000})
    for two in (plain, skewed):
        two.fault("lose", two.lower)
        two.fault("forget", two.upper)
        two.fault("lose", two.agents[2], repaired=False)
    assert judged(plain.tree).delivery() == judged(skewed.tree).delivery()


@pytest.mark.parametrize("seed", range(40))
def test_every_planted_fault_is_found_at_its_hop_and_nothing_else(seed: int) -> None:
    rng = random.Random(seed)
    tree = random_nodes(
        rng, "d", {f"h{at}": rng.choice((0, 0, rng.randrange(-9_000_000, 9_000_000))) for at in range(4)}
    )
    planted: set[Anomaly] = set()
    for _ in range(rng.randrange(1, 8)):
        for _ in range(rng.randrange(1, 3)):
            tree.publish()
        planted |= plant(rng, tree)
    assert anomalies(judged(tree)) == planted


def plant(rng: random.Random, tree: Tree) -> set[Anomaly]:
    """A fault on one hop of the next change, which a later message reveals; and the rows that must show it."""
    node = rng.choice(tree.nodes)
    at, service = tree.position + 1, "s" if node.parent is None else node.parent.name
    what = rng.choice(("lose", "alter", "forget" if node.relay else "lose"))
    tree.faults[what, node.name].add(at)
    tree.publish()
    tree.publish()
    if what == "forget":
        below = [each for each in tree.nodes if each.parent is node]
        return {(each.name, node.name, "repaired", "", "relay", at) for each in below}
    if what == "lose":
        return {(node.name, service, "repaired", "", "wire", at)}
    return {(node.name, service, "corrupt", "wire", "", at)}  # a relay sends on what it got


def test_verdicts_do_not_change_when_all_records_of_a_host_are_shifted() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        rows = with_gaps(rng, random_tree(rng, "d").rows())
        shifts = {row.host: rng.randrange(10**9) for row in rows}
        shifted = [
            msgspec.structs.replace(
                row,
                wall=row.wall + shifts[row.host],
                written=row.written and row.written + shifts["h0"],
            )
            for row in rows
        ]
        one, two = (Oracle(each, WINDOW, GRACE, BOUND, SILENCE) for each in (rows, shifted))
        assert one.delivery() == two.delivery()


@pytest.mark.long
@pytest.mark.parametrize(("size", "number"), [(LITTLE, 60), (MUCH, 60)])
def test_pipeline_gives_the_verdicts_of_the_oracle(audit: Audit, size: int, number: int) -> None:
    cases: dict[str, list[Row]] = {}
    for seed in range(number):
        rng = random.Random(seed)
        tree = random_tree(rng, f"d{seed}")
        missing = rng.choice((*tree.sending.values(), *tree.participants, *[None] * 20))
        without = () if missing is None else (f"{missing.side} {missing.name}",)
        cases[f"d{seed}"] = with_gaps(rng, tree.rows(close=rng.random() < 0.7, without=without))
    cases["claim"] = moved_after_a_delta("claim", claims=True).rows()
    tables = audit(cases, size)
    found = rows_by_domain(tables.delivery, Verdict._fields)
    strays = rows_by_domain(tables.strays, Stray._fields)
    stored = rows_by_domain(tables.store, StoreFinding._fields)
    sentence = re.compile(r"(\d+) parents of replicas of (\S+) ")
    problems = [match for each in evidence(tables, SETTINGS).problems if (match := sentence.match(each))]
    unknown = {match[2]: int(match[1]) for match in problems}
    assert unknown, "no relay's journal is missing"
    grains = windows.grains(tables.delivery, tables.domains, SETTINGS)
    hops: dict[str, dict[Hop, Any]] = defaultdict(dict)
    for hop in tree_table.tree(tables, grains).collect():
        hops[hop["domain"]][hop["service"], hop["name"]] = hop
    for domain, rows in cases.items():
        oracle = Oracle(rows, WINDOW, GRACE, BOUND, SILENCE)
        assert unknown.get(domain, 0) == len(oracle.unknown_parents()), domain
        assert found[domain] == oracle.delivery(), domain
        assert strays[domain] == oracle.strays(), domain
        assert stored[domain] == oracle.store(), domain
        tree_has_the_counts_and_parents(hops[domain], oracle)


def tree_has_the_counts_and_parents(hops: Mapping[Hop, Any], oracle: Oracle) -> None:
    if not oracle.named and all(rows[0].side != "relay" for rows in oracle.runs.values()):
        assert hops == {}, "no journal shows a relay"
        return
    wanted: dict[Hop, Counter[str]] = defaultdict(Counter)
    for row in oracle.delivery():
        places = [place for place, blames in LAST_SEEN.items() if row.blame in blames]
        faults = [row.verdict] if row.verdict in HOP_FAULTS else []
        wanted[row.service, row.name].update(["expected", category(row.verdict, row.way), *places, *faults])
    assert {hop: {name: row[name] for name in tree_table.COUNTS if row[name]} for hop, row in hops.items()} == {
        hop: dict(wanted[hop]) for hop in hops
    }
    assert wanted.keys() <= hops.keys()
    children = [rows for run, rows in oracle.runs.items() if run in oracle.named]
    arrivals = Counter((each.service, rows[0].name) for rows in children for each in stretches(rows))
    assert {hop: row["arrivals"] for hop, row in hops.items() if row["arrivals"]} == arrivals


def rows_by_domain(table: "DataFrame", fields: Sequence[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in table.select("domain", *fields).collect():
        found[row["domain"]].append(tuple(row)[1:])
    return defaultdict(list, {domain: sorted(rows) for domain, rows in found.items()})
