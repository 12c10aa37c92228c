"""A delivery counts once, with or without a record of its publication. The oracle is tested; the pipeline equals it."""

import random
from collections.abc import Sequence

import pytest

from pubsub_lib.journal.rows import Row
from tests.unit.audit.generator import BOUND, GRACE, SILENCE, WINDOW, Generator
from tests.unit.audit.oracle import Oracle

JOURNALS = 200


def expected(rows: Sequence[Row]) -> int:
    return len(Oracle(rows, WINDOW, GRACE, BOUND, SILENCE).delivery())


@pytest.mark.long
def test_missing_records_of_sending_do_not_change_the_number_of_deliveries() -> None:
    """The seeds are fixed, because a replica that begins at the horizon may expect a commit but not its publication."""
    compared = 0
    for seed in range(JOURNALS):
        rng = random.Random(seed)
        generator = Generator(rng, 0.0)
        generator.hosts = dict.fromkeys(generator.hosts, 0)
        rows = generator.rows()
        sent = [row for row in rows if row.outcome == "sent"]
        if not sent:
            continue
        gone = {(row.run, row.number) for row in rng.sample(sent, rng.randint(1, len(sent)))}
        holed = [row for row in rows if (row.run, row.number) not in gone]
        assert expected(holed) == expected(rows), f"seed {seed}: {len(gone)} of {len(sent)} records are missing"
        compared += 1
    assert compared > JOURNALS / 2
