"""Publishers and subscribers with keys, on real sockets: a program without the right receives nothing."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from _patience import longest

from pubsub_lib import curve_keys
from pubsub_lib.api import Client, DriverSettings
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, EMPTY, ZERO
from pubsub_lib.curve_keys import KeyPair, new_pair
from pubsub_lib.errors import ConfigError
from pubsub_zmq.access import EARLY_ENDS, SUSPENSION
from pubsub_zmq.buckets import EVERY_BUCKET, prefix_of
from pubsub_zmq.driver import ZmqDriver
from pubsub_zmq.keyed_budget import KEYED_TABLE
from pubsub_zmq.keyed_publisher import KeyedPublisher
from pubsub_zmq.options import ZmqOptions
from tests.unit.drivers.zmq.world import ANY, Listener, RawSocket, Sender
from tests.unit.drivers.zmq.world import eventually as eventually_within

SOON = longest(20.0)
"""Seconds within which an allowed client must receive."""
SILENCE = 0.5
"""Seconds for which a client that may receive nothing is observed, while an allowed one receives everything."""


def eventually(found: Callable[[], object], what: str) -> None:
    eventually_within(lambda: bool(found()), what, SOON)


class KeyedSender(Sender):
    def __init__(self, address: str = ANY) -> None:
        super().__init__(address, keys=True)
        assert isinstance(self.publisher, KeyedPublisher)
        self.keyed = self.publisher

    def admit(self, *clients: Client) -> None:
        self.keyed.admit(clients)


class Clients:
    """Makes keyed subscribers, and closes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: list[Callable[[], None]] = []

    def sender(self, address: str = ANY) -> KeyedSender:
        made = KeyedSender(address)
        self._opened.append(made.publisher.close)
        return made

    def listener(self, pair: KeyPair, sender: KeyedSender, *topics: str, key: str = "", address: str = "") -> Listener:
        file = self._folder / f"{pair.public[:8].encode().hex()}.key"
        file.write_text(curve_keys.file_text("x", pair))
        file.chmod(0o600)
        made = Listener(*topics, client_key_file=str(file))
        self._opened.append(made.subscriber.close)
        address = address or sender.address
        made.subscriber.pin_key(address, key or sender.keyed.public_key())
        made.subscriber.register_listen_address(address)
        return made

    def raw(
        self, address: str, *, server: str = "", pair: KeyPair | None = None, kind: int = zmq.SUB
    ) -> "zmq.Socket[bytes]":
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        made = context.socket(kind)
        self._opened += [context.term, lambda: made.close(0)]
        made.setsockopt(zmq.RECONNECT_IVL, 20)
        if pair is not None:
            made.setsockopt(zmq.CURVE_PUBLICKEY, pair.public.encode())
            made.setsockopt(zmq.CURVE_SECRETKEY, pair.secret.encode())
            made.setsockopt(zmq.CURVE_SERVERKEY, server.encode())
        made.connect(address)
        return made

    def close(self) -> None:
        for each in reversed(self._opened):
            each()


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Clients]:
    made = Clients(tmp_path)
    yield made
    made.close()


def client(name: str, pair: KeyPair, *topics: str) -> Client:
    return Client(name, pair.public, frozenset(topics))


def receives(listener: Listener, sender: Sender, topic: str) -> None:
    listener.wait_for_message(lambda: sender.send(topic), topic, SOON)


def stays_silent(silent: Callable[[], int], witness: Listener, sender: Sender, topic: str) -> None:
    """While the witness receives this topic, the other one receives nothing new."""
    until = time.monotonic() + SILENCE
    before = silent()
    while time.monotonic() < until:
        receives(witness, sender, topic)
    assert silent() == before


def test_client_with_its_key_receives_granted_topics_only(clients: Clients) -> None:
    sender, one, two = clients.sender(), new_pair(), new_pair()
    sender.admit(client("one", one, "t1"), client("two", two, ALL))
    narrow = clients.listener(one, sender, "t1", "t2")
    wide = clients.listener(two, sender, ALL)
    receives(narrow, sender, "t1")
    receives(wide, sender, "t1")
    stays_silent(lambda: narrow.messages("t2"), wide, sender, "t2")
    receives(narrow, sender, "t1")
    assert sender.publisher.counters()["denied"] >= 1


def test_subscription_to_everything_is_denied_without_the_grant(clients: Clients) -> None:
    sender, one, two = clients.sender(), new_pair(), new_pair()
    sender.admit(client("one", one, "t1"), client("two", two, ALL))
    narrow = clients.listener(one, sender, ALL)
    wide = clients.listener(two, sender, ALL)
    eventually(lambda: sender.publisher.counters()["denied"] > 0, "the subscription was denied")
    stays_silent(lambda: len(narrow.received.envelopes), wide, sender, "t1")


