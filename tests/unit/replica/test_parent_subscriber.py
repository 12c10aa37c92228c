"""A replica listens to one parent, and leaves it for a reason (rules R5 and R6)."""

from collections.abc import Collection, Mapping

import pytest

from pubsub_lib.api import OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.model import ALL
from pubsub_lib.core.quarantine import Publisher
from pubsub_lib.errors import TransportError
from pubsub_lib.replica.parent_subscriber import MAX_REQUESTED, ParentJournal, ParentSubscriber
from tests.unit.world import QUICK

STALE = QUICK.stale_after
FIRST, SECOND, THIRD = "1" * 32, "2" * 32, "3" * 32


class Driver(Subscriber):
    """Records the addresses, and passes on what a test gives it."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.calls: list[object] = []
        self.refuses = ""

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        self.give = on_envelope

    def register_listen_address(self, address: str) -> None:
        if address == self.refuses:
            raise TransportError("no such transport")
        self.addresses.append(address)

    def unregister_listen_address(self, address: str) -> None:
        self.addresses.remove(address)

    def register_topic(self, topic: str) -> None:
        self.calls.append(("topic", topic))

    def unregister_topic(self, topic: str) -> None:
        self.calls.append(("no topic", topic))

    def pin_key(self, address: str, public_key: str) -> None:
        self.calls.append(("key", address, public_key))

    def know_publishers(self, uuids: Collection[str]) -> None:
        self.calls.append(("known", *uuids))

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        self.calls.append(("hello", nonce, tuple(topics)))

    def daemonize(self) -> None:
        self.calls.append("started")

    def counters(self) -> Mapping[str, int]:
        return {"received": 7}

    def close(self) -> None:
        self.calls.append("closed")


class Rig:
    """A subscriber of the parents a, b and c, whose thread does not run: a test calls its steps."""

    def __init__(self, journal: ParentJournal | None = None) -> None:
        self.driver = Driver()
        self.silent = self.unreadable = 0.0
        self.received: list[Envelope] = []
        self.parents = ParentSubscriber(self.driver, ["a", "b", "c"], QUICK)
        self.parents.judge_by(lambda now, readable: self.silent if readable else self.unreadable)
        self.parents.record_by(journal)
        self.parents.initialize(self.received.append, lambda: None)
        self.begun = self.parents._parents._since

    def step(self, seconds: float) -> float:
        """A step, ``seconds`` after the start; returns the seconds from then until the next step."""
        return self.parents.step(self.begun + seconds) - self.begun - seconds

    def hello(
        self,
        uuid: str,
        *,
        goodbye: bool = False,
        service: str = "relay",
        instead: tuple[str, ...] = (),
        serves: int = 0,
        nonce: str = "",
    ) -> None:
        made = Hello({}, {}, None, 0.0, nonce, goodbye, instead=instead, serves=serves)
        self.driver.give(Envelope(service, uuid, ALL, 0, (), made))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_rule_r5_first_parent_is_listened_to_and_a_silent_one_is_left(rig: Rig) -> None:
    assert rig.driver.addresses == ["a"]
    rig.silent = 0.1
    assert STALE - 0.1 < rig.step(0.0) < STALE + 0.2
    assert rig.step(STALE) > STALE - 0.2, "the next check is when the proof would be too old"
    assert rig.driver.addresses == ["a"]
    rig.silent = STALE + 0.1
    assert STALE - 0.1 < rig.step(2 * STALE) < STALE + 0.2
    assert (rig.driver.addresses, rig.parents.current, rig.parents.moves) == (["b"], "b", 1)


def test_rule_r5_parent_without_a_channel_proves_nothing_that_is_to_be_read_from_it(rig: Rig) -> None:
    rig.unreadable = STALE + 0.1
    rig.hello(FIRST)
    rig.step(2 * STALE)
    assert rig.parents.current == "a", "syncs are read elsewhere"
    rig.parents.make_channel()
    rig.hello(FIRST, serves=8867)
    rig.step(2 * STALE)
    assert rig.parents.current == "a"
    rig.hello(FIRST)
    rig.step(2 * STALE)
    assert (rig.driver.addresses, rig.parents.current) == (["b"], "b")


def test_goodbye_of_the_parent_is_a_reason_to_leave_at_once(rig: Rig) -> None:
    rig.hello(FIRST)
    rig.hello(FIRST, goodbye=True)
    assert rig.parents.current == "b"
    rig.step(0.1)
    assert rig.driver.addresses == ["b"]
    rig.hello(FIRST, goodbye=True)
    assert rig.parents.current == "b", "a late message of the old parent"
    rig.hello(SECOND, goodbye=True)
    assert rig.parents.current == "c"
    assert len(rig.received) == 4, "the replica gets every message"


def test_channel_is_that_of_the_last_hello_of_the_current_parent(rig: Rig) -> None:
    assert rig.parents.channel == ("a", 0)
    rig.hello(FIRST, serves=8867)
    assert rig.parents.channel == ("a", 8867)
    rig.hello(FIRST, serves=8868)
    assert rig.parents.channel == ("a", 8868), "the endpoint was started again, at another port"
    rig.hello(FIRST)
    assert rig.parents.channel == ("a", 0), "it is served no more"
    rig.hello(FIRST, serves=8868)
    rig.hello(FIRST, goodbye=True)
    assert rig.parents.channel == ("b", 0), "nothing of the new parent was received yet"
    rig.hello(FIRST, serves=8868)
    assert rig.parents.channel == ("b", 0), "a late message of the old parent"
    rig.hello(SECOND, serves=8869)
    assert rig.parents.channel == ("b", 8869)
    rig.silent = 2 * STALE
    rig.step(3 * STALE)
    assert rig.parents.channel == ("c", 0), "the parent that it left without a goodbye had another port"


def test_parent_at_another_address_of_the_same_relay_is_used(rig: Rig) -> None:
    """Two networks lead to one relay, and the first one is cut."""
    rig.parents.request_hello("before", ["t"])
    rig.hello(FIRST, serves=8867)
    rig.silent = STALE + 0.1
    rig.step(2 * STALE)
    rig.hello(FIRST, serves=8867, nonce="before")
    assert rig.parents.channel == ("b", 0), "a late message of the old connection"
    rig.parents.request_hello("after", ["t"])
    rig.hello(FIRST, serves=8867, nonce="after")
    assert (rig.parents.channel, rig.parents.publisher) == (("b", 8867), "relay")
    rig.hello(FIRST, serves=8868)
    assert rig.parents.channel == ("b", 8868)
    rig.hello(FIRST, goodbye=True)
    assert rig.parents.current == "c", "its goodbye is used, too"


def test_request_before_the_old_address_is_disconnected_proves_no_new_parent(rig: Rig) -> None:
    rig.hello(FIRST, goodbye=True)
    rig.parents.request_hello("too early", ["t"])
    rig.step(0.1)
    rig.hello(FIRST, serves=8867, nonce="too early")
    assert rig.parents.channel == ("b", 0), "the stopped parent may have replied"
    rig.parents.request_hello("of b", ["t"])
    rig.hello(SECOND, goodbye=True)
    rig.hello(SECOND, serves=8867, nonce="of b")
    assert rig.parents.channel == ("c", 0), "a late reply of the parent before"


def test_parent_is_used_again_after_a_late_message_of_it(rig: Rig) -> None:
    rig.hello(FIRST)
    rig.silent = STALE + 0.1
    rig.step(2 * STALE)
    rig.hello(FIRST)
    rig.parents.request_hello("nonce", ["t"])
    rig.hello(SECOND, nonce="nonce")
    rig.hello(SECOND, goodbye=True, instead=("a",))
    rig.silent = 0.0
    rig.step(2 * STALE)
    rig.hello(SECOND)
    rig.hello(FIRST, serves=8867)
    assert rig.parents.channel == ("a", 8867)
    rig.parents.refuse("relay", FIRST)
    assert rig.parents.current == "b", "it is below this relay now"


def test_parents_that_did_not_reply_in_time_stay_left(rig: Rig) -> None:
    """The messages of a parent that was left two moves before arrive late."""
    rig.hello(FIRST)
    rig.hello(FIRST, goodbye=True)
    rig.step(0.1)
    rig.hello(SECOND, goodbye=True)
    rig.step(0.2)
    rig.hello(FIRST, goodbye=True)
    assert rig.parents.current == "c"


def test_newest_requests_are_remembered(rig: Rig) -> None:
    rig.hello(FIRST, goodbye=True)
    rig.step(0.1)
    for number in range(MAX_REQUESTED + 1):
        rig.parents.request_hello(f"n{number}", ["t"])
    rig.hello(FIRST, serves=8867, nonce="n0")
    assert rig.parents.channel == ("b", 0)
    rig.hello(FIRST, serves=8867, nonce=f"n{MAX_REQUESTED}")
    assert rig.parents.channel == ("b", 8867)


def test_left_channel_is_that_of_the_parent_that_was_left_last(rig: Rig) -> None:
    rig.hello(FIRST, serves=8867)
    assert rig.parents.left_channel == ("", 0)
    rig.silent = STALE + 0.1
    rig.step(2 * STALE)
    assert rig.parents.left_channel == ("a", 8867)
    rig.step(4 * STALE)
    assert rig.parents.left_channel == ("b", 0), "nothing was received from it"


def test_publisher_is_that_of_the_last_hello_of_the_current_parent(rig: Rig) -> None:
    assert rig.parents.publisher == ""
    rig.hello(FIRST, service="relay-7")
    assert rig.parents.publisher == "relay-7"
    rig.hello(FIRST, goodbye=True, service="relay-7")
    assert rig.parents.publisher == "", "nothing of the new parent was received yet"
    rig.hello(FIRST, service="relay-7")
    assert rig.parents.publisher == "", "a late message of the old parent"
    rig.hello(SECOND, service="relay-8")
    assert rig.parents.publisher == "relay-8"


def test_goodbye_that_names_other_relays_leads_to_one_of_the_own_parents(rig: Rig) -> None:
    rig.hello(FIRST)
    rig.hello(FIRST, instead=("c",))
    assert rig.parents.current == "a", "it is no goodbye"
    rig.hello(FIRST, goodbye=True, instead=("elsewhere", "c"))
    rig.step(0.1)
    assert (rig.driver.addresses, rig.parents.current) == (["c"], "c")
    rig.hello(SECOND, goodbye=True, instead=("elsewhere",))
    assert rig.parents.current == "a"


def test_rule_r6_parent_below_the_relay_is_left_and_not_used_for_a_while(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.hello(FIRST)
    rig.parents.refuse("relay-7", FIRST)
    assert rig.parents.current == "b"
    rig.parents.refuse("relay-7", FIRST)
    assert rig.parents.current == "b", "a late message of the old parent"
    rig.hello(SECOND)
    rig.parents.refuse("relay-8", SECOND)
    assert rig.parents.current == "c"
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(errors) == 2
    assert "relay-7" in errors[0]
    rig.hello(THIRD)
    rig.parents.refuse("relay-9", THIRD)
    assert rig.parents.current == "c", "the others are excluded"
    rig.silent = 100.0
    rig.step(STALE + 1.0)
    assert rig.parents.current == "a", "the loop may have ended"


def test_address_that_the_driver_refuses_is_left_for_the_next_one(rig: Rig) -> None:
    rig.driver.refuses = "b"
    rig.silent = STALE + 1.0
    with pytest.raises(TransportError):
        rig.step(STALE)
    assert rig.driver.addresses == ["a"]
    rig.step(STALE + 0.5)
    assert rig.driver.addresses == ["c"]


def test_relay_is_notified_after_the_driver_left_the_old_parent(rig: Rig) -> None:
    found = []
    rig.parents.notify_by(lambda: found.append((list(rig.driver.addresses), rig.parents.channel)))
    rig.hello(FIRST)
    rig.step(0.0)
    rig.hello(FIRST, goodbye=True)
    assert found == []
    rig.step(0.1)
    rig.step(0.2)
    assert found == [(["b"], ("b", 0))], "once, and without the lock"


class Records:
    """A journal of parents."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Publisher | None]] = []

    def parent(self, address: str, speaker: Publisher | None) -> None:
        self.found.append((address, speaker))


