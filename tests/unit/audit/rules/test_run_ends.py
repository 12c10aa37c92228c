"""When runs end: the pipeline agrees with the oracle about random runs of few participants."""

import random
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest

from pubsub_lib.audit.rules.run_ends import closed_at_most, with_ends
from pubsub_lib.audit.settings import AuditSettings, Listing
from pubsub_lib.journal.rows import Kind, Row, Side
from tests.unit.audit.conftest import LITTLE, MUCH, SETTINGS, Audit
from tests.unit.audit.generator import BEGIN, BOUND, GRACE, SILENCE, WINDOW
from tests.unit.audit.growing import accused, belated, growing, oracle
from tests.unit.audit.oracle import Oracle, Stray, Verdict
from tests.unit.audit.scenario import Scenario

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


def test_no_window_is_closed_later_than_a_follower_knows(little: "SparkSession") -> None:
    """Else a commit of a service whose files were not read yet would count as unpublished."""
    domains = little.createDataFrame([("a", 100), ("b", 30), ("c", 100)], "domain string, closed_until bigint")
    found = closed_at_most(domains, {"a": 50, "b": 50}).collect()
    assert {row["domain"]: row["closed_until"] for row in found} == {"a": 50, "b": 30, "c": 100}
    assert closed_at_most(domains, {}) is domains


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


LONG = msgspec.structs.replace(SETTINGS, bound=8 * GRACE)
"""Settings as the default ones are: a change may take longer than messages do."""


@pytest.mark.quick_variants("short")
@pytest.mark.parametrize("settings", [SETTINGS, LONG], ids=["short", "long"])
@pytest.mark.parametrize("took", [GRACE, 8 * WINDOW])
def test_nothing_is_accused_whose_evidence_comes_after_the_reading(settings: AuditSettings, took: int) -> None:
    """By the oracle. What is accused while journals grow is accused by all of them, too, or came belatedly."""
    pending = 0
    for seed, rows, read, listed in growing(range(120), took):
        now, later = oracle(read, settings, listed), oracle(rows, settings)
        assert accused(now) - accused(later) <= belated(later), seed
        pending += sum(row.verdict == "pending" for row in now.delivery())
    assert pending > 100


@pytest.mark.long
@pytest.mark.parametrize("size", [LITTLE, MUCH])
def test_growing_journals_have_the_verdicts_of_the_oracle(audit: Audit, size: int) -> None:
    read, listed = {}, {}
    for took in (0, GRACE, 8 * WINDOW):
        for seed, _, rows, moment in growing(range(15), took):
            read[f"d{seed}-{took}"], listed[f"d{seed}-{took}"] = rows, moment
    tables = audit(read, size, listed)
    found = {
        kind: Counter(tuple(row) for row in table.select("domain", *kind._fields).collect())
        for kind, table in ((Verdict, tables.delivery), (Stray, tables.strays))
    }
    oracles = {domain: oracle(rows, SETTINGS, listed[domain]) for domain, rows in read.items()}
    expected = [(domain, *row) for domain, one in oracles.items() for row in one.delivery()]
    assert found[Verdict] == Counter(expected)
    assert found[Stray] == Counter((domain, *row) for domain, one in oracles.items() for row in one.strays())
    assert sum(row[9] == "pending" for row in expected) > 30


def lost_so_far(world: Scenario, until: int) -> list[Row]:
    """A message is lost, and the replica still runs ``until`` this time after it."""
    world.follow()
    world.deliver(3)
    world.publish()
    world.last = world.time + until - 4000
    return world.rows(close=False, store=False)


def killed_for_good(world: Scenario, until: int) -> list[Row]:
    """The same, but then the replica is killed, and the others go on."""
    world.replica.end = world.time + 4 * 100 + until
    return lost_so_far(world, LONG.reach + 3 * WINDOW)


@pytest.mark.long
def test_loss_is_pending_until_the_bound_and_unknown_when_the_replica_was_killed_before(audit: Audit) -> None:
    until = {"early": 2 * WINDOW + GRACE, "late": LONG.reach + 2 * WINDOW}
    cases = {
        **{f"{name}-alive": lost_so_far(Scenario(f"{name}-alive"), time) for name, time in until.items()},
        "killed-before": killed_for_good(Scenario("killed-before"), LONG.bound - 2000),
        "killed-after": killed_for_good(Scenario("killed-after"), LONG.bound + 2000),
    }
    expected = {"early-alive": "pending", "late-alive": "lost", "killed-before": "unknown", "killed-after": "lost"}
    by_oracle = {name: oracle(rows, LONG).delivery() for name, rows in cases.items()}
    assert {name: {row.verdict for row in rows} - {"ok"} for name, rows in by_oracle.items()} == {
        name: {verdict} for name, verdict in expected.items()
    }
    found = audit(cases, LITTLE, settings=LONG).delivery.filter("verdict != 'ok'").select("domain", "verdict").collect()
    assert {row["domain"]: row["verdict"] for row in found} == expected
