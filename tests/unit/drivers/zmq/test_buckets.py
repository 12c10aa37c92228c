"""Subscriptions to buckets (rule W7): few nodes in ZeroMQ's tree, no other topics, and every version receives all."""

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
import zmq

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.model import ALL, MAX_NAME_BYTES, ZERO
from pubsub_lib.errors import FrameError
from pubsub_zmq.buckets import (
    BUCKETS,
    EVERY_BUCKET,
    SINCE,
    Heads,
    Topics,
    bucketed,
    is_bucketed,
    is_few,
    plain,
    prefix_of,
    reply_prefix,
)
from pubsub_zmq.subscription_budget import TABLE, SubscriptionBudget
from tests.unit.drivers.zmq.strangers import leaving
from tests.unit.drivers.zmq.test_inflow_guard import MAX_WORK, costs_until, round_trip, work_of
from tests.unit.drivers.zmq.test_subscription_budget import stranger_with
from tests.unit.drivers.zmq.world import PATIENCE, ROOT, RawSocket, Sender, envelope, eventually, world

OLD = SINCE - 1
TWINS = next(  # two topics in one bucket
    pair for pair in itertools.combinations([f"t{each}" for each in range(500)], 2) if len({*map(prefix_of, pair)}) == 1
)
ENDING = """
import sys, zmq
context = zmq.Context()
context.set(zmq.MAX_SOCKETS, 2000)
made = [context.socket(zmq.SUB) for _ in range(int(sys.argv[2]))]
for each in made:
    each.connect(sys.argv[1])
    each.subscribe(b"D\\0")
print("connects", flush=True)
sys.stdin.readline()  # then they all end together, with the process
"""


def random_names(number: int) -> list[str]:
    """Topics of 44 bytes that have no begin in common."""
    rng = random.Random(1)
    return [f"{rng.getrandbits(176):044x}" for _ in range(number)]


def nodes(prefixes: Iterable[bytes]) -> int:
    """The number of nodes in a tree of these prefixes with a node for each byte."""
    return len({each[:length] for each in prefixes for length in range(1, len(each) + 1)})


def of_minor(number: int, body: bytes) -> bytes:
    fields = msgspec.msgpack.decode(body)
    return msgspec.msgpack.encode([fields[0], number, *fields[2:]])


def test_rule_w7_any_number_of_topics_has_few_nodes() -> None:
    most = 1 + BUCKETS // 256 + BUCKETS
    assert nodes(map(prefix_of, random_names(10_000))) <= most
    assert nodes(map(prefix_of, random_names(60_000))) == most, "every bucket is used"
    assert nodes(map(codec.subscription, random_names(10_000))) > 100 * most


@pytest.mark.parametrize("topic", ["a", "tenant-ä", "x" * MAX_NAME_BYTES])
def test_message_matches_its_bucket_and_all_buckets_and_no_name(topic: str) -> None:
    head = bucketed(codec.topic_frame(topic))
    assert head.startswith(prefix_of(topic))
    assert head.startswith(prefix_of(ALL))
    assert not head.startswith(codec.EVERYTHING)
    assert is_bucketed(head)
    assert plain(head) == codec.topic_frame(topic)
    assert len(head) <= codec.MAX_HEADER_BYTES


def test_wire_page_has_the_bytes_of_a_bucket() -> None:
    page = (ROOT / "docs" / "wire-format.md").read_text()
    assert f"begins with `{prefix_of('tenant-1').hex(' ')}`" in page


def test_subscriptions_of_replicas_are_few_whatever_the_topics_and_nonces_are() -> None:
    made = {each for topic in (ALL, *random_names(20_000)) for each in (prefix_of(topic), codec.topic_frame(ALL))}
    made |= {reply_prefix(random.Random(each).randbytes(8).hex()) for each in range(5000)}
    assert len(made) == BUCKETS + 2 + 256
    assert all(map(is_few, made))
    assert nodes(made) < 1400


