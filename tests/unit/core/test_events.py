"""Events: decoded at each access, with a clear error."""

import msgspec
import pytest

from pubsub_lib.core.events import Event, decoder_of
from pubsub_lib.errors import InvalidValueError


class Port(msgspec.Struct):
    switch: str


def event(old: bytes | None, new: bytes | None, kind: type | None = None) -> Event:
    return Event("port", "p1", "a", "set", 2, 1, old, new, 2, decode=decoder_of(kind))


def test_values_are_decoded_as_json_or_as_the_tables_type() -> None:
    plain = event(b'{"switch":"s1"}', None)
    assert (plain.old, plain.new) == ({"switch": "s1"}, None)
    typed = event(None, b'{"switch":"s1"}', Port)
    assert (typed.old, typed.new) == (None, Port("s1"))


def test_json_null_is_a_value() -> None:
    null = event(None, b"null")
    assert null.new is None
    assert null.new_value == b"null"


def test_change_of_a_decoded_value_does_not_affect_the_event() -> None:
    one = event(b"[1]", b"[1]")
    one.new.append(2)
    assert one.new == [1]
    assert one.old is not one.old


@pytest.mark.parametrize("value", [b"", b"{", b'{"switch":1}', b'{"switch":"\xff"}', b"[" * 100_000])
def test_error_names_a_value_that_cannot_be_decoded(value: bytes) -> None:
    with pytest.raises(InvalidValueError, match="port 'p1'"):
        _ = event(None, value, Port).new


def test_events_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        event(None, b"1").key = "other"  # type: ignore[misc]
