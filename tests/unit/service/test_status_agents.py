"""The agents on the status page: the tree, what is known of each, and how many are left out."""

from pubsub_lib.core.model import ALL
from pubsub_lib.service.status_agents import MAX_ROWS
from pubsub_lib.service.status_page import page
from tests.unit.service.statuses import Words, agent, agents, status


def test_agents_are_shown_as_a_tree_with_the_stalest() -> None:
    relay = agent(uuid="r1", name="relay-1", role="relay", parent="", topics=(ALL,), topics_total=1, staleness=0.5)
    fresh, new = agent(), agent(uuid="a2", name="agent-2", topics=("t",) * 4, topics_total=900, staleness=None)
    words = Words(page(status(agents=agents(fresh, new, relay, left_out=7)))).text
    assert "3 agents: 1 not synced, the stalest, agent-1, 13.2 s" in words
    begin = words.index("api-1 origin")
    assert words[begin:].startswith(
        "api-1 origin, 3 below relay-1 relay on edge-1, version 0.1.0, 2 below all 12.0 s ago 0.5 s "
        "agent-1 replica on edge-1, version 0.1.0 t1, t2 12.0 s ago 1.2 s "
        "agent-2 replica on edge-1, version 0.1.0 t, t, t and 897 more 12.0 s ago not synced "
        "7 more agents, for which there was no place, are left out"
    )
    assert "does not know which replicas exist" not in words
    assert "No agent has announced itself." in Words(page(status(agents=agents()))).text


def test_agents_beyond_the_maximum_are_counted() -> None:
    many = [agent(uuid=f"u{each}", name=f"n{each:04}", parent="") for each in range(MAX_ROWS + 50)]
    words = Words(page(status(agents=agents(*many)))).text
    assert "51 more rows are left out; pubsub-db tree lists all." in words
    assert f"n{MAX_ROWS:04}" not in words
