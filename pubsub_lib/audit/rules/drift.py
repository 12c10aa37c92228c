"""Compares the clocks of long journals again and again, because clocks drift (audit-verdicts.md, "Drift")."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.clocks import Clock, Clocks, Comparison, Span, length_of, span_of
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.arrow_tables import small
from pubsub_lib.audit.spark.settled import lookup

_OF_CLOCK: Final = pa.schema(
    [
        ("domain", pa.string()), ("mine", pa.int64()), ("group", pa.int64()), ("drifts", pa.bool_()),
        ("first", pa.int64()), ("last", pa.int64()),
    ]
)  # fmt: skip
"""``first``, ``last``: the begins of the second and of the last piece."""
_ORDER: Final = ("trip", "run", "number", "reply_run", "reply_number", "ask_number")


def correct(
    compared: DataFrame, found: Mapping[str, Clocks], numbers: Mapping[str, Sequence[Clock]], settings: AuditSettings
) -> None:
    """Compare the clocks again for their later pieces. ``numbers``: the clocks of each domain in the order of their
    numbers. Blocks for a small job if a clock has more than one piece.
    """
    begins = {domain: one.begins(length_of(settings)) for domain, one in found.items()}
    if not any(begins.values()):
        return
    table = small(compared.sparkSession, _clocks(found, numbers, begins), _OF_CLOCK)
    best: dict[str, list[Comparison]] = defaultdict(list)
    for row in _preferred(compared, lookup(table), settings).collect():
        of_domain = numbers[row["domain"]]
        run, number, reply_run, reply_number, ask_number = (row["best"][name] for name in _ORDER[1:])
        order = run, number, reply_run, reply_number, ask_number
        best[row["domain"]].append(
            Comparison(
                row["best"]["other_drifts"], row["best"]["trip"], order, of_domain[row["mine"]], row["begin"],
                of_domain[row["best"]["other"]], row["best"]["other_mono"], row["best"]["ahead"],
            )
        )  # fmt: skip
    for domain, one in found.items():
        one.compare_again(begins[domain], best[domain], span_of(settings).least)


def _clocks(
    found: Mapping[str, Clocks],
    numbers: Mapping[str, Sequence[Clock]],
    begins: Mapping[str, Sequence[tuple[Clock, int]]],
) -> list[dict[str, Any]]:
    rows = []
    for domain, one in found.items():
        of_clocks = defaultdict(list)
        for clock, begin in begins[domain]:
            of_clocks[clock].append(begin)
        for number, clock in enumerate(numbers[domain]):
            own = of_clocks[clock]
            each = {"mine": number, "group": one.group[clock], "drifts": clock not in one.timing}
            rows.append({"domain": domain, **each, "first": min(own, default=None), "last": max(own, default=None)})
    return rows


def _preferred(compared: DataFrame, clocks: DataFrame, settings: AuditSettings) -> DataFrame:
    """The preferred comparison of each piece."""
    span = span_of(settings)
    mine = _side("clock", "mono", "reply_clock", "reply_mono", F.col("ahead"))
    theirs = _side("reply_clock", "reply_mono", "clock", "mono", -F.col("ahead"))
    sides = compared.filter(F.col("trip") <= span.trip).select(
        "domain", *_ORDER, F.explode(F.array(mine, theirs)).alias("side")
    )
    sides = sides.select("domain", *_ORDER, "side.*").join(clocks, ["domain", "mine"])
    other = clocks.select(
        "domain", F.col("mine").alias("other"), F.col("group").alias("other_group"),
        F.col("drifts").alias("other_drifts"),
    )  # fmt: skip
    same = (F.col("group") == F.col("other_group")) & (F.col("mine") != F.col("other"))
    sides = sides.join(other, ["domain", "other"]).filter(same)
    sides = sides.withColumn("begin", F.explode(_begins(span, length_of(settings))))
    best = F.min(F.struct("other_drifts", *_ORDER, "other", "other_mono", "ahead"))
    return sides.groupBy("domain", "mine", "begin").agg(best.alias("best"))


def _begins(span: Span, length: int) -> Column:
    """The begins of the pieces for which a comparison counts: nearly always none or one."""
    mono, first = F.col("mine_mono"), F.col("first")
    early, late = mono + span.until - first, mono + span.since - first
    since = F.greatest(F.lit(0), early + F.pmod(-early, F.lit(length)))
    until = F.least(F.col("last") - first, late - F.pmod(late, F.lit(length)))
    some = F.when(since <= until, F.sequence(since, until, F.lit(length)))
    return F.transform(some, lambda each: first + each)


def _side(mine: str, mine_mono: str, other: str, other_mono: str, ahead: Column) -> Column:
    names = {"mine": mine, "mine_mono": mine_mono, "other": other, "other_mono": other_mono}
    return F.struct(*(F.col(column).alias(name) for name, column in names.items()), ahead.alias("ahead"))
