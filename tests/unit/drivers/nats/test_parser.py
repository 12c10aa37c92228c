"""The NATS driver's parser: subjects with control characters, and received bytes in any parts."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from _processes import poll
from hypothesis import given
from hypothesis import strategies as st

from pubsub_nats.parser import SubjectParser
from tests.conformance.nats_wire import RawNats, server
from tests.unit.drivers.nats.fake_server import FakeServer, message
from tests.unit.drivers.nats.test_fake_server import DATA, body
from tests.unit.drivers.nats.test_server import LONG, envelope, listening, publishing, settings

HEADERS = b"N\v\r\n"
SUBJECTS = st.text(st.sampled_from("ab.\v\f"), min_size=1)
MESSAGES = st.lists(
    st.tuples(SUBJECTS, SUBJECTS, st.one_of(st.binary(), st.just(b"MSG a 1 2\r\n\v\f\r\n")), st.booleans())
)

Parsed = list[tuple[int, bytes, bytes, bytes]]


class Client:
    """Has the method that the parser calls for each message."""

    def __init__(self) -> None:
        self.messages: Parsed = []

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> None:
        self.messages.append((sid, subject, reply, data))


def parsed(parts: Iterable[bytes]) -> Parsed:
    async def parse() -> Parsed:
        client = Client()
        parser = SubjectParser(client)
        for part in parts:
            await parser.parse(part)
        return client.messages

    return asyncio.run(parse())


def shown(text: str) -> bytes:
    return text.replace("\v", "?").replace("\f", "?").encode()


@given(MESSAGES, st.data())
def test_messages_come_whole_however_their_bytes_are_divided(
    messages: list[tuple[str, str, bytes, bool]], drawn: st.DataObject
) -> None:
    sent = b""
    for subject, reply, data, has_headers in messages:
        if has_headers:
            size = len(HEADERS)
            sent += f"HMSG {subject} 7 {reply} {size} {size + len(data)}\r\n".encode() + HEADERS + data + b"\r\n"
        else:
            sent += message(b"7", subject.encode(), data, reply.encode())
    cuts = sorted(drawn.draw(st.lists(st.integers(0, len(sent)))))
    parts = [sent[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert parsed(parts) == [(7, shown(subject), shown(reply), data) for subject, reply, data, _ in messages]


@pytest.mark.parametrize("space", "\v\f")
def test_control_characters_in_subjects_do_not_end_a_connection(space: str) -> None:
    """Such a message is not received on the topic before the character either: perhaps its sender must not publish
    there."""
    with FakeServer() as fake, listening(settings(fake.url), "a") as listener:
        peer = fake.peers[0]
        sid = peer.subjects[DATA]
        foreign = [f"pubsub.data.a{space}", f"pubsub.data.a{space}{sid.decode()}", f"pubsub.data.a{space}b{space}c"]
        for subject in foreign:
            peer.send(message(sid, subject.encode(), body(5)))
        peer.send(message(sid, DATA, body(1)))
        assert poll(lambda: bool(listener.sequences), LONG)
        counters = listener.subscriber.counters()
        assert listener.sequences == [1]
        assert counters["foreign"] == len(foreign)
        assert counters["disconnected"] == 0


def test_control_characters_of_other_clients_do_not_end_a_connection() -> None:
    """A server accepts all but those that end a word of its protocol: tab, line feed, carriage return."""
    accepted = [*range(1, 9), 11, 12, *range(14, 32), 127]
    with server() as broker:
        raw = RawNats(broker.port)
        try:
            with listening(settings(broker.url), "") as listener, publishing(settings(broker.url)) as publisher:
                for number in accepted:
                    raw.publish(b"pubsub.data.a%c" % number, body(5))
                    raw.publish(b"pubsub.ask pubsub.reply.c.%cn" % number, b"x")
                publisher.send_event(envelope())
                assert poll(lambda: bool(listener.sequences), LONG)
                assert listener.sequences == [1]
                assert poll(lambda: publisher.counters()["foreign"] == len(accepted), LONG), publisher.counters()
                assert listener.subscriber.counters()["foreign"] == len(accepted)
                assert listener.subscriber.counters()["disconnected"] == publisher.counters()["disconnected"] == 0
        finally:
            raw.close()
