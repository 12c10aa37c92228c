"""The listings of topics, and those that are not complete (audit-verdicts.md, "State")."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import RUN
from pubsub_lib.audit.spark.settled import hashed, lookup, together

LISTING: Final = [*RUN, "topic", "sequence"]
_TOPIC: Final = ["domain", "name", "topic"]
_PLACE: Final = ("first_wall", "run", "sequence")
"""Of a listing among those of a replica; -1 is before all listings of the run."""


def listings(events: DataFrame, runs: DataFrame, objects: DataFrame) -> DataFrame:
    """All listings, with ``complete``: whether there are as many objects as the end of the listing counts. Without a
    record of the end its columns are null.
    """
    ends = events.filter(F.col("kind") == "listing").select(
        *LISTING, "number", "wall", "position", "nonce", F.col("count").alias("listed")
    )
    counted = objects.groupBy(*LISTING).agg(F.count("*").alias("has"))
    every = ends.join(hashed(counted), LISTING, "full").withColumn("has", F.coalesce("has", F.lit(0).cast("bigint")))
    complete = F.coalesce(F.col("has") == F.col("listed"), F.lit(False))
    return every.withColumn("complete", complete).join(lookup(runs.select(*RUN, "name", "side", "first_wall")), RUN)


def unlisted(every: DataFrame, theirs: DataFrame, events: DataFrame, runs: DataFrame) -> DataFrame:
    """Empty listings of the topics of which a replica of everything has no record of a listing, and the store objects.
    ``every``: see :func:`listings`; ``theirs``: the store's last ones.
    """
    number = F.col("number")
    of_run = events.filter(F.col("side") == "replica").groupBy(*RUN)
    listing = F.col("kind") == "listing"
    subscribes = F.col("kind").isin("interest", "drop") & (F.col("topic") == "")
    ended = of_run.agg(
        F.max_by("kind", F.when(subscribes, number)).alias("subscribed"),
        F.max(F.when(listing, F.struct("number", "name", "side", "wall", "position", "nonce"))).alias("end"),
    )
    without_gaps = runs.filter(F.size("gaps") == 0).select(*RUN, "first_wall")
    ended = ended.filter((F.col("subscribed") == "interest") & F.col("end").isNotNull())
    ended = ended.join(lookup(without_gaps), RUN)
    stored = theirs.filter(F.col("listed") > 0).select("domain", "topic")
    begun = every.select(*RUN, "topic").distinct()
    absent = ended.join(lookup(stored), "domain").join(hashed(begun), [*RUN, "topic"], "left_anti")
    nothing = F.lit(0).cast("bigint")
    return absent.withColumns({"sequence": F.lit(-1).cast("bigint"), "listed": nothing, "has": nothing}).select(
        *LISTING, "end.*", "listed", "has", "first_wall"
    )


def lacking(every: DataFrame, mine: DataFrame, rows: DataFrame, events: DataFrame, runs: DataFrame) -> DataFrame:
    """Domain, name and topic of listings of replicas of which records are missing, or all of them, and that no later
    complete one replaces. ``every``: see :func:`listings`; ``mine``: the last complete ones of replicas.
    """
    of_replica = F.col("side") == "replica"
    broken = every.filter(of_replica & ~F.col("complete")).select(*_TOPIC, *_PLACE)
    begun = every.filter(of_replica).select(*RUN, F.lit(True).alias("lists")).distinct()
    held = rows.filter(of_replica & (F.col("kind") == "held") & ((F.col("position") > 0) | (F.col("count") > 0)))
    held = held.groupBy(*RUN, "topic").agg(F.max(F.struct("number", "count")).alias("last_held"))
    of_last = {"held": F.col("last_held.number"), "objects": F.col("last_held.count")}
    held = held.withColumns(of_last).drop("last_held")
    changes = rows.filter(of_replica & F.col("kind").isin("data", "sync_end"))
    changed = changes.groupBy(*RUN).agg(F.max("number").alias("changed"))
    latest = held.groupBy(*RUN).agg(F.max("held").alias("latest"))
    behind = F.exists("gaps", lambda gap: (gap["lo"] >= F.col("latest")) & (gap["hi"] <= F.col("last_number")))
    about = runs.select(*RUN, "name", "first_wall", "gaps", "last_number").join(lookup(latest), RUN)
    about = about.join(lookup(begun), RUN, "left").filter(F.coalesce("lists", F.lit(False)) | behind)
    about = about.join(lookup(changed), RUN, "left")
    marks = events.filter(of_replica & F.col("kind").isin("interest", "drop")).groupBy(*RUN, "topic")
    followed = marks.agg(F.max_by("kind", "number").alias("last")).filter("last = 'interest'")
    everything = followed.filter("topic = ''").select(*RUN, F.lit(True).alias("all"))
    own = followed.select(*RUN, "topic", F.lit(True).alias("own"))
    there = together(held.join(lookup(about), RUN)).join(lookup(everything), RUN, "left")
    there = there.join(lookup(own), [*RUN, "topic"], "left")
    # A replica of everything lists, and holds at its end, only topics of which it ever had an object.
    listed = F.col("own") | (F.col("all") & (F.col("objects") > 0))
    there = there.withColumns({name: F.coalesce(name, F.lit(False)) for name in ("all", "own")})
    there = there.filter(listed & (F.col("held") > F.coalesce("changed", F.lit(0))))
    unlisted = there.withColumn("sequence", F.lit(-1).cast("bigint"))
    each = broken.unionByName(unlisted.select(*_TOPIC, *_PLACE))
    done = mine.select(*_TOPIC, F.struct(*_PLACE).alias("done"))
    open_ones = each.join(hashed(done), _TOPIC, "left")
    return open_ones.filter(F.coalesce(F.col("done") < F.struct(*_PLACE), F.lit(True))).select(*_TOPIC).distinct()


def last(whole: DataFrame, side: str) -> DataFrame:
    """The last complete listing of each topic: of the store, or of each replica by name."""
    if side == "store":
        key, order = ["domain", "topic"], F.struct("position", "run", "sequence")
    else:
        key, order = ["domain", "name", "topic"], F.struct("first_wall", "run", "number")
    of_side = whole.filter(F.col("side") == side)
    values = F.struct("run", "sequence", "position", "nonce", "wall", "listed", "first_wall", "number")
    return of_side.groupBy(*key).agg(F.max_by(values, order).alias("last")).select(*key, "last.*")


