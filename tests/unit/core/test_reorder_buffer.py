"""Links that wait for an earlier one or for the rest of their run: bounded, oldest first, whole steps only."""

import pytest

from pubsub_lib.core.envelope import Message
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ZERO, Link
from pubsub_lib.core.reorder_buffer import (
    ALL_CHAINS_BYTES,
    ALL_CHAINS_LINKS,
    CHANGE_OVERHEAD,
    ReorderBuffer,
    WaitingSpace,
    size_of,
)
from tests.unit.core.builders import History, run_of

ONE = size_of(History().one(value="12"))
"""Size of a link with one change and a value of 2 bytes."""


def hold(waiting: ReorderBuffer, link: Link | Message, now: float = 0.0, turn: int = 1) -> bool:
    message = link if isinstance(link, Message) else Message(link)
    return waiting.hold(message, message.link.prev, 1, now, turn)


def test_step_is_taken_once_and_only_at_its_previous_point() -> None:
    first, second = History().some(2)
    waiting = ReorderBuffer(WaitingSpace(Limits()))
    hold(waiting, second)
    assert waiting.take(ZERO) is None
    step = waiting.take(first.point)
    assert step is not None
    assert step.links() == [second]
    assert waiting.take(first.point) is None
    assert (len(waiting), waiting.messages) == (0, 0)


def test_incomplete_run_is_not_taken() -> None:
    link = History().commit(("t", "a", "1"), ("t", "b", "2"), ("t", "c", "3"))[0]
    parts = run_of(link, 3)
    waiting = ReorderBuffer(WaitingSpace(Limits()))
    for part in (parts[2], parts[0], parts[2]):
        hold(waiting, part)
        assert waiting.take(ZERO) is None
    hold(waiting, parts[1])
    step = waiting.take(ZERO)
    assert step is not None
    assert step.links() == [link]


def test_links_of_a_transaction_come_in_written_order() -> None:
    links = History().commit(("b", "k", "1"), ("a", "k", "1"), ("c", "k", "1"))
    waiting = ReorderBuffer(WaitingSpace(Limits()))
    for link in (links[2], links[0], links[1]):
        waiting.hold(Message(link), link.tx_prev, link.tx_links, 0.0, 1)
    step = waiting.take(ZERO)
    assert step is not None
    assert step.links() == links


@pytest.mark.parametrize(
    ("limits", "fits"), [(Limits(max_waiting_links=3), 3), (Limits(max_waiting_bytes=3 * ONE + 1), 3), (Limits(), 6)]
)
def test_rule_02_buffer_never_exceeds_its_limits(limits: Limits, fits: int) -> None:
    history = History()
    links = [history.one(value="12") for _ in range(6)]
    waiting = ReorderBuffer(WaitingSpace(limits))
    assert [hold(waiting, link) for link in links] == [True] * fits + [False] * (6 - fits)
    assert waiting.messages == fits
    assert hold(waiting, links[0]), "a repeated link needs no room"
    waiting.drop_old(links[-1].point, everywhere=True)
    assert all(hold(waiting, link) for link in links[:fits]), "removed links free their room"


def test_every_removal_frees_room() -> None:
    history = History()
    links = [history.one(value="12") for _ in range(3)]
    space = WaitingSpace(Limits(max_waiting_links=3, max_waiting_bytes=3 * ONE))
    for _ in range(5):
        waiting = ReorderBuffer(space)
        for leave in (
            lambda: waiting.take(ZERO),  # noqa: B023 - called within the round
            lambda: waiting.drop_old(links[0].point, everywhere=False),  # noqa: B023
            lambda: waiting.drop_before(2),  # noqa: B023
            lambda: waiting.drop_all(),  # noqa: B023
        ):
            assert hold(waiting, links[0])
            leave()
            assert waiting.messages == 0
        assert all(hold(waiting, link) for link in links)
        waiting.drop_all()
        assert (space.messages, space.bytes) == (3 * ALL_CHAINS_LINKS, 3 * ONE * ALL_CHAINS_BYTES)


@pytest.mark.parametrize(
    ("limits", "together"),
    [
        (Limits(max_waiting_links=4), 4 * ALL_CHAINS_LINKS),
        (Limits(max_waiting_bytes=4 * ONE), 4 * ALL_CHAINS_BYTES),
    ],
)
def test_rule_02_buffers_of_all_chains_together_never_exceed_their_limits(limits: Limits, together: int) -> None:
    space = WaitingSpace(limits)
    history = History()
    chains = [(ReorderBuffer(space), [history.one(value="12") for _ in range(3)]) for _ in range(together)]
    kept = [sum(hold(waiting, link) for link in links) for waiting, links in chains]
    assert sum(kept) == together
    assert kept[:2] == [3, 3], "the first chains have their own limits"
    first, links = chains[0]
    assert hold(first, links[0]), "a repeated link needs no room"
    last, others = chains[-1]
    assert not hold(last, others[0])
    first.take(links[0].prev)
    assert hold(last, others[0]), "what another chain needs no more is free"
    assert not hold(last, others[1])


