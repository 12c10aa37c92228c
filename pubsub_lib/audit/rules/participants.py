"""Participants whose journals are missing, and replicas that share a name (audit-verdicts.md, "Participants")."""

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import RUN
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import lookup, settled
from pubsub_lib.core.envelope import OBSERVER


def requests(events: DataFrame) -> DataFrame:
    """The nonces of answered hello requests that no replica recorded, and when they were answered. Not computed."""
    nonces = events.filter(F.col("kind").isin("hello", "ask") & (F.col("peer") != ""))
    recorded = F.max(F.col("side") == "replica")
    answered = F.min(F.when(F.col("side") != "replica", F.col("wall")))
    of_nonce = nonces.filter(~F.col("peer").startswith(OBSERVER)).groupBy("domain", "peer")
    found = of_nonce.agg(recorded.alias("recorded"), answered.alias("answered"))
    return found.filter(~F.col("recorded")).drop("recorded")


def hidden(settings: AuditSettings) -> Column:
    """Whether a gap of a replica may hide the request that was ``answered``. The row also needs ``replica_gaps``."""
    answered = F.col("answered")
    return F.exists(
        "replica_gaps", lambda gap: (gap["lo_wall"] <= answered) & (gap["hi_wall"] >= answered - settings.grace)
    )


def of_domains(
    rows: DataFrame, runs: DataFrame, events: DataFrame, settings: AuditSettings, until: Column
) -> DataFrame:  # fmt: skip
    """One row per domain: the number of its ``replicas`` (runs) and other ``participants``; the number of replicas'
    runs without their begin (``headless``) and of those that began during another (``overlaps``), and that of other
    participants' runs that lost records between others (``holed``), with the first of each; the number of the records
    that these ``lost``; the number of ``names`` of replicas, of the ``listed`` ones, and of others that recorded what
    they ``held``; whether it has a ``store``, and replicas with parents (``moves``); the distinct lists of ids of
    stores that runs recorded (``stores``), and those of runs that did so before ``until`` (``early``). And, when the
    store lists objects, the replicas that read some, and recorded nothing of what they hold (``stateless``, by name).
    Not computed.
    """
    listing = _shown(events, F.col("kind") == "listing", "listing")
    synced = _shown(events, (F.col("kind") == "sync_end") & F.col("outcome").isin("delta", "full"), "synced")
    replica, publishes = F.col("side") == "replica", F.col("side").isin("writer", "service", "relay")
    headless = F.when(replica & _beheaded(), F.struct("run", "name"))
    lost = F.aggregate(_inside(), F.lit(0).cast("bigint"), lambda so_far, gap: so_far + gap["hi"] - gap["lo"] - 1)
    holed = F.when(publishes & (lost > 0), F.struct("run", "name"))
    during = F.when(replica, _during(settings))
    overlap = F.when(during.isNotNull(), F.struct("run", "name", during.alias("other")))
    about = ("domain", "run", "side", "name", "holds", "moves")
    named = runs.select(*about, "host", "first_wall", "last_wall", "first_number", "last_number", "follows", "gaps")
    each = named.select(
        *about, headless.alias("headless"), overlap.alias("overlap"), holed.alias("holed"), lost.alias("lost")
    )
    for shown in (listing, synced, _stores(rows)):
        each = each.join(lookup(shown), RUN, "left")
    listed = F.collect_set(F.when(replica & F.col("listing"), F.col("name")))
    stored = F.max((F.col("side") == "store") & F.col("listing"))
    read = F.when(stored, F.collect_set(F.when(F.col("synced"), F.col("name"))))
    held = F.collect_set(F.when(replica & F.col("holds"), F.col("name")))
    return each.groupBy("domain").agg(
        F.count(F.when(replica, 1)).alias("replicas"),
        F.count(F.when(publishes, 1)).alias("participants"),
        F.count("headless").alias("headless"),
        F.min("headless").alias("first_headless"),
        F.count("overlap").alias("overlaps"),
        F.min("overlap").alias("first_overlap"),
        F.count("holed").alias("holed"),
        F.min("holed").alias("first_holed"),
        F.coalesce(F.sum(F.when(publishes, F.col("lost"))), F.lit(0)).alias("lost"),
        F.size(F.collect_set(F.when(replica, F.col("name")))).alias("names"),
        F.size(listed).alias("listed"),
        F.size(F.array_except(held, listed)).alias("held"),
        F.sort_array(F.array_except(F.array_except(read, listed), held)).alias("stateless"),
        F.max(F.col("side") == "store").alias("store"),
        F.max("moves").alias("moves"),
        F.collect_set("stores").alias("stores"),
        F.collect_set(F.when(F.col("since") < until, F.col("stores"))).alias("early"),
    )


