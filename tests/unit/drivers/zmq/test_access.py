"""Which clients may connect, and which of their subscriptions take effect."""

import pytest

from pubsub_lib.api import Client
from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_zmq.access import Access, Decision

ONE, TWO = "a" * 40, "b" * 40
HELD = Decision(subscribe=True)
NOTHING = Decision()


def client(name: str, key: str, *topics: str) -> Client:
    return Client(name, key, frozenset(topics))


def access(*clients: Client) -> Access:
    made = Access(Limits())
    made.replace(clients)
    return made


def test_no_program_may_connect_before_clients_are_known() -> None:
    made = Access(Limits())
    assert not made.accepts(ONE)
    assert made.decide(ONE, codec.topic_frame(ALL)) == NOTHING
    assert made.decide("", codec.subscription(ALL)) == NOTHING
    assert made.counts["refused"] == 1


def test_client_subscribes_to_granted_topics_hellos_and_replies() -> None:
    made = access(client("one", ONE, "t1", "é"))
    assert made.accepts(ONE)
    for prefix in (codec.subscription("t1"), codec.subscription("é"), codec.topic_frame(ALL), codec.private_frame("n")):
        assert made.decide(ONE, prefix) == HELD
    assert made.counts == {"refused": 0, "denied": 0}


@pytest.mark.parametrize(
    "prefix",
    [
        b"",
        b"D",
        b"Dt",
        b"Dt1",
        b"Dt2\0",
        b"Dt1\0\0",
        b"Dt1\0x\0",
        b"D\xff\0",
        b"H",
        b"H\0",
        b"Hn",
        b"X",
        b"\0",
        b"D\0t1\0",
    ],
)
def test_other_prefixes_are_denied(prefix: bytes) -> None:
    made = access(client("one", ONE, "t1", "t"))
    decision = made.decide(ONE, prefix)
    assert not decision.subscribe
    assert not decision.request or prefix[:1] == b"H"  # read and counted as no request of this library


def test_everything_is_granted_only_with_all() -> None:
    made = access(client("one", ONE, ALL))
    assert made.decide(ONE, codec.subscription(ALL)) == HELD
    assert made.decide(ONE, codec.subscription("any")) == HELD
    assert made.decide(ONE, b"") == NOTHING
    assert made.decide(TWO, codec.subscription(ALL)) == NOTHING


def test_hello_request_keeps_only_granted_topics() -> None:
    made = access(client("one", ONE, "t1"), client("two", TWO, ALL))
    both = codec.hello_request_frame("n", ["t1", "t2", ALL])
    assert codec.read_hello_request(made.decide(ONE, both).request).topics == (ALL, "t1")
    assert made.decide(TWO, both) == Decision(request=both)
    assert made.decide(ONE, codec.hello_request_frame("n", ["t2"])) == NOTHING
    own = codec.hello_request_frame("n", ["t1"])
    assert made.decide(ONE, own) == Decision(request=own)
    assert made.counts["denied"] == 2
    assert made.decide("c" * 40, own) == NOTHING


def test_connections_are_renewed_when_a_connected_client_loses_something() -> None:
    one, two = client("one", ONE, "t1", "t2"), client("two", TWO, "t1")
    made = access(one, two)
    assert made.accepts(ONE)
    assert not made.replace([one, two])
    assert not made.replace([one])  # the other one was not connected
    assert not made.replace([client("renamed", ONE, "t1", "t2", "t3")])
    assert made.replace([client("one", ONE, "t1")])
    assert made.replace([])
    made.renewed()
    assert not made.replace([one])
    assert not made.replace([])


def test_connections_are_renewed_when_a_denied_client_gains_a_topic() -> None:
    made = access(client("one", ONE, "t1"))
    assert made.accepts(ONE)
    made.decide(ONE, codec.subscription("t2"))
    assert not made.replace([client("one", ONE, "t1")])
    assert made.replace([client("one", ONE, "t1", "t2")])
    made.renewed()
    assert not made.replace([client("one", ONE, "t1", "t2", "t3")])


def test_denied_client_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    made = access(client("one", ONE))
    for _ in range(3):
        made.decide(ONE, codec.subscription("t2"))
    assert caplog.text.count("'one' requests topics that it was not granted") == 1
    assert made.counts["denied"] == 3


def test_subscription_is_restricted_unless_every_client_may_have_it() -> None:
    made = access(client("one", ONE, "t1", "t2"), client("two", TWO, ALL))
    assert not made.is_restricted(codec.topic_frame(ALL))
    assert not made.is_restricted(codec.subscription("t1"))
    assert made.is_restricted(codec.subscription("t3"))
    assert made.is_restricted(codec.subscription(ALL))
    assert made.is_restricted(codec.private_frame("n"))
    made.replace([client("one", ONE, "t1"), client("two", TWO, "t2")])
    assert made.is_restricted(codec.subscription("t1"))
