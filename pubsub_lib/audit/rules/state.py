"""Compares the objects of replicas with those of the store, one by one (audit-verdicts.md, "State")."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules import held_contents, listings
from pubsub_lib.audit.rules.base_tables import RUN
from pubsub_lib.audit.rules.changelog import limits
from pubsub_lib.audit.rules.listings import LISTING
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.session import compiling
from pubsub_lib.audit.spark.settled import checkpointed, hashed, lookup, observed, settled, together

COLUMNS: Final = (
    "domain", "name", "topic", "table", "key", "verdict", "versions_behind", "behind", "version", "stored_version",
)  # fmt: skip
_OBJECT: Final = ["domain", "topic", "table", "key"]
_POINT: Final = ["domain", "position", "nonce"]
_STORED: Final = ["domain", "stored_run", "topic", "stored_sequence"]


def findings(
    rows: DataFrame, without_objects: DataFrame, events: DataFrame, runs: DataFrame, settings: AuditSettings,
    *, held: bool,
) -> DataFrame:  # fmt: skip
    """All findings of the state. ``without_objects``: those of ``rows`` that are not objects. ``held``: replicas
    recorded what they hold, or objects were altered.
    """
    objects = rows.filter(F.col("kind") == "object")
    found = differences(objects, without_objects, events, runs, settings).select(*COLUMNS)
    if not held:
        return found
    return found.unionByName(held_contents.findings(without_objects, events, runs))


def differences(
    objects: DataFrame, rows: DataFrame, events: DataFrame, runs: DataFrame, settings: AuditSettings
) -> DataFrame:
    """One row per object that differs, and one without a key for each topic that cannot be compared. ``objects``: the
    records of the kind ``object``; ``rows``: the others.
    """
    if events.filter("kind = 'listing' and side = 'store'").isEmpty():  # without a store nothing is compared
        return _unknown(rows.limit(0), F.lit("unknown"))
    objects = objects.select(*LISTING, F.get("changes", F.lit(0)).alias("object"))
    objects = objects.select(*LISTING, "object.table", "object.key", "object.version", "object.hash")
    with compiling(rows.sparkSession):
        objects = checkpointed(objects)
        every = settled(listings.listings(events, runs, objects))
    whole = every.filter("complete").drop("complete")
    theirs = listings.last(whole, "store")
    mine = listings.last(whole.unionByName(listings.unlisted(every, theirs, events, runs)), "replica")
    with_store = theirs.select("domain").distinct()
    pairs = mine.join(lookup(with_store), "domain", "left_semi").join(
        lookup(
            theirs.select(
                "domain", "topic", F.col("run").alias("stored_run"), F.col("sequence").alias("stored_sequence"),
                F.col("position").alias("head"), F.col("wall").alias("stored_wall"),
            )
        ),
        ["domain", "topic"],
        "left",
    )  # fmt: skip
    # A topic that was never written has no listing of the store, and an empty one of the replica.
    pairs = pairs.filter(F.col("head").isNotNull() | (F.col("position") > 0) | (F.col("listed") > 0))
    unclear = F.coalesce(F.col("position") > F.col("head"), F.lit(True))
    ahead = (F.col("position") > F.col("head")) & (F.col("stored_wall") > F.col("wall") + settings.grace)
    foreign = F.when(ahead, "foreign_history").otherwise("unknown")
    unknown = _unknown(pairs.filter(unclear), foreign)
    lacking = listings.lacking(every, mine, rows, events, runs).join(lookup(with_store), "domain", "left_semi")
    unknown = unknown.unionByName(_unknown(lacking, F.lit("unknown")))
    floors = lookup(limits(events).select("domain", "floor"))
    pairs = _with_undone(pairs.filter(~unclear).join(floors, "domain", "left"), rows)
    # A number for each pair: the objects of large listings are then compared by fewer columns.
    pairs, any_undone = observed(pairs.withColumn("pair", F.monotonically_increasing_id()), F.col("undone"))
    if any_undone:
        undone, pairs = pairs.filter("undone"), pairs.filter(~F.col("undone"))
        unknown = unknown.unionByName(_unknown(_without_later_contents(undone, rows, runs), F.lit("unknown")))
    return _compared(pairs, objects, rows, settings).unionByName(unknown)


def _unknown(pairs: DataFrame, verdict: Column) -> DataFrame:
    """The rows for topics of replicas that cannot be compared."""
    return pairs.select(
        "domain", "name", "topic",
        F.lit("").alias("table"), F.lit("").alias("key"), verdict.alias("verdict"),
        F.lit(0).cast("bigint").alias("versions_behind"),
        *(F.lit(None).cast("bigint").alias(name) for name in ("behind", "version", "stored_version")),
    )  # fmt: skip


def _with_undone(pairs: DataFrame, rows: DataFrame) -> DataFrame:
    """Adds ``undone``: the changelog should have the point of the replica's listing, and does not."""
    points = pairs.select(*_POINT).distinct()
    there = _in_changelog(points, rows).withColumn("there", F.lit(True))
    undone = F.coalesce(F.col("position") > F.col("floor"), F.lit(False)) & F.col("there").isNull()
    return pairs.join(lookup(there), _POINT, "left").withColumn("undone", undone).drop("there")


