"""Limits of names, keys and sizes: one clear error sentence for each."""

import msgspec
import pytest

from pubsub_lib.core.limits import Limits, check_key, check_name
from pubsub_lib.core.model import MAX_KEY_BYTES, MAX_NAME_BYTES
from pubsub_lib.errors import InvalidValueError


@pytest.mark.parametrize("good", ["t", "tenant-1", "ünïcödé", " ", "a" * MAX_NAME_BYTES, "é" * (MAX_NAME_BYTES // 2)])
def test_valid_name_is_returned(good: str) -> None:
    assert check_name("topic", good) is good
    assert check_key(good) is good


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("", "the topic is empty"),
        ("a\0b", r"the topic 'a\\x00b' holds a NUL"),
        ("\ud800", "not valid Unicode"),
        ("a" * (MAX_NAME_BYTES + 1), "has 256 bytes; at most 255 are allowed"),
        ("é" * 128, "has 256 bytes"),
        (7, "the topic 7 is a int; give a string"),
        (None, "the topic None is a NoneType"),
        (b"bytes", "is a bytes"),
    ],
)
def test_invalid_name_is_refused_in_one_sentence(bad: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message) as caught:
        check_name("topic", bad)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_key_has_its_own_limit() -> None:
    assert check_key("k" * MAX_KEY_BYTES)
    with pytest.raises(InvalidValueError, match=f"the key .* has {MAX_KEY_BYTES + 1} bytes"):
        check_key("k" * (MAX_KEY_BYTES + 1))


@pytest.mark.parametrize("field", Limits.__struct_fields__)
def test_every_limit_is_at_least_one(field: str) -> None:
    assert getattr(msgspec.convert({field: 1}, Limits), field) == 1
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: 0}, Limits)


def test_an_unknown_limit_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="max_values"):
        msgspec.convert({"max_values": 1}, Limits)
