"""The Redis driver without a server: its options, channels, batches, send queue, and the sentences of its errors."""

import threading
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions

from pubsub_lib.api import DriverSettings
from pubsub_lib.core import codec
from pubsub_lib.core.limits import MAX_HELLO_TOPICS, Limits
from pubsub_lib.core.model import ALL, MAX_NAME_BYTES
from pubsub_lib.errors import ConfigError, FrameError, TransportError
from pubsub_redis.connection import explained
from pubsub_redis.driver import RedisDriver
from pubsub_redis.frames import Channels, encode_batch, for_requests, nonce_of, read_batch, read_request
from pubsub_redis.options import checked
from pubsub_redis.send_queue import FRAMING, WINDOW, QueuedEnvelope, SendQueue, batches

LIMITS = Limits()
SMALL = Limits(max_value_bytes=1, max_frame_bytes=5000)
TOPICS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
CHANNELS = Channels("app:")


@st.composite
def envelopes(draw: st.DrawFn) -> list[QueuedEnvelope]:
    """Envelopes of some topics, numbered in their bodies, of any sizes up to the limit; some are hellos."""
    made = []
    for number in range(draw(st.integers(0, 60))):
        topic = draw(st.sampled_from(["a", "b", "c", ALL]))
        head, size = codec.topic_frame(topic), draw(st.sampled_from([4, 10, 300, 2400, 5000]))
        body = number.to_bytes(4, "big") + b"x" * (size - 4)
        made.append(QueuedEnvelope(CHANNELS.of_topic(topic), head, body, topic == ALL or draw(st.booleans())))
    return made


# -- batches ---------------------------------------------------------------------------------------------------------


@given(envelopes())
def test_batches_keep_every_envelope_and_the_order_of_each_channel(given: list[QueuedEnvelope]) -> None:
    arrived: dict[bytes, list[tuple[bytes, bytes]]] = defaultdict(list)
    for channel, message in batches(given, SMALL.max_frame_bytes):
        pairs = read_batch(message, SMALL)
        sizes = [len(head) + len(body) + FRAMING for head, body in pairs]
        assert len(pairs) == 1 or sum(sizes) <= SMALL.max_frame_bytes
        arrived[channel] += pairs
    sent = defaultdict(list)
    for each in given:
        sent[each.channel].append((each.head, each.body))
    assert arrived == sent


@given(envelopes())
def test_no_envelope_overtakes_a_hello(given: list[QueuedEnvelope]) -> None:
    order = [body[:4] for _, message in batches(given, SMALL.max_frame_bytes) for _, body in read_batch(message, SMALL)]
    for number, each in enumerate(given):
        if each.hello:
            place = order.index(each.body[:4])
            assert {*order[:place]} == {other.body[:4] for other in given[:number]}


def test_an_envelope_overtakes_at_most_a_window() -> None:
    heads = {topic: codec.topic_frame(topic) for topic in "ab"}
    made = [
        QueuedEnvelope(CHANNELS.of_topic(topic), heads[topic], number.to_bytes(4, "big"), False)
        for number in range(WINDOW + 10)
        for topic in "ab"[number % 2]
    ]
    order = [
        int.from_bytes(body, "big")
        for _, message in batches(made, LIMITS.max_frame_bytes)
        for _, body in read_batch(message, LIMITS)
    ]
    assert sorted(order[:WINDOW]) == list(range(WINDOW))


@given(st.binary(max_size=200))
def test_foreign_bytes_are_frame_errors(data: bytes) -> None:
    for read in (read_batch, read_request):
        reason = ""
        try:
            read(data, LIMITS)  # by chance an array of byte strings
        except FrameError as error:
            reason = error.reason
        assert reason in ("", "foreign", "truncated")


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5), st.data())
def test_a_batch_that_is_cut_off_is_truncated(bodies: list[bytes], data: st.DataObject) -> None:
    whole = encode_batch([each for body in bodies for each in (b"Da\0", body)])
    assert read_batch(whole, LIMITS) == [(b"Da\0", body) for body in bodies]
    with pytest.raises(FrameError) as caught:
        read_batch(whole[: data.draw(st.integers(0, len(whole) - 1))], LIMITS)
    assert caught.value.reason == "truncated"


