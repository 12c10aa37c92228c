"""Intervals whose begin is missing, and that only the received messages show (audit-verdicts.md, "Words")."""

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import FOREVER, RUN
from pubsub_lib.audit.spark.settled import lookup, together

_TOPIC = [*RUN, "topic"]


def shown_intervals(
    events: DataFrame, rows: DataFrame, runs: DataFrame, overview: DataFrame, domains: Collection[str]
) -> DataFrame:  # fmt: skip
    """The begins of the intervals of these domains: see :func:`pubsub_lib.audit.rules.intervals.intervals`. A plan."""
    headless = runs.filter(
        F.col("domain").isin(sorted(domains)) & (F.col("side") == "replica") & (F.col("first_number") > 1)
    )
    headless = headless.select(*RUN)
    sent = overview.filter(F.col("sent") > 0).select("domain", "uuid", "topic").distinct()
    message = (F.col("kind") == "data") & (F.col("side") == "replica") & (F.col("sequence") > 0)
    received = rows.filter(message & (F.col("topic") != ""))
    received = received.select(*_TOPIC, "uuid", "number", "position", "wall", "outcome")
    received = together(received.join(lookup(headless), RUN))
    received = received.join(lookup(sent), ["domain", "uuid", "topic"], "left_semi")
    first = received.groupBy(*_TOPIC).agg(
        F.min(F.struct("number", "wall")).alias("first"),
        F.min(F.when(F.col("outcome") == "applied", F.struct("number", "position"))).alias("applied"),
    )
    marks = events.filter((F.col("side") == "replica") & F.col("kind").isin("interest", "drop"))
    mark = F.struct("number", "wall", "mono")
    dropped = F.min(F.when(F.col("kind") == "drop", mark)).alias("dropped")
    own = marks.groupBy(*_TOPIC).agg(F.min("number").alias("marked"), dropped)
    # A drop of everything without an interest before it: the replica may have followed the topic by that.
    first_mark = F.min(F.struct("number", "wall", "mono", "kind")).alias("mark")
    every = marks.filter("topic = ''").groupBy(*RUN).agg(first_mark)
    of_all = F.when(F.col("mark.kind") == "drop", F.struct("mark.number", "mark.wall", "mark.mono"))
    every = every.select(*RUN, F.col("mark.number").alias("all_marked"), of_all.alias("all_dropped"))
    found = first.join(lookup(own), _TOPIC, "left").join(lookup(every), RUN, "left")
    unmarked = F.coalesce(F.least("marked", "all_marked") > F.col("applied.number"), F.lit(True))
    found = found.filter(F.col("applied").isNotNull() & unmarked).withColumn("drop", F.least("dropped", "all_dropped"))
    begin = F.col("first.number") - 1
    return found.select(
        *_TOPIC, begin.alias("begin"), F.col("first.wall").alias("opened"),
        F.coalesce("drop.number", F.lit(FOREVER)).alias("end"),
        F.col("drop.wall").alias("drop_wall"), F.col("drop.mono").alias("drop_mono"),
        begin.alias("whole"), F.coalesce("drop.number", F.lit(FOREVER)).alias("until"),
        F.col("applied.position").alias("base"),
    )  # fmt: skip
