"""The monitor's evidence waits for the same points as a replica that obeys rules 3 and 5."""

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ZERO, Point
from pubsub_lib.core.reorder_buffer import WaitingSpace
from pubsub_lib.core.transitions import Trigger
from simulator.evidence import Evidence, may_wait

ONE, TWO, OTHER = Point(1, 11), Point(2, 12), Point(2, 22)


def test_repeated_link_is_covered_by_a_sync_that_began_after_its_first_message() -> None:
    evidence = Evidence(0.0)
    evidence.receive_link(ONE, TWO, 1.0)
    evidence.sync_begun()
    evidence.receive_link(ONE, TWO, 2.0)
    assert evidence.waits() == {TWO: 1.0}
    evidence.sync_ended()
    assert evidence.waits() == {}


def test_head_does_not_stand_for_its_link() -> None:
    evidence = Evidence(0.0)
    evidence.receive(TWO, 1.0)
    evidence.sync_begun()
    evidence.receive_link(ONE, TWO, 2.0)
    assert evidence.waits() == {TWO: 1.0}
    evidence.sync_ended()
    assert evidence.waits() == {TWO: 2.0}


def test_head_received_again_during_a_sync_waits_after_it_and_its_link_does_not() -> None:
    evidence = Evidence(0.0)
    evidence.receive_link(ONE, TWO, 1.0)
    evidence.sync_begun()
    evidence.receive(TWO, 2.0)
    evidence.sync_ended()
    assert evidence.waits() == {TWO: 2.0}
    evidence.sync_begun()
    evidence.receive_link(ONE, TWO, 3.0)  # the sync dropped the link, so it was received for the first time
    evidence.sync_ended()
    assert evidence.waits() == {TWO: 3.0}


def test_link_that_takes_its_place_back_is_received_again() -> None:
    evidence = Evidence(0.0)
    evidence.receive_link(ONE, TWO, 1.0)
    evidence.sync_begun()
    evidence.receive_link(ONE, OTHER, 2.0)
    assert evidence.waits() == {OTHER: 2.0}
    evidence.receive_link(ONE, TWO, 3.0)
    assert evidence.waits() == {TWO: 1.0}
    evidence.sync_ended()
    assert evidence.waits() == {TWO: 3.0}


def test_points_up_to_known_are_forgotten() -> None:
    evidence = Evidence(0.0)
    evidence.receive_link(ZERO, ONE, 1.0)
    evidence.receive_link(ONE, TWO, 2.0)
    evidence.forget(1)
    assert evidence.waits() == {TWO: 2.0}
    evidence.sync_begun()
    evidence.receive_link(ZERO, ONE, 3.0)  # known went back by a full sync of a restored store
    evidence.sync_ended()
    assert evidence.waits() == {ONE: 3.0}


def test_old_link_is_dropped_unless_the_chain_is_frozen() -> None:
    chain = Chain("t", WaitingSpace(Limits()), TWO, 0.0)
    for trigger in (Trigger.RESUMED, Trigger.BEGUN, Trigger.CAUGHT_UP):
        chain.trigger(trigger)
    assert [may_wait(chain, point) for point in (ONE, TWO, Point(3, 13))] == [False, False, True]
    chain.trigger(Trigger.ASKED)
    assert may_wait(chain, ONE), "the full sync may set known to an earlier point"
    assert may_wait(None, ONE)


def test_clock_of_a_replaced_link_goes_on_after_known_has_passed_it_and_ends_with_a_sync() -> None:
    evidence = Evidence(0.0)
    evidence.receive_link(ONE, TWO, 1.0)
    late = Point(5, 15)
    evidence.receive_link(ONE, late, 2.0)
    evidence.forget(TWO.position)  # known moved on by another link
    assert evidence.oldest(9.0) == 1.0
    assert evidence.waits() == {late: 2.0}
    evidence.sync_begun()
    evidence.receive_link(ONE, late, 3.0)
    evidence.sync_ended()
    assert evidence.oldest(9.0) == 9.0