@pytest.mark.parametrize(
    "prefix", [b"", b"D", b"Da\0", b"H", b"Ha", b"Habc", b"Hxy", b"Ha\0", b"B@", b"B@@@", b"B?a", b"BDa", b"x"]
)
def test_other_subscriptions_are_counted(prefix: bytes) -> None:
    assert not is_few(prefix)


def test_reply_matches_the_prefix_of_its_nonce() -> None:
    assert codec.private_frame("abc").startswith(reply_prefix("abc"))
    assert codec.private_frame("a").startswith(reply_prefix("a"))


@pytest.mark.parametrize("head", [b"B", b"Bx", b"Bxx", b"Bxxa", b"Bxx\xff\0"])
def test_garbage_in_a_bucket_is_refused_by_the_codec(head: bytes) -> None:
    with pytest.raises(FrameError) as caught:
        codec.decode((plain(head), codec.encode(envelope("a", 1, "ab" * 16))[1]))
    assert caught.value.reason == "foreign"


def test_only_followed_topics_of_a_bucket_are_wanted() -> None:
    one, other = TWINS
    topics = Topics(exact=False)
    assert topics.add(one) == [prefix_of(other)]
    assert topics.wants(bucketed(codec.topic_frame(one)))
    assert not topics.wants(bucketed(codec.topic_frame(other)))
    assert topics.remove(one) == [prefix_of(one)]
    assert not topics.wants(bucketed(codec.topic_frame(one)))
    assert topics.add(ALL) == [EVERY_BUCKET]
    assert topics.wants(bucketed(codec.topic_frame(other)))


def test_only_followed_names_are_wanted_and_all_hellos() -> None:
    """A subscriber's socket passes on all that a publisher sends."""
    topics = Topics(exact=True)
    topics.add("a")
    assert topics.wants(codec.topic_frame("a"))
    assert not topics.wants(codec.topic_frame("b"))
    assert topics.wants(codec.topic_frame(ALL))
    assert topics.wants(codec.private_frame("n") + b"b\0")
    assert topics.wants(b"")  # the codec refuses it
    topics.remove("a")
    assert not topics.wants(codec.topic_frame("a"))
    topics.add(ALL)
    assert topics.wants(codec.topic_frame("b"))


def test_names_are_subscribed_to_after_the_first_message_of_an_older_version() -> None:
    topics = Topics(exact=False)
    topics.add("a")
    body = codec.encode(envelope("a", 1, "ab" * 16))[1]
    assert topics.meets(body) == []
    assert topics.meets(of_minor(OLD, body)) == [codec.subscription("a")]
    assert topics.meets(of_minor(OLD, body)) == []
    assert topics.add("b") == [prefix_of("b"), codec.subscription("b")]
    assert topics.remove("a") == [prefix_of("a"), codec.subscription("a")]


def test_message_under_its_name_is_a_repetition_only_of_a_publisher_that_uses_buckets() -> None:
    topics = Topics(exact=False)
    head, body = codec.encode(envelope("a", 1, "ab" * 16))
    assert topics.repeats(head, body)
    assert not topics.repeats(head, of_minor(OLD, body))
    assert not topics.repeats(codec.topic_frame(ALL), body)
    assert not topics.repeats(bucketed(head), body)
    assert not Topics(exact=True).repeats(head, body)


def test_subscriber_with_keys_uses_names_alone() -> None:
    topics = Topics(exact=True)
    assert topics.add("a") == topics.remove("a") == [codec.subscription("a")]
    assert topics.meets(of_minor(OLD, codec.encode(envelope("a", 1, "ab" * 16))[1])) == []


def test_names_are_sent_from_the_first_subscriber_to_a_name_on() -> None:
    head, heads = codec.topic_frame("a"), Heads(exact=False)
    for frame in (b"\1D\0", b"\1" + prefix_of("a"), b"\1" + prefix_of(ALL), b"\1Hn\0", b"\0D", b"\1"):
        heads.subscribed(frame)
        assert heads.of(head) == (bucketed(head),)
    heads.subscribed(b"\1Dx\0")
    assert heads.of(head) == (bucketed(head), head)
    heads.subscribed(b"\0Dx\0")  # perhaps by a client that never had it
    assert heads.of(head) == (bucketed(head), head)
    assert heads.of(codec.topic_frame(ALL)) == (codec.topic_frame(ALL),)
    assert heads.of(b"Hn\0\0") == (b"Hn\0\0",)
    assert Heads(exact=True).of(head) == (head,)