def _in_changelog(points: DataFrame, rows: DataFrame) -> DataFrame:
    """Those of the points that a link of any topic has."""
    committed = rows.filter((F.col("kind") == "data") & (F.col("outcome") == "committed")).select(*_POINT)
    return committed.join(lookup(points), _POINT, "left_semi").distinct()


def _without_later_contents(pairs: DataFrame, rows: DataFrame, runs: DataFrame) -> DataFrame:
    """The pairs without those of replicas that hold the topic later at a point in the changelog."""
    held = rows.filter((F.col("kind") == "held") & (F.col("side") == "replica"))
    held = held.select(*RUN, "name", "topic", "position", "nonce", F.col("number").alias("held_number"))
    of_runs = runs.select(*RUN, F.col("first_wall").alias("held_wall"))
    listed = pairs.select("domain", "name", "topic", F.struct("first_wall", "run", "number").alias("listing"), "pair")
    later = F.struct("held_wall", "run", "held_number") > F.col("listing")
    held = together(held.join(lookup(of_runs), RUN)).join(lookup(listed), ["domain", "name", "topic"]).filter(later)
    known = held.join(lookup(_in_changelog(held.select(*_POINT).distinct(), rows)), _POINT, "left_semi")
    return pairs.join(lookup(known.select("pair").distinct()), "pair", "left_anti")


def _changes(rows: DataFrame, concerned: DataFrame) -> DataFrame:
    """Committed changes of the ``concerned`` objects: one row per (domain, topic, table, key), with an array of its
    changes by version.
    """
    each = F.struct("change.version", "change.action", "written")
    return (
        rows.filter((F.col("kind") == "data") & (F.col("outcome") == "committed"))
        .select("domain", "topic", "written", F.explode("changes").alias("change"))
        .select(
            "domain",
            "topic",
            F.col("change.table").alias("table"),
            F.col("change.key").alias("key"),
            each.alias("each"),
        )
        .join(hashed(concerned.select(*_OBJECT)), _OBJECT, "left_semi")
        .groupBy(*_OBJECT)
        .agg(F.sort_array(F.collect_set("each")).alias("history"))
    )


def _unequal(pairs: DataFrame, objects: DataFrame) -> DataFrame:
    """The objects that only one of two listings has, or that differ in them, with the columns of ``pairs``."""
    held = together(objects.join(hashed(pairs.select(*LISTING, "pair")), LISTING))
    stored = objects.withColumnsRenamed({"run": "stored_run", "sequence": "stored_sequence"}).join(
        hashed(pairs.select(*_STORED, "pair")), _STORED
    )
    one = held.select("pair", "table", "key", "version", "hash")
    other = stored.select(
        "pair", "table", "key", F.col("version").alias("stored_version"), F.col("hash").alias("stored_hash")
    )
    both = together(one.join(hashed(together(other)), ["pair", "table", "key"], "full"))
    same = F.col("version").eqNullSafe(F.col("stored_version")) & F.col("hash").eqNullSafe(F.col("stored_hash"))
    return both.filter(~same).join(lookup(pairs), "pair")


def _compared(pairs: DataFrame, objects: DataFrame, rows: DataFrame, settings: AuditSettings) -> DataFrame:
    with compiling(rows.sparkSession):
        unequal = settled(_unequal(pairs, objects))
    differing = unequal.join(hashed(_changes(rows, unequal)), _OBJECT, "left")
    empty = F.array().cast("array<struct<version:bigint,action:string,written:bigint>>")
    differing = differing.withColumn("history", F.coalesce("history", empty))
    low = F.coalesce("version", F.lit(-1))
    high = F.coalesce("stored_version", "head")
    differing = differing.withColumn(
        "between", F.filter("history", lambda each: (each["version"] > low) & (each["version"] <= high))
    )
    first = F.get("between", F.lit(0))["written"]
    return differing.withColumn("verdict", _verdict(settings)).select(
        "domain", "name", "topic", "table", "key", "verdict",
        F.size("between").cast("bigint").alias("versions_behind"),
        F.when(first > 0, F.col("wall") - first).alias("behind"),
        "version", "stored_version",
    )  # fmt: skip


def _verdict(settings: AuditSettings) -> Column:
    position, wall = F.col("position"), F.col("wall")
    stored_at = F.filter("history", lambda each: each["version"] == F.col("stored_version"))

    def due(change: Column, version: Column) -> Column:
        written = F.coalesce(change["written"], F.lit(0))
        return (version <= position) | ((written > 0) & (written + settings.bound <= wall))

    stored_due = due(F.get(stored_at, F.lit(0)), F.col("stored_version"))
    deletes = F.filter("between", lambda each: each["action"] == "delete")
    delete = F.get(deletes, F.lit(0))
    return (
        F.when(F.col("version").isNull(), F.when(stored_due, "missing").otherwise("behind"))
        .when(F.col("version") < F.col("stored_version"), F.when(stored_due, "stale").otherwise("behind"))
        .when(F.col("stored_version").isNotNull(), "wrong_value")
        .when(F.size(deletes) > 0, F.when(due(delete, delete["version"]), "zombie").otherwise("behind"))
        .when(position >= F.coalesce("floor", "head"), "zombie")
        .otherwise("unknown")
    )
