"""When runs end: in order, by a successor, or because they expire; and the gaps at their ends (audit-verdicts.md,
"Words").
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import FOREVER, RUN
from pubsub_lib.audit.settings import PARTICIPANTS, AuditSettings, Listing
from pubsub_lib.audit.spark.settled import lookup


def with_ends(runs: DataFrame, listed: Mapping[str, Listing], settings: AuditSettings) -> DataFrame:
    """The runs, with ``successor`` (its first wall), ``over`` and ``expired``, :func:`known_until`, and a gap at the
    end of those that expired. ``listed``: when the folders of each domain were listed; a domain without it was listed
    after all of its records.
    """
    takes_part = F.col("side").isin(*PARTICIPANTS)
    latest = F.max(F.when(takes_part, F.col("last_wall"))).over(Window.partitionBy("domain"))
    until = F.col("last_wall") + settings.silence
    alone = ~F.col("ended") & F.coalesce(F.col("successor") > until, F.lit(True))
    known = _with_successors(runs, settings).withColumn("latest", latest)
    expired = takes_part & alone & (F.least("latest", known_until(listed)) > until)
    gaps = F.when(F.col("expired"), F.concat("gaps", F.array(_end_gap(until)))).otherwise(F.col("gaps"))
    over = F.col("ended") | F.col("successor").isNotNull()
    found = known.withColumns({"over": over, "expired": F.coalesce(expired, F.lit(False))})
    return found.withColumns({"gaps": gaps, "known_until": known_until(listed)}).drop("latest")


def _with_successors(runs: DataFrame, settings: AuditSettings) -> DataFrame:
    """The runs, with the first wall of the ``successor``; null without one.

    The begins and ends of a participant's runs are put in order: one pass, however often it was started.
    """
    replica = F.col("side") == "replica"
    after = F.when(replica, F.greatest("first_wall", F.col("last_wall") - settings.grace)).otherwise(F.col("last_wall"))
    each = F.array(
        F.struct(F.col("first_wall").alias("at"), F.lit(False).alias("is_end")),
        F.struct(after.alias("at"), F.lit(True).alias("is_end")),
    )
    at, is_end = F.col("event.at"), F.col("event.is_end")
    of_participant = Window.partitionBy("domain", "side", "name", F.when(~replica, F.col("host")))
    # From the latest to the earliest: Spark computes a frame up to the present row in one pass.
    later = of_participant.orderBy(at.desc(), is_end.desc()).rowsBetween(Window.unboundedPreceding, -1)
    successor = F.last(F.when(~is_end, at), ignorenulls=True).over(later)
    events = runs.withColumn("event", F.explode(each)).withColumn("successor", successor)
    return events.filter(is_end).drop("event")


def known_until(listed: Mapping[str, Listing]) -> Column:
    """The time until which the list of a domain's files is complete; the row needs ``domain`` and ``latest``. A run
    that began later may have no file in the list, and a file may have been read before its run went on.

    It is the moment of the listing. A clock of this host that is far behind must not hide anything: then it is the last
    wall of all records minus the time in which they were read.
    """
    until = F.lit(FOREVER)
    for domain, each in sorted(listed.items()):
        moment = F.greatest(F.lit(each.wall), F.col("latest") - each.took)
        until = F.when(F.col("domain") == domain, moment).otherwise(until)
    return until


def closed_at_most(domains: DataFrame, until: Mapping[str, int]) -> DataFrame:
    """The domains, whose windows are closed ``until`` these times at the latest. A follower knows of runs of which the
    pipeline has no record yet.
    """
    if not until:
        return domains
    limit = F.lit(FOREVER)
    for domain, end in sorted(until.items()):
        limit = F.when(F.col("domain") == domain, F.lit(end)).otherwise(limit)
    return domains.withColumn("closed_until", F.least("closed_until", limit))


def with_torn_ends(runs: DataFrame, torn: DataFrame | None) -> DataFrame:
    """The runs, with a gap at the end of those whose last record is one (``last``) of ``torn``."""
    if torn is None:
        return runs
    in_order = Window.partitionBy("domain", "side", "name", "host").orderBy("first_wall", "run")
    after = F.lead("first_wall").over(in_order)
    until = F.coalesce(F.when(after > F.col("last_wall"), after), F.lit(FOREVER))
    ends = torn.groupBy(*RUN).agg(F.max("last").alias("torn"))
    at_end = F.coalesce((F.col("torn") == F.col("last_number")) & ~F.col("ended"), F.lit(False))
    gaps = F.when(at_end, F.concat("gaps", F.array(_end_gap(until)))).otherwise(F.col("gaps"))
    return runs.join(lookup(ends), RUN, "left").withColumn("gaps", gaps).drop("torn")


def _end_gap(until: Column) -> Column:
    """A gap after the last record of a run, up to the time ``until``."""
    return F.struct(
        F.col("last_number").alias("lo"),
        F.col("last_wall").alias("lo_wall"),
        F.lit(FOREVER).alias("hi"),
        until.alias("hi_wall"),
    )
