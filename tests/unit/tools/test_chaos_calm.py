"""The calm phase of ``tools/chaos``: what must work again after the last fault, and what counts as a message."""

import queue
from types import SimpleNamespace
from typing import Any

import pytest
from _chaos.calm import Calm
from _chaos.crew import Crew
from _chaos.messages import Followed, Lied, Message, Ready, Wrote
from _chaos.plan import DATABASE, Cast
from _chaos.replica import Figures, count_messages
from _patience import longest
from _processes import poll

from pubsub_lib import Publisher, Replica, Settings, Store

LONG = longest(120.0)
NOTHING = [
    "worker-1 committed nothing after the last fault",
    "replica-1 received no message of service-1 after the last fault",
    "replica-1 received no message of service-2 after the last fault",
    "replica-1 still polls the database after the last fault",
]


def a_calm() -> Calm:
    return Calm(["service-1", "service-2"], ["worker-1"], ["replica-1"])


def got(one: int, two: int, *, polling: bool = False) -> Followed:
    return Followed(messages={"service-1": one, "service-2": two}, polling=polling)


def wrote(done: int) -> Wrote:
    return Wrote(done, 8 * done, 0)


@pytest.mark.parametrize(
    ("reports", "problems"),
    [
        ([], NOTHING),
        ([("worker-1", 1, wrote(3)), ("replica-1", 1, got(5, 5, polling=True)), ("replica-1", 1, Ready())], NOTHING),
        ([("worker-1", 1, wrote(3)), ("worker-1", 1, wrote(4))], NOTHING[1:]),
        ([("worker-1", 1, wrote(3)), ("worker-1", 2, wrote(4))], NOTHING),
        ([("replica-1", 1, got(5, 5)), ("replica-1", 1, got(6, 5))], [NOTHING[0], NOTHING[2]]),
        ([("replica-1", 1, got(5, 5)), ("replica-1", 2, got(6, 6))], NOTHING[:3]),
        ([("replica-1", 1, got(5, 5)), ("replica-1", 1, got(6, 6, polling=True))], [NOTHING[0], NOTHING[3]]),
        ([("replica-5", 1, got(5, 5)), ("replica-5", 1, got(6, 6))], NOTHING),
    ],
)
def test_each_process_must_do_more_than_at_its_first_report(
    reports: list[tuple[str, int, Message]], problems: list[str]
) -> None:
    calm = a_calm()
    for report in reports:
        calm.note(*report)
    assert calm.problems() == problems


@pytest.mark.parametrize(
    ("driver", "senders"),
    [("zmq", ("service-1", "service-2")), ("nats", ("service-1", "service-2")), ("pgnotify", (DATABASE,))],
)
def test_with_notifications_the_database_is_the_only_sender(driver: str, senders: tuple[str, ...]) -> None:
    assert Cast(driver=driver).sender_names == senders


def a_crew(*reports: tuple[str, int, Message]) -> Crew:
    """A crew without participants that receives these reports."""
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for report in reports:
        received.put(report)
    starter: Any = SimpleNamespace(received=received, services=dict, workers=dict, replicas=dict)
    folder: Any = None
    return Crew(starter, folder, 1.0)


def test_crew_ends_the_calm_phase_when_nothing_is_missing_and_at_its_limit() -> None:
    worker = (("worker-1", 1, wrote(3)), ("worker-1", 1, wrote(4)))
    replica = (("replica-1", 1, got(5, 5)), ("replica-1", 1, got(6, 6)))
    assert a_crew(*worker, *replica).calm(a_calm(), LONG) == []
    assert a_crew(*worker).calm(a_calm(), 0.1) == NOTHING[1:]


def test_crew_knows_which_process_was_ready() -> None:
    crew = a_crew(("storm-1", 1, Ready()))
    storm: Any = SimpleNamespace(name="storm-1", starts=1)
    assert crew.was_ready(storm)
    storm.starts = 2
    assert not crew.was_ready(storm)


def test_crew_collects_the_links_of_all_liars() -> None:
    crew = a_crew(("lie-1", 1, Lied(("t", 1, 2))), ("lie-2", 1, Lied(("t", 3, 4))), ("lie-2", 1, Lied(("t", 3, 4))))
    crew.work(0.0)
    assert crew.lies == {("t", 1, 2), ("t", 3, 4)}


def test_replica_counts_links_of_messages_and_none_that_a_delta_brings(config: Settings, store: Store) -> None:
    figures = Figures()
    replica = Replica(config, ["t"], store=store)
    count_messages(replica, figures)

    def write(value: int) -> None:
        with store.transaction() as tx:
            tx.set("item", "k", value, topic="t")
        replica.wait_for(tx.commit, LONG)

    with replica:
        write(1)
        with Publisher(config, store):
            assert poll(lambda: not replica.status().polling, LONG)
            assert figures.message.messages == {}, "a hello has no links"
            write(2)
            assert poll(lambda: figures.message.messages == {"writer": 1}, LONG)
        write(3)
        assert figures.message.messages == {"writer": 1}
    assert figures.message.polling
    figures.look(0.0, polling=False, notifications=7)
    assert (figures.message.polling, figures.message.messages) == (False, {"writer": 1, DATABASE: 7})
