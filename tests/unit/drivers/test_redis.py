"""The Redis driver without a server: its options, channels, messages and sending, and the sentences of its errors."""

import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions

from pubsub_lib.api import DriverSettings
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.limits import MAX_HELLO_TOPICS, Limits
from pubsub_lib.core.model import ALL, MAX_NAME_BYTES, ZERO
from pubsub_lib.errors import ConfigError, FrameError, TransportError
from pubsub_lib.hello_requests import request_limits
from pubsub_lib.send_queue import QueuedMessage
from pubsub_redis.connection import explained
from pubsub_redis.driver import RedisDriver
from pubsub_redis.frames import Channels, encode_pair, nonce_of, read_pair, read_request
from pubsub_redis.options import checked
from pubsub_redis.publisher import RedisPublisher
from tests.unit.drivers.zmq.world import envelope

LIMITS = Limits()
SMALL = Limits(max_value_bytes=1, max_frame_bytes=5000)
TOPICS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
CHANNELS = Channels("app:")
UUID = "aa" * 16


# -- messages ---------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_foreign_bytes_are_frame_errors(data: bytes) -> None:
    for read in (read_pair, read_request):
        reason = ""
        try:
            read(data, LIMITS)  # by chance two byte strings
        except FrameError as error:
            reason = error.reason
        assert reason in ("", "foreign", "truncated")


@given(st.binary(max_size=40), st.data())
def test_a_message_that_is_cut_off_is_truncated(body: bytes, data: st.DataObject) -> None:
    whole = encode_pair(b"Da\0", body)
    assert read_pair(whole, LIMITS) == (b"Da\0", body)
    with pytest.raises(FrameError) as caught:
        read_pair(whole[: data.draw(st.integers(0, len(whole) - 1))], LIMITS)
    assert caught.value.reason == "truncated"


@pytest.mark.parametrize("frames", [[], [b"Da\0"], [b"Da\0", b"", b""], [b"Da\0", b"", b"Da\0", b""], [b"Da\0", 1]])
def test_a_message_that_is_no_pair_is_foreign(frames: list[Any]) -> None:
    with pytest.raises(FrameError) as caught:
        read_pair(msgspec.msgpack.encode(frames), LIMITS)
    assert caught.value.reason == "foreign"


def test_a_message_over_the_limit_is_oversized_before_it_is_read() -> None:
    with pytest.raises(FrameError) as caught:
        read_pair(b"\xc1" * (SMALL.max_frame_bytes + 2000), SMALL)
    assert caught.value.reason == "oversized"


def test_the_largest_envelope_fits_a_message() -> None:
    head, body = codec.topic_frame("t" * MAX_NAME_BYTES), b"b" * SMALL.max_frame_bytes
    assert read_pair(encode_pair(head, body), SMALL) == (head, body)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=16), st.lists(TOPICS))
def test_a_hello_request_arrives_with_its_inbox_and_nonce(nonce: str, topics: list[str]) -> None:
    frame = codec.hello_request_frame(nonce, topics)
    assert read_request(encode_pair(b"inbox", frame), LIMITS) == (b"inbox", frame)
    assert nonce_of(frame) == nonce.encode()


@pytest.mark.parametrize("inbox", [b"", b"i" * 65])
def test_a_hello_request_without_a_valid_inbox_is_foreign(inbox: bytes) -> None:
    with pytest.raises(FrameError) as caught:
        read_request(encode_pair(inbox, b"Hn\0\x90"), LIMITS)
    assert caught.value.reason == "foreign"


@pytest.mark.parametrize(
    "request_", [b"", b"H", b"Hnonce", b"H\0\x90", b"Dn\0\x90", b"N" * 9000 + b"\0\x90", b"H" + b"n" * 65 + b"\0\x90"]
)
def test_a_hello_request_without_a_valid_nonce_is_foreign_and_not_kept(request_: bytes) -> None:
    publisher = made()
    publisher.message(b"message", (b"pubsub_lib:ask", encode_pair(b"inbox", request_)))
    assert publisher.counters()["foreign"] == 1
    assert publisher._inboxes == {}
    assert not publisher._asks._waiting