def test_subscriptions_of_data_are_distinguished_from_others() -> None:
    heads = Heads(exact=False)
    assert [heads.subscribed(each) for each in (b"\1D\0", b"\1Da\0", b"\1B@a", b"\1B")] == [True] * 4
    assert [heads.subscribed(each) for each in (b"\0Da\0", b"\1Hn\0", b"\1", b"", b"\1x")] == [False] * 5


# -- on real sockets -----------------------------------------------------------------------------------------


def test_replica_sends_short_subscriptions_alone() -> None:
    with world() as on:
        raw_socket = on.raw_socket()
        on.listener(*random_names(300), to=(raw_socket.address,)).subscriber.register_topic("last")
        raw_socket.wait_for_frame(lambda frame: frame == b"\1" + prefix_of("last"))
        assert {len(frame) for frame in raw_socket.frames} == {len(b"\1D\0"), len(b"\1" + prefix_of("a"))}


def test_topics_of_one_bucket_are_independent() -> None:
    one, other = TWINS
    with world() as on:
        sender = on.sender()
        listener = on.listener(one, other, to=(sender.address,))
        for topic in TWINS:
            listener.wait_for_message(lambda topic=topic: sender.send(topic), topic)  # type: ignore[misc]
        listener.subscriber.unregister_topic(other)
        eventually(lambda: bool(sender.send(other)) and listener.counter("unwanted") > 0, "it is dropped")
        before = listener.messages(other)
        sender.send(other)
        listener.wait_for_message(lambda: sender.send(one), one)
        assert listener.messages(other) == before


def test_subscriber_of_an_older_version_receives_everything_once() -> None:
    with world() as on, zmq.Context() as context, context.socket(zmq.SUB) as old:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        first = sender.sequences["a"] + 1
        old.linger = 0
        old.connect(sender.address)
        old.subscribe(codec.subscription("a"))
        eventually(lambda: sender.publisher._heads.named, "its subscription was read")
        last = [sender.send("a") for _ in range(10)][-1]
        sequences: list[int] = []
        while last not in sequences:
            assert old.poll(round(PATIENCE * 1000))
            head, body = old.recv_multipart()
            assert head == codec.topic_frame("a")
            sequences += [each.link.point.position for each in codec.decode((head, body)).messages]
        wanted = list(range(first, last + 1))
        assert sequences == wanted
        listener.received.until(lambda: listener.numbers("a")[-1:] == [last], "the others, too")
        assert listener.numbers("a")[-len(wanted) :] == wanted
        assert listener.counter("unwanted") == 0


class OldPublisher:
    """A publisher of an older version: names alone, and the older version in each body."""

    def __init__(self, socket: RawSocket) -> None:
        self._socket = socket

    def send(self, made: Envelope) -> None:
        head, body = codec.encode(made)
        self._socket.socket.send_multipart((head, of_minor(OLD, body)))

    def hello(self, nonce: str = "", uuid: str = "cd" * 16) -> None:
        self.send(Envelope("old", uuid, ALL, 0, [], Hello({}, {}, ZERO, 0.0, nonce)))


