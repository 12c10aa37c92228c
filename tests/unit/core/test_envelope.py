"""Messages that carry their bytes are messages like others, and what is made of them does not carry the bytes on."""

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


def test_their_bytes_are_what_a_body_holds_for_them() -> None:
    made = packed()
    with_bytes, without = (Envelope("api-1", UUID, "t", 7, messages) for messages in (made, list(made)))
    assert codec.encode(with_bytes) == codec.encode(without)
    assert made.encoded in codec.encode(without)[1]


def test_other_messages_in_the_envelope_are_encoded_anew() -> None:
    made = packed()
    envelope = msgspec.structs.replace(Envelope("api-1", UUID, "t", 7, made), messages=made[1:])
    assert not isinstance(envelope.messages, Packed)
    assert codec.decode(codec.encode(envelope)).messages == made[1:]
