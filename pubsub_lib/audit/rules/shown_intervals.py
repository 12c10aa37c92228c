"""Intervals whose begin is missing, and that only the received messages show (audit-verdicts.md, "Words")."""

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import FOREVER, RUN, SYNCS
from pubsub_lib.audit.rules.intervals import completed
from pubsub_lib.audit.spark.settled import lookup, settled, together

_TOPIC = [*RUN, "topic"]


def shown_intervals(
    events: DataFrame, rows: DataFrame, runs: DataFrame, overview: DataFrame, domains: Collection[str]
) -> DataFrame:  # fmt: skip
    """The intervals of these domains, with the columns of :func:`pubsub_lib.audit.rules.intervals.intervals`. Before
    their syncs stands one that covers nothing, at the base, as before those of a continued part.
    """
    sent = overview.filter(F.col("sent") > 0).select("domain", "uuid", "topic").distinct()
    headless = runs.filter(
        F.col("domain").isin(sorted(domains)) & (F.col("side") == "replica") & (F.col("first_number") > 1)
    )
    headless = settled(headless.select(*RUN, (F.col("first_number") - 1).alias("begin"), "first_wall"))
    message = (F.col("kind") == "data") & (F.col("side") == "replica") & (F.col("outcome") == "applied")
    received = rows.filter(message & (F.col("sequence") > 0) & (F.col("topic") != ""))
    received = together(received.select(*_TOPIC, "uuid", "number", "position").join(lookup(headless), RUN))
    received = received.join(lookup(sent), ["domain", "uuid", "topic"], "left_semi")
    first = received.groupBy(*_TOPIC, "begin", "first_wall").agg(F.min(F.struct("number", "position")).alias("shown"))
    marks = events.filter((F.col("side") == "replica") & F.col("kind").isin("interest", "drop"))
    marks = settled(marks.select(*_TOPIC, "number", "wall", "mono", "kind").join(lookup(headless.select(*RUN)), RUN))
    mark = F.struct("number", "wall", "mono")
    own = marks.groupBy(*_TOPIC).agg(
        F.min("number").alias("marked"), F.min(F.when(F.col("kind") == "drop", mark)).alias("dropped")
    )
    first_mark = F.min(F.struct("number", "wall", "mono", "kind")).alias("mark")
    every = marks.filter("topic = ''").groupBy(*RUN).agg(first_mark)
    every = every.select(
        *RUN, F.col("mark.number").alias("all_marked"),
        F.when(F.col("mark.kind") == "drop", F.struct("mark.number", "mark.wall", "mark.mono")).alias("all_dropped"),
    )  # fmt: skip
    found = first.join(lookup(own), _TOPIC, "left").join(lookup(every), RUN, "left")
    number = F.col("shown.number")
    unmarked = F.coalesce(F.least("marked", "all_marked") > number, F.lit(True))
    drop = F.least("dropped", "all_dropped")
    begun = settled(
        found.filter(unmarked)
        .withColumn("drop", drop)
        .select(
            *_TOPIC, "begin", F.col("first_wall").alias("opened"),
            F.coalesce("drop.number", F.lit(FOREVER)).alias("end"),
            F.col("drop.wall").alias("drop_wall"), F.col("drop.mono").alias("drop_mono"),
            F.col("begin").alias("whole"), F.coalesce("drop.number", F.lit(FOREVER)).alias("until"),
            F.col("shown.position").alias("base"),
        )
    )  # fmt: skip
    chain = (F.col("of_interval") == F.col("topic")) | (F.col("topic") == "")
    whole = completed(begun.drop("base"), events, rows, runs, chain)
    base = F.struct(
        F.col("begin").alias("number"), F.col("base").alias("position"), F.col("opened").alias("wall"),
        F.lit(None).cast("bigint").alias("began"), F.lit(FOREVER).cast("bigint").alias("since"),
        F.lit(False).alias("full"),
    )  # fmt: skip
    syncs = F.concat(F.array(base).cast(SYNCS), "syncs")
    of_begun = begun.select(*_TOPIC, "base")
    return whole.join(lookup(of_begun), _TOPIC).withColumn("syncs", syncs).drop("base")

