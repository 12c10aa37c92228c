"""The fast path for clean streams: each message was sent once, received once, in order, and applied in time.

In a large audit nearly all streams are clean. They are judged here by one join of the sent with the received messages.
Only the other streams go through all rules (:mod:`~pubsub_lib.audit.rules.delivery`), which costs several times as
much. A stream counts as clean only when that is certain; otherwise the rules judge it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules import contents
from pubsub_lib.audit.rules.base_tables import with_skew
from pubsub_lib.audit.rules.stream_ids import STREAM, item, lane, named, number
from pubsub_lib.audit.rules.ways import MESSAGE
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import lookup, settled

_SLOT: Final = 3
"""Bits of the place within a group of neighbours that are compared together."""
_SLOTS: Final = 1 << _SLOT
_LEVELS: Final = 2
"""Number of times that spans are combined after the first time."""
_PIECE: Final = 12
"""Bits of the items in one piece of a lane: few, so that a hot topic has many pieces, and a multiple of ``_SLOT``."""
_RUNS_APART: Final = 40
"""Bits for the record numbers of one run."""


class FastPath(msgspec.Struct, frozen=True):
    """``delivery``: rows of the delivery table; ``joined``: the persisted table from which they are computed;
    ``streams``: the clean streams; ``every``: whether all streams are clean.
    """

    delivery: DataFrame
    joined: DataFrame
    streams: DataFrame
    every: bool

    def rest(self, rows: DataFrame) -> DataFrame:
        """The records of all other streams."""
        if self.every:
            return rows.limit(0)
        return rows.join(lookup(self.streams), STREAM, "left_anti")


def fast_path(
    rows: DataFrame,
    raw_receipts: DataFrame,
    listeners: DataFrame,
    streams: DataFrame,
    received: DataFrame,
    skews: DataFrame,
    stale: DataFrame,
    evidence: DataFrame | None,
    settings: AuditSettings,
) -> FastPath:
    """Find the clean streams and judge their messages. Blocks for the jobs.

    ``raw_receipts``: see ``receipts.raw_receipts``; ``listeners``: (domain, topic, name); ``streams``: see
    ``base_tables.streams``; ``received``: see ``stream_ids.received_streams``; ``stale``: see ``receipts.stale``;
    ``evidence``: see ``contents.evidence``.
    """
    lanes = number(streams, listeners)
    one_clock = skews.isEmpty()  # hosts are needed only to find the skew between them
    joined = _joined(rows, raw_receipts, lanes.table, None if one_clock else skews, settings).persist()
    wrong = lanes.of(joined.filter(~F.col("fine")).select(lane(F.col("item")).alias("lane")).distinct())
    unexpected = received.join(lanes.table, [*STREAM, "name"], "left_anti").select(*STREAM)
    of_stale = streams.join(stale.select("domain", "topic").distinct(), ["domain", "topic"]).select(*STREAM)
    changed = [] if evidence is None else [contents.streams_of(evidence, rows)]
    for more in (lanes.without, unexpected, of_stale, *changed):
        wrong = wrong.unionByName(more)
    wrong = settled(wrong.unionByName(lanes.of(_out_of_order(joined))).distinct())
    every = wrong.isEmpty()
    found, table = streams.select(*STREAM), lanes.table
    if not every:
        found = settled(found.join(wrong, STREAM, "left_anti"))
        table = table.join(found, STREAM, "left_semi")
    return FastPath(_as_delivery(named(joined, table)), joined, found, every)


def _joined(
    rows: DataFrame, raw_receipts: DataFrame, lanes: DataFrame, skews: DataFrame | None, settings: AuditSettings
) -> DataFrame:
    """A full join of the sent messages that a replica expects with its receipts, both in lanes; ``fine``: the receipt
    matches the sent message and was applied in time.
    """
    at = [item().alias("item"), F.shiftright(item(), _PIECE).alias("piece")]
    sent = rows.filter((F.col("kind") == "data") & (F.col("outcome") == "sent"))
    expected = sent.join(lookup(lanes.drop("name")), STREAM).select(
        *at, F.col("wall").alias("p"), "service", "position", "nonce", "written", F.col("hash").alias("sent_hash"),
        *(() if skews is None else (F.col("host").alias("publisher_host"),)),
    )  # fmt: skip
    taken = (F.col("outcome") == "applied") & ~F.col("astray")  # what is old goes through the rules
    came = raw_receipts.join(lookup(lanes), [*STREAM, "name"]).select(
        *at, F.col("wall").alias("settled"), F.col("hash").alias("received_hash"), taken.alias("taken"),
        F.shiftleft("turn", _RUNS_APART).bitwiseOR(F.col("number")).alias("order"),
        *(() if skews is None else ("host",)),
    )  # fmt: skip
    # Partitioned by pieces: neighbours, which are compared later, are in one partition. All partitions have about the
    # same size, so a hash join in memory is possible; a sort-merge join takes half as long again.
    looked_up = came.repartition("piece").hint("shuffle_hash")
    joined = expected.repartition("piece").join(looked_up, ["item", "piece"], "full")
    if skews is None:
        joined = joined.withColumn("skew", F.lit(0).cast("bigint"))
    else:
        domains = lookup(lanes.select("lane", "domain"))
        joined = joined.withColumn("lane", lane(F.col("item"))).join(domains, "lane")
        joined = with_skew(joined, "host", skews, settings)
    in_time = F.col("settled") - F.col("skew") <= F.col("p") + settings.bound
    known = F.col("settled") <= F.col("p") + settings.reach
    fine = F.col("taken") & (F.col("sent_hash") == F.col("received_hash")) & in_time & known
    return joined.select(
        "item", "service", "position", "nonce", "p", "written", "settled", "skew", "order",
        F.coalesce(fine, F.lit(False)).alias("fine"),
    )  # fmt: skip


def _as_delivery(joined: DataFrame) -> DataFrame:
    return joined.withColumns(
        {
            "kind": F.lit("publication"),
            "verdict": F.lit("ok"),
            "detail": F.lit(""),
            "blame": F.lit(""),
            "way": F.lit(MESSAGE),
            "received": F.col("settled"),
            "detected": F.lit(None).cast("bigint"),
        }
    )


def _out_of_order(joined: DataFrame) -> DataFrame:
    """The lanes with receipts out of the order of their sequences, or received more than once.

    Sorting all receipts would take longer than the join. Instead eight neighbours at a time are compared, then the
    spans of eight such groups, and so on; each step has an eighth of the rows of the step before.
    """
    at = [f"at{slot}" for slot in range(_SLOTS)]
    come = joined.filter("fine").select(F.col("item").alias("place"), "order")
    spans = _wider(
        come, F.count("*").alias("rows"),
        *(F.max(F.when(_slot() == slot, F.col("order"))).alias(name) for slot, name in enumerate(at)),
    )  # fmt: skip
    there = sum((F.col(name).isNotNull().cast("int") for name in at), F.lit(0))
    spans = _compared(spans, at, at, F.col("rows") > there)
    low, high = ([f"{name}{slot}" for slot in range(_SLOTS)] for name in ("low", "high"))
    for _ in range(_LEVELS):
        spans = _wider(
            spans, F.max("disordered").alias("disordered"),
            *(F.min(F.when(_slot() == slot, F.col("low"))).alias(name) for slot, name in enumerate(low)),
            *(F.max(F.when(_slot() == slot, F.col("high"))).alias(name) for slot, name in enumerate(high)),
        )  # fmt: skip
        spans = _compared(spans, low, high, F.col("disordered"))
    spans = spans.withColumn("lane", lane(F.col("place"), narrower=(_LEVELS + 1) * _SLOT))
    before = Window.partitionBy("lane").orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    overlaps = F.coalesce(F.max("high").over(before) >= F.col("low"), F.lit(False))
    return spans.withColumn("disordered", F.col("disordered") | overlaps).filter("disordered").select("lane").distinct()


def _slot() -> Column:
    return F.col("place").bitwiseAND(F.lit(_SLOTS - 1))


def _wider(spans: DataFrame, *sums: Column) -> DataFrame:
    """Combines ``_SLOTS`` neighbours into one row."""
    return spans.groupBy(F.shiftright("place", _SLOT).alias("place")).agg(*sums)


def _compared(wider: DataFrame, low: Sequence[str], high: Sequence[str], disordered: Column) -> DataFrame:
    """The span from the lowest to the highest value of each row, and whether any slots overlap."""
    for slot in range(1, _SLOTS):
        before = F.greatest(*high[:slot]) if slot > 1 else F.col(high[0])
        disordered = disordered | F.coalesce(F.col(low[slot]) <= before, F.lit(False))
    span = F.least(*low).alias("low"), F.greatest(*high).alias("high")
    return wider.select("place", *span, disordered.alias("disordered"))
