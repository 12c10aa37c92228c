"""Numbers for streams: each message to each replica becomes one number, so that large joins need no strings.

A *lane* is one stream (domain, UUID, topic) to one replica that listens. Lanes are numbered. The places in a lane are
numbered from the first sequence that was sent. Both numbers together are the *item*. Items of neighbouring sequences
are neighbouring numbers.
"""

from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import RUN
from pubsub_lib.audit.spark.settled import lookup, settled

STREAM: Final = ["domain", "uuid", "topic"]
_PLACES: Final = 40
"""Bits for the place in a lane; the rest is for the lanes."""
_LANES: Final = 1 << 20
"""Maximum number of lanes: each task that reads messages holds the table of lanes."""


class StreamIds(msgspec.Struct, frozen=True):
    """``table``: (domain, uuid, topic, name, lane, first, length), small. ``without``: streams without a number: the
    count of their messages differs from the length of their range of sequences, or there are too many lanes.
    """

    table: DataFrame
    without: DataFrame

    def of(self, lanes: DataFrame) -> DataFrame:
        """The streams of the given lanes (column ``lane``)."""
        return self.table.join(lookup(lanes), "lane", "left_semi").select(*STREAM)


def number(streams: DataFrame, listeners: DataFrame) -> StreamIds:
    """Number the lanes. ``streams``: see ``base_tables.streams``; ``listeners``: (domain, topic, name). Blocks for a
    small job.
    """
    fits = F.col("whole") & (F.col("first") >= 0) & (F.col("length") <= 1 << _PLACES)
    each = streams.filter(fits).drop("whole").join(listeners, ["domain", "topic"])
    turn = F.row_number().over(Window.orderBy(*STREAM, "name")).cast("bigint") - 1
    every = settled(each.withColumn("lane", turn))
    beyond = every.filter(F.col("lane") >= _LANES).select(*STREAM)
    without = streams.filter(~fits).select(*STREAM).unionByName(beyond)
    return StreamIds(every.filter(F.col("lane") < _LANES), without)


def item() -> Column:
    """The item of a row with ``sequence`` and the columns of its lane; negative when the lane lacks that sequence."""
    place = F.col("sequence") - F.col("first")
    there = (place >= 0) & (place < F.col("length"))
    return F.when(there, F.shiftleft("lane", _PLACES).bitwiseOR(place)).otherwise(F.bitwise_not("lane"))


def lane(item: Column, *, narrower: int = 0) -> Column:
    """The lane of an item. ``narrower``: the number of low bits that were already removed from the item."""
    return F.when(item < 0, F.bitwise_not(item)).otherwise(F.shiftright(item, _PLACES - narrower))


def named(rows: DataFrame, table: DataFrame) -> DataFrame:
    """The rows whose lane is in ``table``, with domain, UUID, topic, name and sequence instead of their ``item``."""
    place = F.col("item").bitwiseAND(F.lit((1 << _PLACES) - 1))
    there = rows.filter(F.col("item") >= 0).withColumn("lane", F.shiftright("item", _PLACES))
    known = there.join(lookup(table.drop("length")), "lane")
    return known.withColumn("sequence", F.col("first") + place).drop("lane", "first", "item")


def received_streams(overview: DataFrame, runs: DataFrame) -> DataFrame:
    """The (domain, uuid, topic, name) of all receipts, from counts of records; the result may contain a few more."""
    there = overview.filter((F.col("side") == "replica") & (F.col("uuid") != ""))
    listening = runs.filter(~F.col("polls")).select(*RUN)
    return there.join(lookup(listening), RUN, "left_semi").select("domain", "uuid", "topic", "name").distinct()