def test_rule_03_repeated_message_keeps_the_time_of_its_first_arrival() -> None:
    links = History().some(4)
    waiting = ReorderBuffer(WaitingSpace(Limits()))
    for now, link in ((1.0, links[3]), (2.0, links[1]), (3.0, links[3])):
        hold(waiting, link, now)
    assert waiting.oldest is not None
    assert waiting.oldest.received == 1.0
    assert list(waiting.points()) == [links[3].point, links[1].point]


def test_two_histories_at_one_point_keep_the_later_message_and_the_older_time() -> None:
    one, other = History(1).one(), History(2).one()
    space = WaitingSpace(Limits())
    waiting = ReorderBuffer(space)
    hold(waiting, one, 1.0, turn=1)
    hold(waiting, other, 2.0, turn=5)
    assert (len(waiting), waiting.messages) == (1, 1)
    assert space.messages == WaitingSpace(Limits()).messages - 1
    assert waiting.oldest is not None
    assert (waiting.oldest.point, waiting.oldest.received) == (other.point, 1.0)
    assert waiting.drop_before(5) == 0, "a sync that began in between does not cover it"


def test_rule_05_time_of_a_replaced_step_ends_with_a_sync_that_drops_it() -> None:
    history, other = History(1), History(2)
    waiting = ReorderBuffer(WaitingSpace(Limits()))
    one, far = history.some(3)[::2]
    hold(waiting, one, 1.0, turn=1)
    hold(waiting, far, 2.0, turn=5)
    later = other.one()
    hold(waiting, later, 3.0, turn=6)
    assert waiting.drop_before(1) == 0
    assert waiting.oldest is not None
    assert (waiting.oldest.point, waiting.oldest.received) == (later.point, 1.0), "this sync does not cover it"
    assert waiting.drop_before(5) == 0
    assert waiting.oldest.received == 2.0, "the clock belongs to the oldest of those that stay"
    assert list(waiting.points()) == [far.point, later.point]
    hold(waiting, one, 4.0, turn=7)
    assert waiting.drop_before(6) == 1
    assert (waiting.oldest.point, waiting.oldest.received) == (one.point, 3.0)
    assert waiting.drop_before(7) == 0
    assert waiting.oldest.received == 4.0


def test_drop_old_stops_at_the_first_later_step_unless_everywhere() -> None:
    links = History().some(4)
    waiting = ReorderBuffer(WaitingSpace(Limits()))
    for link in (links[0], links[3], links[1]):
        hold(waiting, link)
    assert waiting.drop_old(links[2].point, everywhere=False) == 1
    assert waiting.drop_old(links[2].point, everywhere=True) == 1
    assert list(waiting.points()) == [links[3].point]


def test_rule_05_drop_before_uses_the_turn_of_the_first_message() -> None:
    link = History().commit(("t", "a", "1"), ("t", "b", "2"))[0]
    parts = run_of(link, 2)
    waiting = ReorderBuffer(WaitingSpace(Limits()))
    hold(waiting, parts[0], turn=1)
    hold(waiting, parts[1], turn=9)
    assert waiting.drop_before(5) == 1


def test_size_counts_all_changes_including_deletes() -> None:
    history = History()
    link = history.commit(("t", "a", "123"), ("t", "b", "4"))[0]
    names = sum(len(change.table) + len(change.key) for change in link.changes)
    assert size_of(link) == 4 + names + 2 * CHANGE_OVERHEAD
    delete = history.one(key="a", value=None)
    assert size_of(delete) == len(delete.changes[0].table) + 1 + CHANGE_OVERHEAD


def test_deletes_that_wait_are_bounded() -> None:
    history = History()
    keys = [f"{number:03}" + "k" * 500 for number in range(20)]
    history.commit(*[("t", key, "1") for key in keys])
    link = history.commit(*[("t", key, None) for key in keys])[0]
    assert not hold(ReorderBuffer(WaitingSpace(Limits(max_waiting_bytes=10_000))), link)


def test_turns_since_a_time_are_of_first_messages_and_of_clocks() -> None:
    history = History()
    [first] = history.some(1)
    other = History(seed=5).one(value="3")
    waiting = ReorderBuffer(WaitingSpace(Limits()))
    hold(waiting, first, 3.0, 4)
    assert (list(waiting.turns_from(3.0)), list(waiting.turns_from(3.5))) == ([4, 4], [])
    hold(waiting, other, 6.0, 8)  # takes the place of the first, whose clock goes on
    assert (list(waiting.turns_from(3.0)), list(waiting.turns_from(3.5))) == ([4, 8], [8])