@pytest.mark.parametrize("prefix", [b"", b"D", b"H", b"Dt", EVERY_BUCKET, prefix_of("t2")])
def test_raw_prefixes_catch_nothing_of_others(clients: Clients, prefix: bytes) -> None:
    sender, one, two = clients.sender(), new_pair(), new_pair()
    sender.admit(client("one", one, "t1"), client("two", two, "t2"))
    raw = clients.raw(sender.address, server=sender.keyed.public_key(), pair=one)
    raw.subscribe(prefix)
    witness = clients.listener(two, sender, "t2")
    eventually(
        lambda: sender.publisher.counters()["denied"] + sender.keyed.counters()["asks"] > 0, "the prefix arrived"
    )
    receives(witness, sender, "t2")
    witness.subscriber.request_hello("secret-nonce", ["t2"])
    eventually(lambda: bool(witness.received.hellos("secret-nonce")), "the reply")
    assert not raw.poll(300)


@pytest.mark.parametrize("kind", ["no key", "unknown key", "wrong server key"])
def test_program_without_an_accepted_key_receives_nothing(clients: Clients, kind: str) -> None:
    sender, known, unknown = clients.sender(), new_pair(), new_pair()
    sender.admit(client("known", known, ALL))
    server = new_pair().public if kind == "wrong server key" else sender.keyed.public_key()
    pair = {"no key": None, "unknown key": unknown, "wrong server key": known}[kind]
    raw = clients.raw(sender.address, server=server, pair=pair)
    raw.subscribe(b"")
    raw.subscribe(codec.subscription("t1"))
    witness = clients.listener(known, sender, ALL)
    stays_silent(lambda: int(raw.poll(0)), witness, sender, "t1")
    assert sender.publisher.counters()["connected"] == 1


def test_client_that_is_added_later_connects_by_itself(clients: Clients, caplog: pytest.LogCaptureFixture) -> None:
    sender, one = clients.sender(), new_pair()
    late = clients.listener(one, sender, "t1")
    eventually(lambda: late.counter("refused") >= 2, "the key was refused")
    assert caplog.text.count("refuses the key of this client") == 1
    assert "ZeroMQ gave up" not in caplog.text
    sender.admit(client("one", one, "t1"))
    receives(late, sender, "t1")


def open_connections(sender: KeyedSender) -> int:
    counts = sender.publisher.counters()
    return counts["accepted"] - counts["disconnected"]


def test_revoked_client_receives_nothing_and_others_continue(clients: Clients) -> None:
    sender, one, two = clients.sender(), new_pair(), new_pair()
    sender.admit(client("one", one, ALL), client("two", two, ALL))
    revoked, other = clients.listener(one, sender, "t1", "t2"), clients.listener(two, sender, ALL)
    receives(revoked, sender, "t2")
    receives(revoked, sender, "t1")
    receives(other, sender, "t1")
    begun, weight = time.monotonic(), sender.publisher._budget.total
    sender.admit(client("two", two, ALL))
    eventually(lambda: sender.publisher.counters()["renewed"] == 1, "the socket was made again")
    assert time.monotonic() - begun < 2
    eventually(lambda: other.counter("reconnected") >= 1, "the other one connected again")
    stays_silent(lambda: len(revoked.received.envelopes), other, sender, "t1")
    eventually(lambda: revoked.counter("refused") >= 1, "its next attempt is refused")
    assert sender.publisher._budget.total < weight
    revoked.subscriber.close()
    other.subscriber.close()
    eventually(lambda: open_connections(sender) == 0, "every connection is counted when it ends")


def test_size_of_repeated_subscriptions_is_forgotten_when_their_client_leaves(clients: Clients) -> None:
    """ZeroMQ reports each of them, and one end of all: a new socket corrects the total."""
    sender, one, two = clients.sender(), new_pair(), new_pair()
    budget = sender.publisher._budget
    budget.maximum = 1000
    sender.admit(client("one", one, "t1"), client("two", two, ALL))
    witness = clients.listener(two, sender, ALL)
    receives(witness, sender, "t1")
    repeats = clients.raw(sender.address, server=sender.keyed.public_key(), pair=one, kind=zmq.XSUB)
    for each in range(400):  # twice, and fewer than the high-water mark of the sending socket
        for _ in range(2):
            repeats.send(b"\1" + codec.subscription(f"topic-{each}"))
    eventually(lambda: sender.publisher.counters()["renewed"] >= 1, "every connection was made again")
    repeats.close(0)
    eventually(lambda: budget.total < budget.maximum, "the size was forgotten")
    receives(witness, sender, "t1")


