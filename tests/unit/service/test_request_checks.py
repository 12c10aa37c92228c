"""A request of a worker is checked as a store checks the verbs of its own program."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import MAX_NUMBER
from pubsub_lib.errors import FrameError
from pubsub_lib.service.request_checks import check_request
from pubsub_lib.store.verbs import Operation
from pubsub_lib.store.writer import Work

LIMITS = Limits(max_value_bytes=64, max_value_depth=3)
WORK = Work((Operation("set", "t", "k", b'{"a":1,"b":[1.5,"x"]}', "x", 3),), {("t", "r"): 0}, 7, "api-1")


def refused(work: Work) -> str:
    with pytest.raises(FrameError) as raised:
        check_request(work, LIMITS)
    assert raised.value.reason == "foreign"
    return str(raised.value)


def test_requests_that_a_store_records_are_accepted() -> None:
    check_request(WORK, LIMITS)
    check_request(Work((), {}, MAX_NUMBER, ""), LIMITS)
    for operation in (
        Operation("create", "t", "k", b"1"),
        Operation("update", "t", "k", b"{}", None, MAX_NUMBER),
        Operation("delete", "t", "k", None, None, 0, True),
        Operation("set", "t" * 255, "é" * 256, b'"\xc3\xa9"', "x" * 255),
    ):
        check_request(msgspec.structs.replace(WORK, operations=(operation,)), LIMITS)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"table": ""}, "the table is empty"),
        ({"table": "t" * 256}, "at most 255"),
        ({"table": "t\0"}, "NUL"),
        ({"key": ""}, "the key is empty"),
        ({"key": "é" * 257}, "at most 512"),
        ({"topic": ""}, "the topic is empty"),
        ({"topic": "x" * 256}, "at most 255"),
        ({"topic": "x\0y"}, "NUL"),
        ({"version": -1}, "not a valid position"),
        ({"version": MAX_NUMBER + 1}, "not a valid position"),
        ({"missing_ok": True}, "missing_ok"),
        ({"value": None}, "needs a value"),
        ({"value": b""}, "not valid JSON"),
        ({"value": b"{"}, "not valid JSON"),
        ({"value": b"NaN"}, "not valid JSON"),
        ({"value": b'"\xff"'}, "not valid JSON"),
        ({"value": b'{"b":1,"a":2}'}, "not canonical"),
        ({"value": b'{"a":1,"a":2}'}, "not canonical"),
        ({"value": b"[1, 2]"}, "not canonical"),
        ({"value": b"123456789012345678901"}, "more than 64 bits"),
        ({"value": b"[[[[1]]]]"}, "nested deeper"),
        ({"value": b'"' + b"x" * 63 + b'"'}, "65 bytes"),
        ({"verb": "update", "value": b"[]"}, "an update needs an object"),
        ({"verb": "delete"}, "neither a value nor a topic"),
        ({"verb": "delete", "value": None}, "neither a value nor a topic"),
    ],
)
def test_operation_that_no_store_records_is_refused(change: Mapping[str, Any], text: str) -> None:
    operation = msgspec.structs.replace(WORK.operations[0], **change)
    assert text in refused(msgspec.structs.replace(WORK, operations=(WORK.operations[0], operation)))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"nonce": 0}, "nonce"),
        ({"nonce": MAX_NUMBER + 1}, "nonce"),
        ({"origin": "x" * 256}, "at most 255"),
        ({"origin": "x\0"}, "NUL"),
        ({"reads": {("", "k"): 0}}, "the table is empty"),
        ({"reads": {("t", ""): 0}}, "the key is empty"),
        ({"reads": {("t", "k"): -1}}, "not a valid position"),
    ],
)
def test_request_that_no_store_makes_is_refused(change: Mapping[str, Any], text: str) -> None:
    assert text in refused(msgspec.structs.replace(WORK, **change))