def test_journal_gets_each_parent_and_its_publisher_once() -> None:
    journal = Records()
    rig = Rig(journal)
    assert journal.found == [("a", None)], "before the first message"
    for uuid in (FIRST, FIRST, SECOND):  # the relay starts again
        rig.hello(uuid)
    rig.hello(SECOND, goodbye=True)
    rig.step(0.1)
    rig.hello(FIRST)
    rig.hello(SECOND)
    named = [("a", None), ("a", ("relay", FIRST)), ("a", ("relay", SECOND)), ("b", None)]
    assert journal.found == named, "late hellos of the old parent do not name the new one"
    rig.hello(THIRD)
    assert journal.found == [*named, ("b", ("relay", THIRD))]


def test_journal_gets_the_old_parent_again_when_the_new_address_is_refused() -> None:
    journal = Records()
    rig = Rig(journal)
    rig.hello(FIRST)
    rig.driver.refuses = "b"
    rig.silent = STALE + 1.0
    with pytest.raises(TransportError):
        rig.step(STALE)
    assert journal.found[1:] == [("a", ("relay", FIRST)), ("b", None), ("a", ("relay", FIRST))]


def test_the_rest_is_the_drivers(rig: Rig) -> None:
    parents = rig.parents
    parents.register_topic("t")
    parents.unregister_topic("t")
    parents.pin_key("a", "key")
    parents.know_publishers(["u"])
    parents.request_hello("nonce", ["t"])
    parents.daemonize()
    assert parents.counters() == {"received": 7}
    parents.close()
    assert rig.driver.calls == [
        ("topic", "t"), ("no topic", "t"), ("key", "a", "key"), ("known", "u"), ("hello", "nonce", ("t",)), "started",
        "closed",
    ]  # fmt: skip