def test_many_clients_with_the_same_topics_stay_connected(clients: Clients) -> None:
    sender, topics = clients.sender(), [f"topic-{each}" for each in range(20)]
    pairs = [new_pair() for _ in range(10)]
    sender.admit(*(client(f"c{each}", pair, *topics) for each, pair in enumerate(pairs)))
    sender.publisher._budget.maximum = 5_000
    listeners = [clients.listener(pair, sender, *topics) for pair in pairs]
    for each in listeners:
        receives(each, sender, topics[-1])
    different = sum(len(codec.subscription(each)) + KEYED_TABLE for each in topics)
    assert different < sender.publisher._budget.total < 5_000 < different * len(pairs)
    found = sender.publisher.counters()
    assert (found["renewed"], found["ended"], found["disconnected"]) == (0, 0, 0)


def test_client_loses_one_topic_and_keeps_the_other(clients: Clients) -> None:
    sender, one, two = clients.sender(), new_pair(), new_pair()
    sender.admit(client("one", one, "t1", "t2"), client("two", two, ALL))
    narrowed, witness = clients.listener(one, sender, "t1", "t2"), clients.listener(two, sender, ALL)
    receives(narrowed, sender, "t2")
    sender.admit(client("one", one, "t1"), client("two", two, ALL))
    eventually(lambda: narrowed.counter("reconnected") >= 1, "it connected again")
    stays_silent(lambda: narrowed.messages("t2"), witness, sender, "t2")
    receives(narrowed, sender, "t1")


def test_topic_that_is_granted_later_arrives_without_a_new_subscription(clients: Clients) -> None:
    sender, one = clients.sender(), new_pair()
    sender.admit(client("one", one, "t1"))
    listener = clients.listener(one, sender, "t1", "t2")
    receives(listener, sender, "t1")
    eventually(lambda: sender.publisher.counters()["denied"] >= 1, "the subscription was denied")
    sender.admit(client("one", one, "t1", "t2"))
    receives(listener, sender, "t2")


def test_unsubscribed_topic_ends_and_can_be_subscribed_again(clients: Clients) -> None:
    sender, one, two = clients.sender(), new_pair(), new_pair()
    sender.admit(client("one", one, ALL), client("two", two, ALL))
    listener, witness = clients.listener(one, sender, "t1"), clients.listener(two, sender, "t1")
    receives(listener, sender, "t1")
    listener.subscriber.unregister_topic("t1")
    sender.send("t1")
    receives(witness, sender, "t1")
    time.sleep(0.2)
    frames = sender.publisher.counters()["frames"]
    stays_silent(lambda: listener.messages("t1"), witness, sender, "t1")
    assert sender.publisher.counters()["frames"] > frames
    listener.subscriber.register_topic("t1")
    receives(listener, sender, "t1")


def test_hellos_name_no_topic_that_was_not_granted(clients: Clients) -> None:
    sender, one = clients.sender(), new_pair()
    sender.admit(client("one", one, "t1"))
    listener = clients.listener(one, sender, "t1", "secret")
    receives(listener, sender, "t1")
    full = Hello({"t1": 1, "secret": 1}, {"t1": EMPTY, "secret": EMPTY}, ZERO, 0.0)
    sender.publisher.send_event(Envelope("world", sender.uuid, ALL, 0, [], full))
    listener.subscriber.request_hello("n", ["t1", "secret", ALL])

    def hellos() -> list[Hello]:
        return [each.hello for each in list(listener.received.envelopes) if each.hello is not None]

    eventually(lambda: len({each.nonce for each in hellos()}) == 2, "both kinds of hellos came")
    for each in hellos():
        assert not {"secret"} & {*each.sequences, *each.heads}
        assert set(each.sequences) == ({"t1"} if each.nonce else set())


def test_impostor_at_the_right_address_is_not_believed(clients: Clients) -> None:
    """It has no key, a key of its own, or knows the public key only."""
    true, one = clients.sender(), new_pair()
    plain = RawSocket()
    other = clients.sender()
    other.admit(client("one", one, ALL))
    try:
        for address in (plain.address, other.address):
            listener = clients.listener(one, true, ALL, address=address)
            eventually(lambda: listener.counter("unproven") >= 2, "the handshake failed")  # noqa: B023
            plain.send("t1")
            other.send("t1")
            assert list(listener.received.envelopes) == []
            assert listener.counter("connected") == 0
    finally:
        plain.close()


