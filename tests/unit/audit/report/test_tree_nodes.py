"""The tree of the page: who stands below whom, and what the lines beside a hop state."""

from typing import Any

import pytest

from pubsub_lib.audit.report.page import ROWS, page
from pubsub_lib.audit.report.summary import Balance, Summary
from pubsub_lib.audit.report.tree_nodes import LEVELS, Node, trees
from tests.unit.audit.pages import BEGIN, HOSTILE, SECOND, hop, tree


def shown(*hops: dict[str, Any], most: int = ROWS) -> list[Any]:
    """The names as nested lists of the first domain."""
    return [names(node) for node in trees(hops, most)[0].nodes]


def names(node: Node) -> Any:
    return [node.name, *(names(each) for each in node.below)] if node.below else node.name


def lines(*hops: dict[str, Any]) -> list[str]:
    """The lines of the first node below the first publisher."""
    node = trees(hops, ROWS)[0].nodes[0].below[0]
    return [", ".join(part.text for part in line) for line in node.lines]


def test_replicas_stand_below_their_relays_and_relays_before_replicas() -> None:
    found = shown(
        hop("api", "relay-1", name_role="relay"),
        hop("api", "a replica"),
        hop("relay-1", "r-2", service_role="relay"),
        hop("relay-1", "r-1", service_role="relay"),
    )
    assert found == [["api", ["relay-1", "r-1", "r-2"], "a replica"]]


def test_replica_that_moved_stands_below_both_parents() -> None:
    found = shown(
        hop("api", "relay-1", name_role="relay"),
        hop("api", "relay-2", name_role="relay"),
        hop("relay-1", "r", service_role="relay"),
        hop("relay-2", "r", service_role="relay"),
    )
    assert found == [["api", ["relay-1", "r"], ["relay-2", "r"]]]


def test_relay_that_moved_has_its_replicas_below_its_last_parent() -> None:
    hops = [
        hop("api", "upper", name_role="relay"),
        hop("other", "upper", name_role="relay"),
        hop("api", "lower", name_role="relay", arrivals=1, came=BEGIN, left=BEGIN + SECOND, current=False),
        hop("upper", "lower", service_role="relay", name_role="relay", arrivals=1, came=BEGIN + SECOND, current=True),
        hop("lower", "r", service_role="relay"),
    ]
    assert shown(*hops) == [["api", "lower", ["upper", ["lower", "r"]]], ["other", "upper"]]
    assert trees(hops, ROWS)[0].nodes[1].below[0].lines[-1][0].text == "what is below it stands elsewhere in this tree"


def test_commits_without_a_known_publisher_are_shown_unless_all_are_excused() -> None:
    api, below = hop("api", "relay", name_role="relay"), hop("relay", "r", service_role="relay")
    unknown = hop("", "relay", name_role="relay", service_role="", expected=90, delivered=0, excused=90)
    assert shown(api, unknown, below) == [["api", ["relay", "r"]]]
    unknown["excused"] = 89
    assert shown(api, unknown, below) == [["unknown publishers", "relay"], ["api", ["relay", "r"]]]


def test_relays_that_listened_to_each_other_are_shown_once() -> None:
    role = {"service_role": "relay", "name_role": "relay"}
    assert shown(hop("a", "b", **role), hop("b", "a", **role)) == [["a", ["b", "a"]]]


def test_deep_chain_is_cut_into_several_trees() -> None:
    number = 1200
    found = trees([hop(f"r{at:04}", f"r{at + 1:04}", service_role="relay") for at in range(number)], ROWS)[0].nodes
    depths = [depth(node) for node in found]
    assert max(depths) == LEVELS
    assert sum(depths) == number, "each hop is shown once"
    assert "<b>r1200</b>" in page(summary([hop(f"r{at:04}", f"r{at + 1:04}") for at in range(number)]))


def depth(node: Node) -> int:
    return max((1 + depth(each) for each in node.below), default=0)


def test_replicas_beyond_the_maximum_are_counted() -> None:
    below = [hop("api", f"r-{place:02}") for place in range(25)]
    (tree,) = trees([hop("api", "z", name_role="relay"), *below, hop("z", "r", service_role="relay")], ROWS)
    (api,) = tree.nodes
    assert (len(api.below), api.more) == (1 + ROWS, 5)
    assert api.below[0].name == "z", "a relay is never left out"


def test_each_domain_has_its_tree() -> None:
    found = trees([hop("s", "r", domain="d2"), hop("s", "q", domain="d1")], ROWS)
    assert [(each.domain, [names(node) for node in each.nodes]) for each in found] == [
        ("d1", [["s", "q"]]), ("d2", [["s", "r"]])
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, ["of 10 expected: 10 delivered"]),
        ({"expected": 0, "delivered": 0}, ["no message was expected"]),
        (
            {"delivered": 7, "repaired": 2, "lost": 1, "late": 1, "stale_applied": 3, "on_wire": 2, "at_replica": 1},
            [
                "of 10 expected: 7 delivered, 2 repaired, 1 lost",
                "1 late, 3 stale applied",
                "repaired and lost ones were last seen: 2 on the wire, 1 at the replica",
            ],
        ),
        (
            {"arrivals": 3, "came": BEGIN, "current": True},
            [
                "listened here at the end, since 2026-09-21 14:13:20.000000 UTC, came 3 times",
                "of 10 expected: 10 delivered",
            ],
        ),
        (
            {"arrivals": 1, "came": BEGIN, "left": BEGIN + SECOND, "current": False, "expected": 0},
            [
                "listened here, since 2026-09-21 14:13:20.000000 UTC until 2026-09-21 14:13:21.000000 UTC",
                "no message was expected",
            ],
        ),
        (
            {"arrivals": 1, "came": 2**62, "current": False, "expected": 0},
            [f"listened here, since {2**62} UTC until its end", "no message was expected"],
        ),
    ],
    ids=["delivered", "nothing", "faults", "at the end", "left", "killed"],
)
def test_lines_beside_a_hop(changed: dict[str, Any], wanted: list[str]) -> None:
    assert lines(hop("s", "r", **changed)) == wanted


def test_only_faults_are_marked() -> None:
    (node,) = trees([hop("s", "r", lost=1, repaired=1, unknown=1, late=1, corrupt=1, on_wire=2)], ROWS)[0].nodes
    marked = [part.text for line in node.below[0].lines for part in line if part.fault]
    assert marked == ["1 lost", "1 late", "1 corrupt"]


def summary(hops: list[dict[str, Any]], count: int = 0) -> Summary:
    return Summary(0, {"": Balance(5, 5)}, [], [], [], [], [], [], tree=hops, hop_count=count or len(hops))


def test_page_has_the_tree_with_escaped_names() -> None:
    whole = page(summary(tree(HOSTILE)))
    assert '<a href="#tree">' in whole
    assert "<script>window.harmed" not in whole
    assert "<b>&lt;/script&gt;" in whole
    assert "summary.json</code> has" not in whole
    assert "summary.json</code> has 1 of all 900" in page(summary([hop("s", "r")], 900))


def test_page_without_relays_has_no_tree() -> None:
    whole = page(summary([]))
    assert 'id="tree"' not in whole
    assert '"#tree"' not in whole
