"""The terms of the protocol as data, as the wire and all rules require them."""

import gc

import msgspec
import pytest

from pubsub_lib.core import model
from pubsub_lib.core.envelope import Envelope, Hello, Message
from pubsub_lib.core.model import EMPTY, ZERO, Change, Head, Link, Point, Record
from tests.unit.core.builders import History

WIRE = [Point, Change, Link, Head, Message, Hello]


def test_points_are_equal_only_with_the_same_nonce() -> None:
    assert Point(5, 1) == Point(5, 1)
    assert Point(5, 1) != Point(5, 2), "the same position of another history"
    assert hash(Point(5, 1)) == hash(Point(5, 1))


def test_empty_head_is_before_the_first_transaction() -> None:
    assert Head(ZERO, 0, 0) == EMPTY


@pytest.mark.parametrize("struct", WIRE)
def test_wire_structs_are_frozen_array_like_and_untracked_by_the_collector(struct: type[msgspec.Struct]) -> None:
    config = struct.__struct_config__
    assert (config.frozen, config.array_like, config.gc) == (True, True, False)


# Fields may only be appended: peers of version 1 read these.
FIELDS = {
    "Point": ("position", "nonce"),
    "Change": ("table", "key", "action", "version", "value"),
    "Link": ("topic", "prev", "point", "changes", "count", "digest", "tx_prev", "tx_links", "origin", "written_at"),
    "Head": ("point", "count", "digest"),
    "Message": ("link", "part", "parts"),
    "Hello": ("sequences", "heads", "store", "age", "nonce", "goodbye"),
}


@pytest.mark.parametrize("struct", WIRE)
def test_wire_fields_keep_their_places_and_new_ones_have_defaults(struct: type[msgspec.Struct]) -> None:
    first = FIELDS[struct.__name__]
    fields = msgspec.structs.fields(struct)
    assert tuple(field.name for field in fields)[: len(first)] == first
    assert all(not field.required for field in fields[len(first) :])


def test_the_collector_does_not_track_objects() -> None:
    link = History().one()
    assert not gc.is_tracked(link.point)
    assert not gc.is_tracked(link.changes[0])
    assert not gc.is_tracked(Record("t", "k", 1, b"1"))
    assert not gc.is_tracked(Envelope("s", "u", "t", 1, [Message(link)]))


@pytest.mark.parametrize("bad", [[-1, 0], [0, -1], [2**63, 0], [0, 2**63], [1], ["1", 0]])
def test_impossible_points_are_not_decoded(bad: list[object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(bad, Point)


def test_all_is_not_a_valid_topic_name() -> None:
    assert model.ALL == ""
    link = History().one()
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(msgspec.to_builtins(msgspec.structs.replace(link, topic=model.ALL)), Link)