def test_the_largest_hello_request_fits_small_frames() -> None:
    topics = [f"{number:03}" + "t" * (MAX_NAME_BYTES - 3) for number in range(MAX_HELLO_TOPICS)]
    frame = codec.hello_request_frame("n" * codec.MAX_NONCE_BYTES, topics, request_limits(SMALL))
    assert read_request(encode_pair(b"i" * 32, frame), request_limits(SMALL))[1] == frame
    assert len(codec.read_hello_request(frame, request_limits(SMALL)).topics) == MAX_HELLO_TOPICS


# -- channels --------------------------------------------------------------------------------------------------------


@given(TOPICS, TOPICS)
def test_a_topic_frame_fits_its_own_channel_alone(topic: str, other: str) -> None:
    assert CHANNELS.fits(CHANNELS.of_topic(topic), codec.topic_frame(topic))
    assert CHANNELS.fits(CHANNELS.of_topic(topic), codec.topic_frame(other)) == (topic == other)
    private = codec.private_frame("nonce") + topic.encode() + b"\0"
    assert CHANNELS.fits(CHANNELS.of_inbox(b"i"), private)
    assert not CHANNELS.fits(CHANNELS.of_topic(topic), private)
    assert not CHANNELS.fits(CHANNELS.of_inbox(b"i"), codec.topic_frame(topic))


def test_the_channels_of_topics_inboxes_and_requests_differ() -> None:
    for topic in ("ask", "H", "Hask", ALL):
        channel = CHANNELS.of_topic(topic)
        assert CHANNELS.is_data(channel)
        assert channel not in (CHANNELS.requests, CHANNELS.of_inbox(topic.encode()))
    assert not CHANNELS.is_data(CHANNELS.requests)
    assert not CHANNELS.is_data(CHANNELS.of_inbox(b"D"))


@given(TOPICS)
def test_a_frame_is_sent_on_the_channel_on_which_it_is_accepted(topic: str) -> None:
    inboxes = {b"nonce": b"inbox"}
    reply = codec.private_frame("nonce")
    for head, channel in (
        (codec.topic_frame(topic), CHANNELS.of_topic(topic)),
        (codec.topic_frame(ALL), CHANNELS.of_topic(ALL)),
        (reply + b"\0", CHANNELS.of_inbox(b"inbox")),
        (reply + topic.encode() + b"\0", CHANNELS.of_inbox(b"inbox")),
    ):
        assert CHANNELS.of_frame(head, inboxes) == channel
        assert CHANNELS.fits(channel, head)
    assert CHANNELS.of_frame(codec.private_frame("other") + b"\0", inboxes) == b""


# -- sending ---------------------------------------------------------------------------------------------------------


def made(**options: Any) -> RedisPublisher:
    """A publisher without its threads."""
    publisher = RedisPublisher(*checked(options), LIMITS)
    publisher._life.begin()
    return publisher


def message(number: int, topic: str = "a") -> Envelope:
    return envelope(topic, number, UUID)


def hello(topic: str, sequence: int, nonce: str = "") -> Envelope:
    return Envelope("world", UUID, topic, 0, [], Hello({"a": sequence}, {}, ZERO, 0.0, nonce=nonce))


def sent(publisher: RedisPublisher) -> list[tuple[bytes, Envelope]]:
    """Channel and envelope of what the connection sends now."""
    found = []
    for command, channel, data in publisher.orders():
        assert command == "PUBLISH"
        assert isinstance(channel, bytes)
        assert isinstance(data, bytes)
        found.append((channel, codec.decode(read_pair(data, LIMITS), LIMITS)))
    return found


