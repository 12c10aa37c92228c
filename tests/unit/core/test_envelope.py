"""Packed messages equal other messages; changed copies of them do not keep the encoded bytes."""

import msgspec

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Message, Packed
from tests.unit.core.builders import UUID, History


def packed() -> Packed:
    [made] = codec.pack([piece for link in History().some(2) for piece in codec.pieces(link)])
    return made


def test_packed_messages_equal_a_list_of_the_same() -> None:
    made = packed()
    assert len(made) == 2
    assert made == list(made)
    assert all(isinstance(each, Message) for each in made)


def test_packed_bytes_equal_the_messages_in_a_body() -> None:
    made = packed()
    with_bytes, without = (Envelope("api-1", UUID, "t", 7, messages) for messages in (made, list(made)))
    assert codec.encode(with_bytes) == codec.encode(without)
    assert made.encoded in codec.encode(without)[1]


def test_replaced_messages_are_encoded_again() -> None:
    made = packed()
    envelope = msgspec.structs.replace(Envelope("api-1", UUID, "t", 7, made), messages=made[1:])
    assert not isinstance(envelope.messages, Packed)
    assert codec.decode(codec.encode(envelope)).messages == made[1:]
