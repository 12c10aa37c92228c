"""The publishers and workers that the store contradicted (audit.md, "Tables")."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

VERDICT: Final = "contradicted"


def contradictions(events: DataFrame) -> DataFrame:
    """One row per record of a replica or a service: the publisher ``uuid`` led it to ``position``, which the store does
    not contain. ``to_position``: where the chain continued; 0 in a service's record.
    """
    return events.filter(F.col("kind") == VERDICT).select(
        "domain", "side", "name", "run", "uuid", "topic", "position", F.col("prev_position").alias("to_position"),
        "cause", "wall", F.lit(VERDICT).alias("verdict"),
    )  # fmt: skip