def test_messages_of_a_topic_share_one_message_on_its_channel() -> None:
    publisher = made(prefix="app:")
    publisher.connected()
    for each in (message(1), message(1, "b"), message(2), hello(ALL, 2), message(3)):
        publisher.send_event(each)
    found = [(channel, one.sequence, len(one.messages)) for channel, one in sent(publisher)]
    assert found == [(b"app:Da", 1, 2), (b"app:Db", 1, 1), (b"app:D", 0, 0), (b"app:Da", 3, 1)]
    counters = publisher.counters()
    assert (counters["sent"], counters["messages"], counters["lost"]) == (5, 4, 0)


def test_a_hello_reply_is_sent_to_the_inbox_of_its_request_alone() -> None:
    publisher = made(prefix="app:")
    publisher.connected()
    publisher.message(b"message", (b"app:ask", encode_pair(b"inbox", codec.hello_request_frame("nonce", ["a"]))))
    publisher.send_event(hello("a", 1, "nonce"))
    publisher.send_event(hello("a", 1, "another"))
    assert [(channel, one.topic) for channel, one in sent(publisher)] == [(b"app:Hinbox", "a")]
    assert publisher.counters()["unrequested"] == 1


def test_a_publisher_refuses_without_a_connection_and_counts_what_a_lost_one_drops() -> None:
    publisher = made()
    with pytest.raises(TransportError, match="did not answer; connecting is retried"):
        publisher.send_event(message(1))
    publisher.connected()
    publisher.send_event(message(1))
    publisher.send_event(message(2))
    publisher.disconnected("the server left", False)
    with pytest.raises(TransportError, match="the server left; connecting is retried"):
        publisher.send_event(message(3))
    assert (sent(publisher), publisher.counters()["sent"], publisher.counters()["lost"]) == ([], 2, 2)
    publisher.connected()
    publisher.send_event(message(3))
    publisher.close()
    publisher.connected()
    with pytest.raises(TransportError, match="closed"):
        publisher.send_event(message(4))
    assert [one.sequence for _, one in sent(publisher)] == [3], "a closed publisher sends what it accepted"


def test_a_dropped_hello_does_not_count_as_lost() -> None:
    publisher = made()
    publisher.connected()
    for each in (hello(ALL, 0), message(1), hello(ALL, 1)):
        publisher.send_event(each)
    publisher.disconnected("the server left", False)
    assert (sent(publisher), publisher.counters()["sent"], publisher.counters()["lost"]) == ([], 3, 1)


def test_an_envelope_that_is_queued_after_the_connection_was_lost_is_counted_as_lost() -> None:
    publisher = made()
    publisher.connected()
    put = publisher._queue.put

    def put_late(item: QueuedMessage, wait: float) -> None:
        publisher.disconnected("lost", False)
        put(item, wait)

    publisher._queue.put = put_late  # type: ignore[method-assign]
    publisher.send_event(message(1))
    assert publisher.counters()["lost"] == 1
    publisher.connected()
    assert sent(publisher) == [], "an envelope of the lost connection is sent on the next one"


def test_a_sender_that_saw_a_lost_connection_drops_nothing_of_the_next_one() -> None:
    publisher = made()
    publisher.connected()
    drop = publisher._drop

    def drop_late() -> None:
        publisher.connected()
        drop()

    publisher.disconnected("lost", False)
    publisher._drop = drop_late  # type: ignore[method-assign]
    publisher._connected = True  # as the sender saw it
    publisher._queue._wake = lambda: setattr(publisher, "_connected", False)
    publisher.send_event(message(1))
    assert [one.sequence for _, one in sent(publisher)] == [1]
    assert publisher.counters()["lost"] == 0


def test_a_connection_that_is_lost_ends_the_wait_for_room() -> None:
    publisher = made(send_queue=1, send_wait=1.0)
    publisher.connected()
    publisher.send_event(message(1))
    changed, waits, errors = publisher._queue._changed, threading.Event(), list[Exception]()
    really = changed.wait

    def wait(_: float | None = None) -> bool:
        waits.set()
        return really(60.0)  # the sender's own time could end in a pause of this thread

    def send() -> None:
        try:
            publisher.send_event(message(2))
        except TransportError as error:
            errors.append(error)

    changed.wait = wait  # type: ignore[assignment]
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    assert waits.wait(30)
    publisher.disconnected("lost", False)
    sender.join(30)
    assert not sender.is_alive()
    assert errors == []
    assert sent(publisher) == []