def test_address_without_a_key_is_not_connected(clients: Clients) -> None:
    sender, one = clients.sender(), new_pair()
    sender.admit(client("one", one, ALL))
    listener = clients.listener(one, sender, ALL)
    receives(listener, sender, "t1")
    plain = RawSocket()
    try:
        listener.subscriber.register_listen_address(plain.address)
        time.sleep(0.3)
        plain.send("t2")
        receives(listener, sender, "t1")
        assert listener.messages("t2") == 0
        assert (listener.counter("connected"), listener.counter("unproven")) == (1, 0)
    finally:
        plain.close()


def test_new_key_at_an_address_replaces_the_connection(clients: Clients) -> None:
    old, one = clients.sender(), new_pair()
    old.admit(client("one", one, ALL))
    address = old.address
    listener = clients.listener(one, old, ALL)
    receives(listener, old, "t1")
    old.end()
    new = clients.sender(address)
    new.admit(client("one", one, ALL))
    assert new.keyed.public_key() != old.keyed.public_key()
    eventually(lambda: listener.counter("unproven") >= 1, "the old key does not fit")
    new.send("t1")
    listener.subscriber.pin_key(address, new.keyed.public_key())
    receives(listener, new, "t1")


def test_subscriber_needs_a_key_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="client_key_file in \\[pubsub\\]"):
        ZmqDriver.subscriber(DriverSettings(keys=True))
    with pytest.raises(ConfigError, match="cannot read client_key_file"):
        ZmqDriver.subscriber(DriverSettings(keys=True, client_key_file=str(tmp_path / "none")))


@pytest.mark.parametrize(("version", "curve"), [((4, 3, 4), True), ((4, 3, 5), False)])
def test_old_zeromq_is_refused_with_keys_only(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], curve: bool
) -> None:
    monkeypatch.setattr(zmq, "zmq_version_info", lambda: version)
    monkeypatch.setattr(zmq, "has", lambda what: curve)
    for half in (ZmqDriver.publisher, ZmqDriver.subscriber):
        with pytest.raises(ConfigError, match=r"libzmq 4\.3"):
            half(DriverSettings(bind_address=ANY, keys=True))
        half(DriverSettings(bind_address=ANY)).close()


def test_keys_without_the_option_do_nothing() -> None:
    sender = Sender()
    listener = Listener("t1", to=(sender.address,))
    try:
        assert sender.publisher.public_key() == ""
        sender.publisher.admit([])
        listener.subscriber.pin_key(sender.address, "a" * 40)
        listener.wait_for_message(lambda: sender.send("t1"), "t1")
    finally:
        listener.subscriber.close()
        sender.publisher.close()


def test_publisher_closes_while_connections_are_renewed(clients: Clients) -> None:
    one, took = new_pair(), []
    for _ in range(5):
        sender = clients.sender()
        sender.admit(client("one", one, ALL))
        listener = clients.listener(one, sender, ALL)
        receives(listener, sender, "t1")
        begun = time.monotonic()
        sender.admit()
        sender.publisher.close()
        took.append(time.monotonic() - begun)
        eventually(lambda: not any(each.is_alive() for each in sender.publisher._threads), "its threads ended")  # noqa: B023
    assert min(took) < 2, took  # a busy machine may delay some of them


