"""The byte form of a sync's question (rule W6): every bound, and hostile bytes."""

import msgspec
import pytest

from pubsub_lib.core.model import ALL, Point, Want
from pubsub_lib.errors import FrameError, InvalidValueError
from pubsub_lib.sync import question as module
from pubsub_lib.sync.question import SyncQuestion, decode_question, encode_question

AFTER = Point(7, 77)
GOOD = [1, 0, False, [["t", [7, 77], None, None]]]


def test_rule_w6_question_is_read_as_it_was_asked() -> None:
    wants = {
        ALL: Want(),
        "t": Want(AFTER),
        "ü" * 127: Want(buckets={0: 0, 255: 2**64 - 1}, known=AFTER),
        "u": Want(known=AFTER),
        "v": Want(buckets={}),
        "w": Want(buckets={1: 2}, known=AFTER, judged=("w", AFTER)),
    }
    for refresh, nonce in ((False, ""), (True, "ab" * 12)):
        asked = SyncQuestion(wants, refresh, nonce)
        assert decode_question(encode_question(asked)) == asked


def test_question_of_a_newer_minor_version_is_read() -> None:
    data = msgspec.msgpack.encode([1, 9, True, [["t", None, None, None, None, "new"]], "nonce", "new"])
    assert decode_question(data) == SyncQuestion({"t": Want()}, refresh=True, nonce="nonce")


def test_question_about_everything_names_the_topic_that_is_to_be_judged() -> None:
    asked = SyncQuestion({ALL: Want(known=AFTER, judged=("t", AFTER))})
    assert decode_question(encode_question(asked)) == asked


@pytest.mark.parametrize(("chain", "topic"), [("t", "u"), ("", None), ("", "a\0b"), ("", "ü" * 200)])
def test_point_that_no_topic_can_have_is_not_judged(chain: str, topic: str | None) -> None:
    """A lying hello named it, so it must not prevent the reading."""
    data = msgspec.msgpack.encode([1, 2, False, [[chain, None, None, None, [topic, [7, 77]]]]])
    assert decode_question(data) == SyncQuestion({chain: Want()})


def test_point_may_be_judged_with_the_name_of_its_chain() -> None:
    data = msgspec.msgpack.encode([1, 2, False, [["t", None, None, None, ["t", [7, 77]]]]])
    assert decode_question(data) == SyncQuestion({"t": Want(judged=("t", AFTER))})


def test_question_of_version_1_0_is_read() -> None:
    assert decode_question(msgspec.msgpack.encode(GOOD)) == SyncQuestion({"t": Want(AFTER)})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([2, 0, False, []], "version"),
        ([1, 0, False, []], "foreign"),
        ([1, 0, False, [["t"], ["t"]]], "foreign"),
        ([1, 0, False, [["a\0b"]]], "foreign"),
        ([1, 0, False, [["ü" * 200]]], "foreign"),
        ([1, 0, False, [["t" * 256]]], "foreign"),
        ([1, 0, False, [["t", [-1, 0]]]], "foreign"),
        ([1, 0, False, [["t", [7, 77], {1: 1}]]], "foreign"),
        ([1, 0, False, [["t", [7, 77], None, [7, 77]]]], "foreign"),
        ([1, 2, False, [["t", [7, 77], None, None, [None, [7, 77]]]]], "foreign"),
        ([1, 2, False, [["t", None, None, None, [None, None]]]], "foreign"),
        ([1, 0, False, [["t", None, {256: 1}]]], "foreign"),
        ([1, 0, False, [["t", None, {1: -1}]]], "foreign"),
        ([1, 0, "yes", [["t"]]], "foreign"),
        ([1, 1, False, [["t"]], "x" * 65], "foreign"),
        ({"wants": []}, "foreign"),
    ],
)
def test_hostile_question_is_refused_with_its_reason(value: object, reason: str) -> None:
    with pytest.raises(FrameError) as caught:
        decode_question(msgspec.msgpack.encode(value))
    assert caught.value.reason == reason


def test_each_question_that_is_cut_off_is_truncated() -> None:
    data = msgspec.msgpack.encode(GOOD)
    decode_question(data)
    for size in range(len(data)):
        with pytest.raises(FrameError) as caught:
            decode_question(data[:size])
        assert caught.value.reason == "truncated"


def test_question_beyond_the_bound_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUESTION_BYTES", 10)
    with pytest.raises(FrameError) as caught:
        decode_question(msgspec.msgpack.encode(GOOD))
    assert caught.value.reason == "oversized"


def test_question_with_too_many_wants_is_refused_at_both_ends() -> None:
    wants = {str(number): Want() for number in range(module.MAX_WANTS + 1)}
    with pytest.raises(InvalidValueError, match="is about 100001 topics, but at most 100000 are allowed"):
        encode_question(SyncQuestion(wants))
    data = msgspec.msgpack.encode([1, 0, False, [[each] for each in wants]])
    assert len(data) < module.MAX_QUESTION_BYTES
    with pytest.raises(FrameError, match="length <= 100000") as caught:
        decode_question(data)
    assert caught.value.reason == "foreign"
    del wants["0"]
    assert len(decode_question(encode_question(SyncQuestion(wants))).wants) == module.MAX_WANTS


def test_question_with_too_many_buckets_asks_for_all_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUESTION_BYTES", 100)
    wants = {"t": Want(buckets=dict.fromkeys(range(256), 2**63), known=AFTER)}
    assert decode_question(encode_question(SyncQuestion(wants))).wants == {"t": Want(known=AFTER)}


def test_question_that_is_too_large_names_no_point_to_judge() -> None:
    """A liar causes a point in each topic: the replica must be able to ask nevertheless."""
    point = Point(2**60, 2**62)
    for number, named in ((10_000, True), (14_000, False)):
        names = [f"{number:05d}".ljust(255, "x") for number in range(number)]
        asked = SyncQuestion({name: Want(None, {1: 2}, point, (name, point)) for name in names})
        read = decode_question(encode_question(asked)).wants
        assert len(read) == number
        assert {each.judged is not None for each in read.values()} == {named}
        assert all(each.buckets for each in read.values()), "the buckets fit without the points"


def test_question_about_too_many_topics_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUESTION_BYTES", 100)
    wants = {f"topic-{number}": Want() for number in range(50)}
    with pytest.raises(InvalidValueError, match=r"about 50 topics has .* but at most 100 are allowed"):
        encode_question(SyncQuestion(wants))
