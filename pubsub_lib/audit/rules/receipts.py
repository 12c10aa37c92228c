"""The receipts of replicas, per item: the largest tables, in one pass each (audit-verdicts.md, "Words")."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import ID, RUN
from pubsub_lib.audit.rules.commit_tables import with_undone
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import hashed, lookup, partitioned, settled, together

STREAM: Final = ["domain", "run", "uuid", "topic"]
_PIECE: Final = 16
"""Bits of the range of positions in one piece of a chain."""


def sent_streams(publications: DataFrame) -> DataFrame:
    """Per (domain, uuid, topic): the lowest and highest sequence that was sent, and whether all between were sent."""
    return (
        publications.groupBy("domain", "uuid", "topic")
        .agg(F.min("sequence").alias("first_sent"), F.max("sequence").alias("last_sent"), F.count("*").alias("sent"))
        .withColumn("whole", F.col("sent") == F.col("last_sent") - F.col("first_sent") + 1)
        .drop("sent")
    )


def raw_receipts(rows: DataFrame, runs: DataFrame, intervals: DataFrame, settings: AuditSettings) -> DataFrame:
    """One row per receipt, with the name, first wall and ``turn`` (its number among the runs of its participant) of its
    run, ``astray``, and ``follows``: whether its run has an ``interest`` record.
    """
    around = intervals.groupBy(*RUN, "topic").agg(F.collect_list(F.struct("begin", "end", "drop_mono")).alias("around"))
    everything = around.filter(F.col("topic") == "").select(*RUN, F.col("around").alias("around_all"))
    turn = F.row_number().over(Window.partitionBy("domain", "side", "name").orderBy("first_wall", "run"))
    about = runs.withColumn("turn", turn.cast("bigint")).filter(~F.col("polls"))
    about = about.select(*RUN, "first_wall", (F.size("gaps") > 0).alias("holed"), "turn", "follows").join(
        hashed(everything), RUN, "left"
    )
    found = rows.filter(
        (F.col("kind") == "data") & (F.col("side") == "replica") & (F.col("uuid") != "") & (F.col("sequence") > 0)
    ).select(*ID, "run", "name", "host", "number", "wall", "mono", "outcome", "hash", "position", "nonce")
    of_topics = around.filter(F.col("topic") != "")
    found = together(found.join(lookup(about), RUN)).join(lookup(of_topics), [*RUN, "topic"], "left")
    inside = F.coalesce(_inside("around", settings), F.lit(False)) | F.coalesce(
        _inside("around_all", settings), F.lit(False)
    )
    return found.withColumn("astray", ~inside).drop("around", "around_all")


def grounded(raw: DataFrame, rows: DataFrame, events: DataFrame, runs: DataFrame, commits: DataFrame) -> DataFrame:
    """The raw receipts, where ``outcome`` is empty for those that are old, and of which no earlier record of their run
    shows that the replica had the change.
    """
    chain = [*RUN, "chain"]
    everything = events.filter((F.col("kind") == "interest") & (F.col("topic") == "")).select(*RUN).distinct()
    everything = everything.withColumn("everything", F.lit(True))

    def of_chain(table: DataFrame) -> DataFrame:
        joined = table.join(lookup(everything), RUN, "left")
        return joined.withColumn("chain", F.when(F.col("everything"), "").otherwise(F.col("topic"))).drop("everything")

    about = (*RUN, "topic", "number", "position", "nonce")
    claims = of_chain(raw.filter("outcome = 'old'").select(*about))
    applied = rows.filter(
        (F.col("kind") == "data") & (F.col("side") == "replica") & (F.col("outcome") == "applied")
    ).select(*about)
    begins = F.col("kind") == "sync_begin"
    ends = (F.col("kind") == "sync_end") & F.col("outcome").isin("delta", "full")
    reached = F.when(begins, F.col("prev_position")).otherwise(F.col("position"))
    synced = events.filter((F.col("side") == "replica") & (begins | ends))
    synced = synced.select(*RUN, "topic", "number", reached.alias("position"), "nonce")
    shown = of_chain(applied.unionByName(synced)).join(hashed(claims.select(*chain).distinct()), chain, "left_semi")
    every = shown.withColumn("old", F.lit(False)).unionByName(claims.withColumn("old", F.lit(True)))
    before = Window.partitionBy(*chain).orderBy("number").rowsBetween(Window.unboundedPreceding, -1)
    highest = F.max(F.when(~F.col("old"), F.col("position"))).over(before)
    short = F.coalesce(F.col("highest") < F.col("position"), F.lit(True))
    bare = every.withColumn("highest", highest).filter("old").withColumn("short", short)
    bare = with_undone(_with_proof(bare, applied, events), commits)
    bare = bare.filter(F.when(F.col("undone"), F.col("short")).otherwise(~F.col("proved")))
    bare = bare.join(lookup(runs.select(*RUN, "gaps")), RUN)
    bare = bare.filter(~F.exists("gaps", lambda gap: gap["hi"] <= F.col("number")))
    marked = raw.join(hashed(bare.select(*RUN, "number", F.lit(True).alias("bare"))), [*RUN, "number"], "left")
    return marked.withColumn("outcome", F.when(F.col("bare"), "").otherwise(F.col("outcome"))).drop("bare")


def _with_proof(claims: DataFrame, applied: DataFrame, events: DataFrame) -> DataFrame:
    """Adds ``proved``: whether the same run had applied the link before, or a full sync had reached its position."""
    point = [*RUN, "topic", "position", "nonce"]
    applied = applied.join(hashed(claims.select(*point).distinct()), point, "left_semi")
    firsts = applied.groupBy(*point).agg(F.min("number").alias("first_applied"))
    fulls = events.filter((F.col("kind") == "sync_end") & (F.col("outcome") == "full"))
    fulls = fulls.groupBy(*RUN, "topic").agg(F.collect_list(F.struct("number", "position")).alias("fulls"))
    everything = fulls.filter(F.col("topic") == "").select(*RUN, F.col("fulls").alias("fulls_all"))
    none = F.array().cast("array<struct<number:bigint,position:bigint>>")
    covered = F.exists(
        F.concat(F.coalesce("fulls", none), F.coalesce("fulls_all", none)),
        lambda full: (full["number"] < F.col("number")) & (full["position"] >= F.col("position")),
    )
    joined = claims.join(hashed(firsts), point, "left").join(lookup(fulls), [*RUN, "topic"], "left")
    proved = F.coalesce(F.col("first_applied") < F.col("number"), F.lit(False)) | covered
    return joined.join(lookup(everything), RUN, "left").withColumn("proved", proved)


def receipts(raw: DataFrame, streams: DataFrame) -> DataFrame:
    """The raw receipts with ``overtaken`` and ``published``; without those of runs that may poll.

    ``streams``: see ``sent_streams``. ``published`` is null where only the table of publications can decide.
    """
    earlier = Window.partitionBy(*STREAM).orderBy("number").rowsBetween(Window.unboundedPreceding, -1)
    counts = ~F.col("astray") & (F.col("sequence") <= F.col("last_sent"))
    highest = F.max(F.when(counts, F.col("sequence"))).over(earlier)
    joined = raw.join(lookup(streams), ["domain", "uuid", "topic"], "left")
    joined = joined.filter(F.col("follows") | F.col("last_sent").isNotNull()).drop("follows")
    among = F.col("sequence").between(F.col("first_sent"), F.col("last_sent"))
    published = F.when(F.coalesce(~among, F.lit(True)), F.lit(False)).when(F.col("whole"), F.lit(True))
    return (
        joined.withColumn("overtaken", F.coalesce(highest > F.col("sequence"), F.lit(False)))
        .withColumn("published", published)
        .drop("first_sent", "last_sent", "whole")
    )


def _inside(around: str, settings: AuditSettings) -> Column:
    number, mono = F.col("number"), F.col("mono")
    return F.exists(
        F.col(around),
        lambda each: (
            (each["begin"] < number)
            & ((number < each["end"]) | F.coalesce(mono <= each["drop_mono"] + settings.grace, F.lit(False)))
        ),
    )


def looked_up(receipts: DataFrame, publications: DataFrame, streams: DataFrame) -> DataFrame:
    """The receipts with ``published`` for all of them. Most audits have whole streams only, and need no join for it."""
    partial = settled(streams.filter(~F.col("whole")).select("domain", "uuid", "topic"))
    if partial.isEmpty():
        return receipts
    sent = publications.join(lookup(partial), ["domain", "uuid", "topic"], "left_semi")
    known = sent.select(*ID, F.lit(True).alias("known"))
    open_ones = receipts.filter(F.col("published").isNull()).join(hashed(known), ID, "left")
    decided = open_ones.withColumn("published", F.coalesce("known", F.lit(False))).drop("known")
    return settled(receipts.filter(F.col("published").isNotNull()).unionByName(decided))


def received(receipts: DataFrame) -> DataFrame:
    """One row per (domain, name, uuid, topic, sequence) that was received, with ``first``: the receipts in its run ρ.

    ``first`` is null when every receipt is astray; ``received_last`` is the wall of the last receipt.
    """
    together = partitioned(receipts, *ID)  # so that both groupings and the join with publications share one exchange
    regular = ~F.col("astray")
    taken = regular & F.col("outcome").isin("applied", "old")
    in_run = together.groupBy(*ID, "name", "run").agg(
        F.first("first_wall").alias("first_wall"),
        F.first("host").alias("host"),
        F.min(F.when(regular, F.struct("number", "overtaken", "wall"))).alias("earliest"),
        F.count(F.when(regular, 1)).alias("times"),
        F.count(F.when(regular & (F.col("outcome") == "applied"), 1)).alias("applied"),
        F.min(F.when(taken, F.col("wall"))).alias("settled"),
        F.min("hash").alias("low"),
        F.max("hash").alias("high"),
        F.max("wall").alias("last"),
    )
    first = F.struct(
        "first_wall", "run", F.col("earliest.number").alias("number"), "host", "times", "applied", "settled",
        F.col("earliest.overtaken").alias("overtaken"), F.col("earliest.wall").alias("received"),
    )  # fmt: skip
    return in_run.groupBy(*ID, "name").agg(
        F.min(F.when(F.col("times") > 0, first)).alias("first"),
        F.min("low").alias("received_low"),
        F.max("high").alias("received_high"),
        F.max("last").alias("received_last"),
    )


def neighbours(receipts: DataFrame, asked: DataFrame) -> DataFrame:
    """Per run, stream and sequence in ``asked``: the lowest and highest sequence that the run had received, not astray,
    at the ``horizon``.
    """
    asked = asked.distinct()
    streams = receipts.join(lookup(asked.select(*STREAM).distinct()), STREAM, "left_semi")
    came = streams.filter(~F.col("astray")).select(
        *STREAM,
        F.col("wall").alias("at"),
        F.col("sequence").alias("came"),
        F.lit(None).cast("bigint").alias("sequence"),
    )
    lookups = asked.select(*STREAM, F.col("horizon").alias("at"), F.lit(None).cast("bigint").alias("came"), "sequence")
    until = Window.partitionBy(*STREAM).orderBy("at").rangeBetween(Window.unboundedPreceding, 0)
    return (
        came.unionByName(lookups)
        .withColumns({"lowest": F.min("came").over(until), "highest": F.max("came").over(until)})
        .filter(F.col("sequence").isNotNull())
        .select(*STREAM, "sequence", "lowest", "highest")
    )


def stale(rows: DataFrame, events: DataFrame) -> DataFrame:
    """The points whose application set an object back to an older version: domain, run, topic, position, nonce, and the
    time of the first such application (``stale_at``).

    Only runs and topics in which links were not applied in the order of their chain are compared object by object. A
    chain has no stale object when each applied link begins at or after all links applied before it, and its versions
    lie between its own positions.
    """
    applied = rows.filter(
        (F.col("kind") == "data") & (F.col("side") == "replica") & (F.col("outcome") == "applied")
    ).select(*RUN, "topic", "number", "wall", "position", "nonce", "prev_position", "changes")
    piece = F.xxhash64(*RUN, "topic", F.shiftright("position", _PIECE))
    applied = applied.withColumns({"chain": F.xxhash64(*RUN, "topic"), "piece": piece})
    # settled: most audits have no suspects, and then no object needs to be compared.
    suspects = settled(_suspects(applied))
    if suspects.isEmpty():
        applied = applied.limit(0)
    return _stale_objects(events, applied.join(lookup(suspects), "chain", "left_semi").drop("chain", "piece"))


def _suspects(applied: DataFrame) -> DataFrame:
    """The chains (of a run and topic, as numbers) in which some link begins before the end of a link applied earlier.

    A chain is split into pieces by position, so that a long chain is not a single task; then the pieces are compared.
    A piece is identified by a number, because sorts compare numbers fastest. Within a piece each link is compared with
    the link before it: when all these pairs are in order, all links are in order. Two chains or pieces with the same
    number become suspects; this costs time but gives no wrong verdict.
    """
    versions = F.col("changes.version")
    strange = (F.array_max(versions) > F.col("position")) | (F.array_min(versions) <= F.col("prev_position"))
    narrow = applied.select(
        "chain", "piece", "number", "position", "prev_position", F.coalesce(strange, F.lit(False)).alias("strange")
    )
    there = Window.partitionBy("piece").orderBy("position")
    before = {name: F.lag(name).over(there) for name in ("chain", "number", "position")}
    crossed = (
        (before["chain"] != F.col("chain"))
        | (before["number"] > F.col("number"))
        | (before["position"] > F.col("prev_position"))
    )
    pieces = (
        narrow.withColumn("suspect", F.col("strange") | F.coalesce(crossed, F.lit(False)))
        .groupBy("piece", "chain")
        .agg(
            F.max("suspect").alias("suspect"),
            F.min("number").alias("first"), F.max("number").alias("last"),
            F.min("prev_position").alias("low"), F.max("position").alias("high"),
        )
    )  # fmt: skip
    earlier = Window.partitionBy("chain").orderBy("high").rowsBetween(Window.unboundedPreceding, -1)
    crossed = (F.max("last").over(earlier) > F.col("first")) | (F.max("high").over(earlier) > F.col("low"))
    suspect = F.col("suspect") | F.coalesce(crossed, F.lit(False))
    return pieces.withColumn("suspect", suspect).filter("suspect").select("chain").distinct()


def _stale_objects(events: DataFrame, applied: DataFrame) -> DataFrame:
    fulls = events.filter((F.col("kind") == "sync_end") & (F.col("outcome") == "full"))
    ends = fulls.groupBy(*RUN, "topic").agg(F.collect_list("number").alias("ends"))
    everything = ends.filter(F.col("topic") == "").select(*RUN, F.col("ends").alias("ends_all"))
    none = F.array().cast("array<bigint>")
    epoch = F.size(
        F.filter(F.concat(F.coalesce("ends", none), F.coalesce("ends_all", none)), lambda end: end < F.col("number"))
    )
    changes = (
        applied.join(lookup(ends), [*RUN, "topic"], "left")
        .join(lookup(everything), RUN, "left")
        .withColumn("epoch", epoch)
        .select(*RUN, "topic", "epoch", "number", "wall", "position", "nonce", F.explode("changes").alias("change"))
        .select(*RUN, "topic", "epoch", "number", "wall", "position", "nonce", "change.*")
    )
    # By number and not by row: the changes of one message have no order among each other.
    before = (
        Window.partitionBy(*RUN, "topic", "epoch", "table", "key")
        .orderBy("number")
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    return (
        changes.withColumn("newest", F.max("version").over(before))
        .filter(F.col("newest") > F.col("version"))
        .groupBy(*RUN, "topic", "position", "nonce")
        .agg(F.min("wall").alias("stale_at"))
    )
