"""Streams by numbers: every message of every replica as one number, so that large joins compare and carry no texts.

A *lane* is one stream (domain, UUID, topic) on its way to one replica that listens. The lanes are numbered, and so are
the places in a lane, from the first sequence that was sent; both numbers together are the *item*. Items of neighbouring
sequences are neighbours, too.
"""

from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import settled

STREAM: Final = ["domain", "uuid", "topic"]
_PLACES: Final = 40
"""Bits for the place in a lane; the rest is for the lanes."""
_LANES: Final = 1 << 20
"""So many at most: the table of them is where all messages are."""


class StreamIds(msgspec.Struct, frozen=True):
    """``table``: (domain, uuid, topic, name, lane, first, length), small; ``without``: streams that have no number,
    for they were not sent as often as their sequences have numbers, or there are too many.
    """

    table: DataFrame
    without: DataFrame

    def of(self, lanes: DataFrame) -> DataFrame:
        """The streams of these lanes (column ``lane``)."""
        return self.table.join(F.broadcast(lanes), "lane", "left_semi").select(*STREAM)


def number(streams: DataFrame, listeners: DataFrame) -> StreamIds:
    """``streams``: as of ``words.streams``; ``listeners``: (domain, topic, name). Blocks for a small job."""
    fits = F.col("whole") & (F.col("first") >= 0) & (F.col("length") <= 1 << _PLACES)
    each = streams.filter(fits).drop("whole").join(listeners, ["domain", "topic"])
    turn = F.row_number().over(Window.orderBy(*STREAM, "name")).cast("bigint") - 1
    every = settled(each.withColumn("lane", turn))
    beyond = every.filter(F.col("lane") >= _LANES).select(*STREAM)
    without = streams.filter(~fits).select(*STREAM).unionByName(beyond)
    return StreamIds(every.filter(F.col("lane") < _LANES), without)


def item() -> Column:
    """Of a row with ``sequence`` and its lane: a number, negative when that lane has no such sequence."""
    place = F.col("sequence") - F.col("first")
    there = (place >= 0) & (place < F.col("length"))
    return F.when(there, F.shiftleft("lane", _PLACES).bitwiseOR(place)).otherwise(F.bitwise_not("lane"))


def lane(item: Column, *, narrower: int = 0) -> Column:
    """Of an item, or of that many bits less of it."""
    return F.when(item < 0, F.bitwise_not(item)).otherwise(F.shiftright(item, _PLACES - narrower))


def named(rows: DataFrame, table: DataFrame) -> DataFrame:
    """With the domain, UUID, topic, name and sequence again of each row's ``item``: of those whose lane is there."""
    place = F.col("item").bitwiseAND(F.lit((1 << _PLACES) - 1))
    there = rows.filter(F.col("item") >= 0).withColumn("lane", F.shiftright("item", _PLACES))
    known = there.join(F.broadcast(table.drop("length")), "lane")
    return known.withColumn("sequence", F.col("first") + place).drop("lane", "first", "item")
