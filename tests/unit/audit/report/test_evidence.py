"""An audit that reads for long misses no evidence that was there when it listed the folders, and expects no other."""

import random
import re

import pytest

from pubsub_lib.audit.report.evidence import Followed, evidence, problems
from pubsub_lib.audit.settings import Listing
from pubsub_lib.journal.rows import Row
from tests.unit.audit.conftest import LITTLE, SETTINGS, Audit
from tests.unit.audit.generator import BEGIN, BOUND, GRACE, SILENCE, WINDOW, Generator
from tests.unit.audit.oracle import Oracle
from tests.unit.audit.rules.test_pipeline import CASES
from tests.unit.audit.scenario import Scenario

HOUR = 3_600_000_000
ANSWERED = BEGIN + 2000


def judged(rows: list[Row], listed: Listing | None) -> Oracle:
    given = None if listed is None else (listed.wall, listed.took)
    return Oracle(rows, WINDOW, GRACE, BOUND, SILENCE, listed=given)


def begun_while_files_were_read() -> list[Row]:
    """A service answers a replica without a journal. Other participants go on for long."""
    world = Scenario("d")
    world.service.record(ANSWERED, kind="hello", peer="n1", uuid="u")
    world.follow()
    world.deliver(5)
    return world.rows()


@pytest.mark.parametrize(
    ("listed", "unknown"),
    [
        (None, ["n1"]),
        (Listing(ANSWERED + GRACE, HOUR), ["n1"]),
        (Listing(ANSWERED + GRACE - 1, HOUR), []),
        (Listing(0, 0), ["n1"]),  # the clock of the auditing host is far behind
    ],
)
def test_request_of_a_replica_that_began_after_the_listing_is_not_unknown(
    listed: Listing | None, unknown: list[str]
) -> None:
    assert judged(begun_while_files_were_read(), listed).unknown_requests() == unknown


def test_run_whose_file_was_read_long_before_the_last_one_is_not_silent() -> None:
    world = Scenario("d")
    world.follow()
    world.deliver(5)
    world.replica.end = BEGIN + 10_000  # its file was read then
    rows = [row for row in world.rows() if row.run != world.replica.run or row.kind != "close"]
    assert judged(rows, None).silent() == [world.replica.run]
    assert judged(rows, Listing(BEGIN + 10_000, HOUR)).silent() == []
    assert judged(rows, Listing(BEGIN + 10_001 + SILENCE, HOUR)).silent() == [world.replica.run]


@pytest.mark.long
def test_pipeline_and_oracle_agree_about_the_listing(audit: Audit) -> None:
    rng = random.Random(1)
    journals = {f"d{seed}": Generator(random.Random(seed), 1.0, f"d{seed}").rows() for seed in range(40)}
    journals |= {f"x{index}": begun_while_files_were_read() for index in range(4)}
    walls = {domain: sorted(row.wall for row in rows) for domain, rows in journals.items()}
    listed = {
        domain: Listing(
            rng.choice([0, rng.choice(of), of[-1] + GRACE]), rng.choice([0, rng.randrange(2 * WINDOW), HOUR])
        )
        for domain, of in walls.items()
        if rng.random() < 0.8
    }
    listed |= {f"x{index}": Listing(ANSWERED + GRACE - index % 2, HOUR) for index in range(4)}
    found = evidence(audit(journals, LITTLE, listed), SETTINGS, listed=listed)
    oracles = {domain: judged(rows, listed.get(domain)) for domain, rows in journals.items()}
    assert found.silent == sorted(run for one in oracles.values() for run in one.silent())
    for part, count in (("are in no replica's", Oracle.unknown_requests), ("came while", Oracle.hidden_requests)):
        sentence = re.compile(rf"(\d+) answered hello requests of (\S+) \(first: \S+\) {part} ")
        reported = {each[2]: int(each[1]) for each in map(sentence.match, found.problems) if each}
        assert reported == {domain: len(of) for domain, one in oracles.items() if (of := count(one))}
    without = {domain: judged(rows, None) for domain, rows in journals.items()}
    assert sum(len(one.silent()) for one in oracles.values()) < sum(len(one.silent()) for one in without.values())


@pytest.mark.long
def test_follower_counts_what_is_missing_in_its_closed_windows_only(audit: Audit) -> None:
    """And not what a file that it has not read yet may have."""
    names = (
        "one_of_two_replicas_has_no_journal", "journals_of_two_databases_in_one_folder", "no_replica_has_a_journal",
        "only_the_sending_half_of_a_relay_has_a_journal", "two_replicas_share_a_name",
    )  # fmt: skip
    tables = audit({name: CASES[name][0](Scenario(name)) for name in names}, LITTLE)
    end = BEGIN + 10 * HOUR

    def kinds(until: int, *begun: tuple[str, str]) -> set[tuple[str, str]]:
        found = problems(tables, SETTINGS, {name: Followed(until, begun) for name in names})
        assert all(f" of {each.domain}" in each.sentence for each in found)
        return {(each.domain, each.kind) for each in found}

    requests = {(names[0], "requests"), (names[3], "requests")}
    of_all = requests | {*zip(names[1:], ("databases", "no replica", "no replica", "overlap"), strict=True)}
    assert kinds(end) == of_all
    assert kinds(BEGIN) == of_all - requests - {(names[1], "databases")}
    assert kinds(end, ("service", "r")) == of_all
    assert kinds(end, ("replica", "r")) == of_all - {(names[2], "no replica"), (names[3], "no replica")}
