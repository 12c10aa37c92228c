"""When runs end: the pipeline agrees with the oracle about random runs of few participants."""

import random
from typing import TYPE_CHECKING

from pubsub_lib.audit.rules.run_ends import with_ends
from pubsub_lib.audit.settings import Listing
from pubsub_lib.journal.rows import Kind, Row, Side
from tests.unit.audit.conftest import SETTINGS
from tests.unit.audit.generator import BEGIN, BOUND, GRACE, SILENCE, WINDOW
from tests.unit.audit.oracle import Oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIDES: tuple[Side, ...] = ("replica", "replica", "service", "writer", "store")
COLUMNS = (
    "domain string, run string, side string, name string, host string, first_wall bigint, last_wall bigint, "
    "last_number bigint, ended boolean, gaps array<struct<lo:bigint,lo_wall:bigint,hi:bigint,hi_wall:bigint>>"
)


def lives(rng: random.Random, domain: str) -> list[Row]:
    """Runs of two records each; times are often equal, or as far apart as a limit."""
    found = []
    for index in range(rng.randint(1, 7)):
        side, name, host = rng.choice(SIDES), rng.choice("ab"), rng.choice("hi")
        first = BEGIN + rng.choice((0, GRACE, SILENCE, SILENCE + 1)) * rng.randrange(3)
        last = first + rng.choice((0, 1, GRACE - 1, GRACE, SILENCE, SILENCE + 1))
        kinds: tuple[Kind, Kind] = ("open", "close" if rng.random() < 0.2 else "mark")
        for number, (kind, wall) in enumerate(zip(kinds, (first, last), strict=True), 1):
            run = f"{domain}-{index}"
            found.append(
                Row(side=side, name=name, host=host, run=run, number=number, kind=kind, wall=wall, mono=wall)
            )  # fmt: skip
    return found


def test_over_and_expired_runs_are_those_of_the_oracle(little: "SparkSession") -> None:
    rng = random.Random(20261126)
    journals = {f"d{index}": lives(rng, f"d{index}") for index in range(300)}
    listed = {
        domain: Listing(BEGIN + rng.randrange(3 * SILENCE), rng.choice((0, SILENCE, 10 * SILENCE)))
        for domain in list(journals)[::3]
    }
    oracles = {
        domain: Oracle(
            rows, WINDOW, GRACE, BOUND, SILENCE,
            listed=(listed[domain].wall, listed[domain].took) if domain in listed else None,
        )
        for domain, rows in journals.items()
    }  # fmt: skip
    none: list[object] = []
    given = [
        (domain, run, first.side, first.name, first.host, first.wall, last.wall, 2, last.kind == "close", none)
        for domain, one in oracles.items()
        for run, (first, last) in one.runs.items()
    ]
    found = with_ends(little.createDataFrame(given, COLUMNS), listed, SETTINGS).collect()
    assert len(found) == len(given)
    seen = set()
    for row in found:
        one, run = oracles[row["domain"]], row["run"]
        assert (row["over"], row["expired"]) == (one.over(run), one.expired(run)), (row, one.runs[run])
        assert [(gap["lo"], gap["lo_wall"], gap["hi_wall"]) for gap in row["gaps"]] == [
            (lo, lo_wall, hi_wall) for lo, lo_wall, _, hi_wall in one.gaps(run)
        ]
        seen.add((row["side"], row["over"], row["expired"]))
    assert len(seen) == 3 * 4 + 2, seen  # a store is no participant, and does not expire