def _shown(events: DataFrame, which: Column, name: str) -> DataFrame:
    """The runs that have such records, with a true column of this name."""
    return events.filter(which).select(*RUN).distinct().withColumn(name, F.lit(True))


def _stores(rows: DataFrame) -> DataFrame:
    """The ids of the stores that each run recorded, and the time of the first such record (``since``)."""
    known = F.col("kind").isin("mark", "close") & (F.col("peer") != "")
    ids = F.sort_array(F.collect_set("peer")).alias("stores")
    return rows.filter(known).groupBy(*RUN).agg(ids, F.min("wall").alias("since"))


def _inside() -> Column:
    """The gaps of a run between two of its records."""
    return F.filter("gaps", lambda gap: (gap["lo"] > 0) & (gap["hi"] <= F.col("last_number")))


def _beheaded() -> Column:
    """Whether a run of a replica lost its first record, or all of its subscriptions."""
    lost = F.exists("gaps", lambda gap: gap["hi"] <= F.col("last_number"))
    return (F.col("first_number") > 1) | (~F.col("follows") & lost)


def unsubscribed(rows: DataFrame, runs: DataFrame, settings: AuditSettings) -> DataFrame:
    """One row per domain with replicas that lost the record of a subscription, and have later ones of its topic: the
    ``number`` of their runs, and the ``first``.
    """
    holed = runs.filter((F.col("side") == "replica") & ~_beheaded() & (F.size(_inside()) > 0))
    holed = settled(holed.select(*RUN, "name", F.get(_inside(), F.lit(0))["hi"].alias("since")))
    kinds = F.col("kind").isin("interest", "drop", "sync_begin", "held")
    there = rows.filter((F.col("side") == "replica") & kinds).select(*RUN, "number", "mono", "kind", "topic")
    there = there.join(lookup(holed), RUN)
    marks = F.col("kind").isin("interest", "drop")
    topics = F.when(marks, F.array("topic")).otherwise(F.array_distinct(F.array("topic", F.lit(""))))
    before = Window.partitionBy(*RUN, "of").orderBy("number").rowsBetween(Window.unboundedPreceding, -1)
    mark = F.last(F.when(marks, F.struct("kind", "mono")), ignorenulls=True).over(before)
    each = there.withColumn("of", F.explode(topics)).withColumn("mark", mark)
    each = each.filter(~marks & (F.col("number") >= F.col("since")))
    follows = (F.col("mark.kind") == "interest") | (F.col("mono") <= F.col("mark.mono") + settings.grace)
    found = each.groupBy(*RUN, "name", "number").agg(F.max(F.coalesce(follows, F.lit(False))).alias("follows"))
    lost = found.filter(~F.col("follows")).select(*RUN, "name").distinct()
    return lost.groupBy("domain").agg(F.count("*").alias("number"), F.min(F.struct("run", "name")).alias("first"))


def unknown_parents(
    runs: DataFrame, events: DataFrame, begun: Mapping[str, Collection[tuple[str, str]]]
) -> DataFrame:  # fmt: skip
    """One row per domain in which a replica named a parent without a journal: their number and the ``first``.
    ``begun``: per domain side and name of participants of which no record was read yet.
    """
    named = events.filter((F.col("kind") == "parent") & (F.col("uuid") != "")).select("domain", "service").distinct()
    publishes = ("relay", "service", "writer")
    for domain, who in begun.items():
        names = sorted({name for side, name in who if side in publishes})
        named = named.filter(~((F.col("domain") == domain) & F.col("service").isin(names))) if names else named
    there = runs.filter(F.col("side").isin(*publishes)).select("domain", F.col("name").alias("service"))
    missing = named.join(lookup(there.distinct()), ["domain", "service"], "left_anti")
    return missing.groupBy("domain").agg(F.count("*").alias("number"), F.min("service").alias("first"))


def _during(settings: AuditSettings) -> Column:
    """The earlier run of the same side and name that still wrote when a run began; null without one."""
    here = _latest_before("domain", "side", "name", "host")
    anywhere = _latest_before("domain", "side", "name")
    begun = F.col("first_wall")
    elsewhere = F.when(anywhere["last_wall"] > begun + settings.grace, anywhere["run"])
    return F.coalesce(F.when(here["last_wall"] > begun, here["run"]), elsewhere)


def _latest_before(*same: str) -> Column:
    """Of the runs that began earlier, the one that wrote last."""
    before = Window.partitionBy(*same).orderBy("first_wall", "run").rowsBetween(Window.unboundedPreceding, -1)
    return F.max(F.struct("last_wall", "run")).over(before)