@pytest.mark.parametrize("topics", [("a",), (ALL,)])
def test_subscriber_receives_from_publishers_of_both_versions_once(topics: tuple[str, ...]) -> None:
    with world() as on:
        raw_socket, sender = on.raw_socket(), on.sender()
        old = OldPublisher(raw_socket)
        listener = on.listener(*topics, to=(raw_socket.address, sender.address))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        raw_socket.wait_for_frame(lambda frame: frame == b"\1D\0")
        listener.subscriber.request_hello("n", [])
        raw_socket.wait_for_frame(lambda frame: frame == codec.hello_request_frame("n", []))
        meetings = listener.meetings
        old.hello("n")
        raw_socket.wait_for_frame(lambda frame: frame == b"\1" + codec.subscription(topics[0]))
        eventually(lambda: listener.meetings > meetings, "hellos are requested again, as on a new connection")
        eventually(lambda: sender.publisher._heads.named, "the other publisher sends both now")
        listener.received.envelopes.clear()
        old.send(envelope("a", 1, "cd" * 16))
        first = sender.sequences["a"] + 1
        numbers = [sender.send("a") for _ in range(10)]
        listener.received.until(lambda: len(listener.numbers("a")) >= 11, "all messages")
        eventually(lambda: listener.counter("unwanted") > 0, "second copies are dropped")
        assert sorted(listener.numbers("a")) == sorted([1, *numbers])
        assert numbers == list(range(first, first + 10))


def test_rule_w7_only_an_own_reply_of_a_publisher_with_a_lease_shows_an_older_version() -> None:
    """By names, the end of each connection costs all publishers more."""
    with world() as on:
        raw_socket = on.raw_socket()
        old = OldPublisher(raw_socket)
        listener = on.listener("a", to=(raw_socket.address,))
        listener.subscriber.know_publishers(["cd" * 16])
        for nonce in ("other", "n"):
            listener.subscriber.request_hello(nonce, [])
        asked = codec.hello_request_frame("n", [])
        raw_socket.wait_for_frame(lambda frame: frame == asked)
        received = listener.counter("received")
        old.hello()
        old.hello("n", uuid="ef" * 16)
        listener.received.until(lambda: listener.counter("received") >= received + 2, "both came")
        listener.subscriber.register_topic("b")
        raw_socket.wait_for_frame(lambda frame: frame == b"\1" + prefix_of("b"))
        named = b"\1" + codec.subscription("a")
        assert named not in raw_socket.frames
        old.hello("other")
        raw_socket.wait_for_frame(lambda frame: frame == named)


@contextmanager
def connections(sender: Sender, number: int) -> Iterator[None]:
    """This number of connections, which end together with the block."""
    before = sender.publisher.counters()["connected"]
    child = subprocess.Popen(
        [sys.executable, "-c", ENDING, sender.address, str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ},
        cwd=ROOT,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"connects\n"
        eventually(lambda: sender.publisher.counters()["connected"] == before + number, "all are connected")
        yield
    finally:
        child.kill()
        child.communicate()


def test_connections_that_end_together_do_not_silence_the_others_at_many_topics() -> None:
    """By names, libzmq needs 26 ms for the end of each of them, together 8 s; by buckets 0.1 ms."""
    number = 300
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        many = on.listener(*random_names(10_000), "last", to=(sender.address,))
        many.wait_for_message(lambda: sender.send("last"), "last")
        listener.wait_for_message(lambda: sender.send("a"), "a")
        with connections(sender, number):
            before, ended = work_of(sender), sender.publisher.counters()["disconnected"]
        eventually(lambda: sender.publisher.counters()["disconnected"] == ended + number, "all have ended")
        round_trip(sender, listener)
        assert work_of(sender) - before < number * 0.005


def test_client_that_leaves_as_fast_as_it_can_does_not_silence_the_others_beside_one_with_all_that_is_allowed() -> None:
    """With 5 MB of another client's subscriptions, each end took 0.33 s, and hundreds waited at a time."""
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        number = SubscriptionBudget.AUTOMATIC // (2000 + TABLE)  # of 2,000 bytes
        with stranger_with(number, sender.address):
            eventually(lambda: sender.publisher._budget.total >= 2000 * number, "its subscriptions are there")
            before = sender.publisher.counters()["disconnected"]
            with leaving(sender.address):
                costs = costs_until(
                    lambda: sender.publisher.counters()["disconnected"] >= before + 2000, sender, listener
                )
            assert sender.publisher._budget.total >= 2000 * number
        assert max(costs) < MAX_WORK
        assert sender.publisher.counters()["ended"] == 0