def test_a_full_queue_names_the_option() -> None:
    publisher = made(send_queue=1, send_wait=0.01)
    publisher.connected()
    publisher.send_event(message(1))
    with pytest.raises(TransportError, match=r"the send queue is full.*raise send_queue in \[pubsub_redis\]"):
        publisher.send_event(message(2))


# -- options and errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"url": "http://host"}, "is not the address of a server; set redis://host:port"),
        ({"url": "redis://"}, "is not the address of a server"),
        ({"url": "redis://host:port"}, "url is not valid"),
        ({"url": "redis://host/3"}, "is not the address of a server"),
        ({"url": "redis://host?timeout=3"}, "is not the address of a server"),
        ({"url": "unix://"}, "is not the address of a server"),
        ({"url": "redis://me:secret@host"}, "set user and password in"),
        ({"url": "redis:me:secret@host"}, "set user and password in"),
        ({"url": "me:secret@host"}, "set user and password in"),
        ({"url": "redis://me:secret/more@host"}, "set user and password in"),
        ({"url": "unix://me:secret@/run/redis.sock"}, "set user and password in"),
        ({"url": "unix:///run/redis.sock?password=secret"}, "is not the address of a server"),
        ({"prefix": "a\nb"}, "is not printable"),
        ({"cert_file": "c.pem", "url": "rediss://host"}, "of cert_file and key_file only one is given"),
        ({"reconnect_interval": 2.0, "max_reconnect_interval": 1.0}, "is below reconnect_interval"),
        ({"ca_file": "ca.pem"}, "need TLS; set url = rediss"),
        ({"send_queue": 0}, "redis_pubsub_driver cannot use its options"),
        ({"colour": "red"}, "redis_pubsub_driver cannot use its options"),
    ],
)
def test_options_that_cannot_be_used_are_refused_with_a_sentence(options: dict[str, Any], sentence: str) -> None:
    for make in (RedisDriver.publisher, RedisDriver.subscriber):
        with pytest.raises(ConfigError, match=sentence) as caught:
            make(DriverSettings(options=options))
        assert "secret" not in str(caught.value)


def test_options_name_the_server() -> None:
    for url, scheme, host, port, path in (
        ("redis://host", "redis", "host", 6379, ""),
        ("rediss://[::1]:7000/", "rediss", "::1", 7000, "/"),
        ("unix:///run/redis.sock", "unix", "", 6379, "/run/redis.sock"),
        ("unix:///run/me@host.sock", "unix", "", 6379, "/run/me@host.sock"),
    ):
        server = checked({"url": url})[1]
        assert (server.scheme, server.host, server.port, server.path) == (scheme, host, port, path)


def test_the_password_is_not_shown() -> None:
    options, _ = checked({"password": "hunter2"})
    assert "hunter2" not in repr(options)
    assert "hunter2" not in repr(DriverSettings(options={"password": "hunter2"}))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (exceptions.AuthenticationError("WRONGPASS invalid\nuser."), "refused the user or the password (WRONGPASS"),
        (exceptions.ResponseError("unknown command `HELLO`"), "is older than Redis 6.0"),
        (exceptions.NoPermissionError("no permissions"), "refused a command (no permissions); correct the rights"),
        (exceptions.InvalidResponse("b'HTTP/1.1'"), "does not use the protocol of Redis"),
        (exceptions.ConnectionError("Connection refused."), "is unavailable (Connection refused); start it"),
        (exceptions.TimeoutError(), "is unavailable (TimeoutError); start it"),
        (KeyError("x"), "failed (KeyError: 'x'); see the log"),
    ],
)
def test_an_error_is_one_sentence_with_the_server_and_what_to_do(error: Exception, sentence: str) -> None:
    _, server = checked({"url": "redis://host:7000"})
    text = explained(error, server)
    assert sentence in text
    assert "redis://host:7000" in text
    assert "\n" not in text
