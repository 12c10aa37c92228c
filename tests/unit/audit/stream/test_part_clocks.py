"""The times of parts of journals, by the clocks of the parts that have arrived."""

import random

import msgspec
import pyarrow as pa

from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.stream.intake import Begun, Coming
from pubsub_lib.audit.stream.part_clocks import COLUMNS, clocks_in, every_part, with_right_times
from pubsub_lib.audit.stream.runs import JournalPart, known
from pubsub_lib.journal.rows import Row
from tests.scale import scaled
from tests.unit.audit import drift_cases
from tests.unit.audit.arrivals import File, cut
from tests.unit.audit.clock_cases import CASES
from tests.unit.audit.generator import BEGIN, BOUND, GRACE, HOUR, SILENCE, WINDOW, Generator
from tests.unit.audit.oracle import Oracle
from tests.unit.audit.scenario import Scenario

SETTINGS = AuditSettings(WINDOW, GRACE, BOUND, SILENCE)
AHEAD = "the_clock_of_a_replica_is_an_hour_ahead"


def part_of(file: File) -> JournalPart:
    first, walls = file.rows[0], [row.wall for row in file.rows]
    marks = [row.wall for row in file.rows if row.kind == "mark"]
    clocks = clocks_in(pa.Table.from_pylist([{name: getattr(row, name) for name in COLUMNS} for row in file.rows]))
    return JournalPart(
        file.stem, first.run, int(file.stem[-6:]), first.side, first.name, first.host, True, first.number, min(walls),
        max(walls), max(marks, default=None), any(row.kind == "close" for row in file.rows), file.rows[-1].number,
        clocks=clocks,
    )  # fmt: skip


def participants(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.side != "store"]


def test_times_of_parts_are_those_of_the_oracle(rng: random.Random) -> None:
    journals = {name: build(Scenario(name)) for name, (build, _, _) in {**CASES, **drift_cases.CASES}.items()}
    for seed in rng.sample(range(2**32), scaled(5)):
        journals[f"d{seed}"] = Generator(random.Random(seed), 1.0, f"d{seed}", clocks=seed % 4 > 0).rows()
    for seed in range(scaled(5)):
        journals[f"drift{seed}"] = drift_cases.random_drift(random.Random(seed), f"drift{seed}")
    for name, rows in journals.items():
        one = Oracle(participants(rows), WINDOW, GRACE, BOUND, SILENCE)
        files = cut("", participants(rows), rng)
        right = with_right_times(known([part_of(file) for file in files], {}, frozenset()), SETTINGS)
        assert right.undecided == "", "no part is expected"
        for run, each in right.runs.items():
            assert each.first_wall == one.first_wall(run), name
            for part in each.parts:
                of_part = [row for row in one.runs[run] if part.first <= row.number <= part.last]
                walls, marks = [row.wall for row in of_part], [row.wall for row in of_part if row.kind == "mark"]
                found = (part.first_wall, part.last_wall, part.last_mark)
                assert found == (min(walls), max(walls), max(marks, default=None)), name


def ahead() -> dict[str, list[JournalPart]]:
    """The parts of the service's, writer's and replica's journals; one ends before the hello request."""
    files = cut("", participants(CASES[AHEAD][0](Scenario("d"))), random.Random(1), [BEGIN + 200])
    return {name: [part_of(file) for file in files if file.rows[0].name == name] for name in "wsr"}


def undecided(parts: list[JournalPart], *coming: str) -> str:
    unfinished = {run: Coming({9}) for run in coming}
    return with_right_times(known(parts, unfinished, frozenset()), SETTINGS).undecided


def test_windows_wait_for_the_first_comparison_of_a_clock() -> None:
    parts = ahead()
    early = [parts["w"][0], parts["s"][0], parts["r"][0]]
    _, service, replica = (each.run for each in early)
    assert undecided(early, replica) == replica
    assert undecided([*early, *parts["s"][1:]], replica) == replica, "it may have received the reply"
    assert undecided([*early, *parts["r"][1:]], service) == service
    assert undecided([each for of in parts.values() for each in of], replica) == ""
    assert undecided(early) == "", "no more parts are expected"


def test_begin_of_an_unfinished_run_is_by_the_clock_of_its_host() -> None:
    every = [each for of in ahead().values() for each in of]
    at = BEGIN + 500

    def first_wall(begun: Begun) -> int | None:
        there = known(every, {"new": Coming({1}, begun)}, frozenset())
        return with_right_times(there, SETTINGS).runs["new"].first_wall

    assert first_wall(Begun("replica", "r2", "h-far", at + HOUR, at + 77)) == at
    assert first_wall(Begun("replica", "r2", "h-new", at + HOUR, at + 77)) is None, "its clock is not known"
    assert first_wall(Begun("replica", "r2", "h-far", at + HOUR)) == at + HOUR, "of an earlier version"


def test_part_of_an_earlier_checkpoint_keeps_its_times() -> None:
    part = msgspec.structs.replace(ahead()["r"][0], clocks=None)
    right = with_right_times(known([part], {}, frozenset()), SETTINGS)
    assert every_part(right.runs.values(), [part]) == [part]