@pytest.mark.parametrize("frames", [[], [b"Da\0"], [b"Da\0", b"", b""]])
def test_a_batch_without_pairs_is_foreign(frames: list[bytes]) -> None:
    with pytest.raises(FrameError) as caught:
        read_batch(encode_batch(frames), LIMITS)
    assert caught.value.reason == "foreign"


def test_a_batch_over_the_limit_is_oversized_before_it_is_read() -> None:
    with pytest.raises(FrameError) as caught:
        read_batch(b"\xc1" * (SMALL.max_frame_bytes + 2000), SMALL)
    assert caught.value.reason == "oversized"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=16), st.lists(TOPICS))
def test_a_hello_request_arrives_with_its_inbox_and_nonce(nonce: str, topics: list[str]) -> None:
    frame = codec.hello_request_frame(nonce, topics)
    assert read_request(encode_batch([b"inbox", frame]), LIMITS) == (b"inbox", frame)
    assert nonce_of(frame) == nonce.encode()


@pytest.mark.parametrize("inbox", [b"", b"i" * 65])
def test_a_hello_request_without_a_valid_inbox_is_foreign(inbox: bytes) -> None:
    with pytest.raises(FrameError) as caught:
        read_request(encode_batch([inbox, b"Hn\0\x90"]), LIMITS)
    assert caught.value.reason == "foreign"


def test_the_largest_hello_request_fits_small_frames() -> None:
    topics = [f"{number:03}" + "t" * (MAX_NAME_BYTES - 3) for number in range(MAX_HELLO_TOPICS)]
    frame = codec.hello_request_frame("n" * codec.MAX_NONCE_BYTES, topics, for_requests(SMALL))
    assert read_request(encode_batch([b"i" * 32, frame]), for_requests(SMALL))[1] == frame
    assert len(codec.read_hello_request(frame, for_requests(SMALL)).topics) == MAX_HELLO_TOPICS


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


# -- the send queue --------------------------------------------------------------------------------------------------

ITEM = QueuedEnvelope(b"app:Da", b"Da\0", b"body", False)


def test_the_queue_refuses_while_there_is_no_connection_and_counts_what_a_lost_one_drops() -> None:
    queue = SendQueue(10, lambda: None)
    with pytest.raises(TransportError, match="not connected yet"):
        queue.put(ITEM, 0.5)
    queue.connected()
    queue.put(ITEM, 0.5)
    queue.disconnected("the server left; connecting is retried")
    with pytest.raises(TransportError, match="the server left; connecting is retried"):
        queue.put(ITEM, 0.5)
    assert (queue.take(), queue.accepted, queue.lost) == ([], 1, 1)
    queue.connected()
    queue.put(ITEM, 0.5)
    queue.close()
    queue.connected()
    with pytest.raises(TransportError, match="closed"):
        queue.put(ITEM, 0.5)
    assert queue.take() == [ITEM], "a closed queue gives what it accepted"


def test_a_full_queue_refuses_after_a_bounded_wait_and_takes_again_when_there_is_room() -> None:
    queue = SendQueue(1, lambda: None)
    queue.connected()
    queue.put(ITEM, 0.0)
    with pytest.raises(TransportError, match=r"the send queue is full: 1 envelopes wait.*raise send_queue"):
        queue.put(ITEM, 0.01)
    sender = threading.Thread(target=queue.put, args=(ITEM, 30.0))
    sender.start()
    while not queue.take():
        pass
    sender.join(30)
    assert not sender.is_alive()
    assert queue.accepted == 2


def test_a_connection_that_is_lost_ends_the_wait_for_room() -> None:
    queue = SendQueue(1, lambda: None)
    queue.connected()
    queue.put(ITEM, 0.0)
    failed: list[str] = []

    def put() -> None:
        try:
            queue.put(ITEM, 60.0)
        except TransportError as error:
            failed.append(str(error))

    sender = threading.Thread(target=put)
    sender.start()
    queue.disconnected("lost")
    sender.join(30)
    assert failed == ["lost"]


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
        ({"prefix": "a\nb"}, "is not printable"),
        ({"cert_file": "c.pem", "url": "rediss://host"}, "belong together"),
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