def test_renewal_waits_for_an_address_that_is_in_use(
    clients: Clients, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The revoked client's connection ends at once all the same, and no message is refused meanwhile."""
    monkeypatch.setattr("pubsub_zmq.keyed_publisher._LONG", 0.1)
    sender, one, two = clients.sender(), new_pair(), new_pair()
    sender.admit(client("one", one, ALL), client("two", two, ALL))
    revoked, other = clients.listener(one, sender, ALL), clients.listener(two, sender, ALL)
    receives(revoked, sender, "t1")
    receives(other, sender, "t1")
    blocked = True

    def make(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
        if blocked:
            raise zmq.ZMQError(zmq.EADDRINUSE)
        return KeyedPublisher._make_socket(sender.keyed, context)

    monkeypatch.setattr(sender.keyed, "_make_socket", make)
    sender.admit(client("two", two, ALL))
    eventually(lambda: "again" in caplog.text and "cannot bind" in caplog.text, "the error was logged")
    eventually(lambda: revoked.counter("disconnected") >= 1, "the connection ended")
    sender.send("t2")
    assert sender.publisher.sending_for(time.monotonic()) >= 0.1, "a service is not ready meanwhile"
    caplog.set_level("INFO", "pubsub_zmq")
    blocked = False
    receives(other, sender, "t1")
    eventually(lambda: f"every client of {sender.address} connects again" in caplog.text, "it is logged")
    eventually(lambda: sender.publisher.sending_for(time.monotonic()) == 0.0, "it waits for messages")
    assert revoked.messages("t2") == 0


def test_messages_between_subscriptions_do_not_shift_them_to_another_client(
    clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    """ZeroMQ then applies each subscription to the sender of the next one, so the whole socket is given up."""
    sender, evil, victim = clients.sender(), new_pair(), new_pair()
    sender.admit(client("evil", evil, "t1"), client("victim", victim, "secret"))
    server = sender.keyed.public_key()
    first, attacker = (clients.raw(sender.address, server=server, pair=evil, kind=zmq.XSUB) for _ in range(2))
    receiver = clients.raw(sender.address, server=server, pair=victim, kind=zmq.XSUB)
    eventually(lambda: sender.publisher.counters()["connected"] == 3, "all connected")
    secret = codec.subscription("secret")
    with sender.publisher._socket_lock:
        first.send(b"\2any message")
        time.sleep(0.2)
        receiver.send(b"\1" + secret)
        time.sleep(0.2)
        attacker.send(b"\1" + codec.topic_frame(ALL))
        time.sleep(0.2)
    eventually(lambda: sender.publisher.counters()["renewed"] >= 1, "the socket was made again")
    witness = clients.listener(victim, sender, "secret")
    assert "'evil' sent a message that is no subscription" in caplog.text
    stays_silent(lambda: int(attacker.poll(0)), witness, sender, "secret")
    refused = sender.publisher.counters()["refused"]
    again = clients.listener(evil, sender, "t1")
    eventually(lambda: again.counter("refused") > 0, "the client is not accepted any more")
    assert sender.publisher.counters()["refused"] > refused


class Frames:
    """Received subscriptions, as of an XPUB socket; "" as the key: ZeroMQ made it for a peer that left."""

    def __init__(self, *received: tuple[bytes, str]) -> None:
        self._received = list(received)
        self.applied: list[bytes] = []

    def recv(self, flags: int, copy: bool) -> Any:
        if not self._received:
            raise zmq.Again
        data, key = self._received.pop(0)
        return Frame(data, key)

    def setsockopt(self, option: int, value: bytes) -> None:
        if option == zmq.SUBSCRIBE:
            self.applied.append(value)


class Frame:
    def __init__(self, data: bytes, key: str) -> None:
        self.bytes = data
        self._known = {"User-Id": key, "__fd": str(ord(key[0]))} if key else {}

    def get(self, name: str) -> str:
        if name not in self._known:
            raise zmq.ZMQError(zmq.EINVAL)
        return self._known[name]


def test_subscription_of_a_client_that_left_meanwhile_ends_all_connections() -> None:
    """Its pipe may be another client's by now, because ZeroMQ finds it by its address in memory."""
    one = new_pair()
    made = KeyedPublisher(ANY, Limits(), ZmqOptions(), new_pair())
    made.admit([client("one", one, "t1", "t2"), client("other", new_pair())])
    t1, t2 = codec.subscription("t1"), codec.subscription("t2")
    left: Any = Frames((b"\1" + t1, one.public), (b"\1" + t2, one.public), (b"\0" + t1, ""), (b"\1" + t2, one.public))
    assert made._receive(left) is False
    assert left.applied == [t1, t2]
    assert made._stop
    made._stop = False
    for later in (((b"\1" + t1, one.public),), ((b"\0" + t1, ""),)):  # it left after all was read
        calm: Any = Frames(*later)
        assert made._receive(calm) is False
        assert not made._stop


def test_client_that_leaves_early_again_and_again_is_not_accepted_for_a_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it could make every client connect again without an end."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    early, calm, secret = "a" * 40, "b" * 40, codec.subscription("t1")
    made = KeyedPublisher(ANY, Limits(), ZmqOptions(), new_pair())
    granted = frozenset(["t1"])
    made.admit([Client("early", early, granted), Client("calm", calm, granted), Client("none", "c")])
    for number in range(EARLY_ENDS + 1):
        assert made._access.accepts(early), number
        frames: Any = Frames((b"\1" + secret, calm), (b"\1" + secret, early), (b"\0" + secret, ""))
        assert made._receive(frames) is False
        made._subscriptions.disconnected(ord("a"))
        made._blame()
        now += 1.0
    assert not made._access.accepts(early)
    assert made._access.accepts(calm), "it had the same subscription, and stayed"
    assert "the client 'early' ended 4 connections within 60 s" in caplog.text
    now = 1000.0 + SUSPENSION
    assert made._access.accepts(early)
