"""A follower gives each closed window the verdicts of the batch, in any order of files, also after it was killed."""

import errno
import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from pubsub_lib import failpoints
from pubsub_lib.audit.ingest.run_ends import run_and_part
from pubsub_lib.audit.main import main
from pubsub_lib.audit.report.summary import Balance, Count, Problem
from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.audit.stream.intake import Begun, Coming, Intake, Look
from pubsub_lib.audit.stream.judge import Judge, Judged
from pubsub_lib.audit.stream.loop import AuditLoop, State
from pubsub_lib.audit.stream.part_clocks import COLUMNS, clocks_in
from pubsub_lib.audit.stream.runs import JournalPart
from pubsub_lib.audit.stream.tables import Stream, WindowRows
from pubsub_lib.audit.stream.windows import Closed, Span, place_of, written
from pubsub_lib.journal.reading import read
from pubsub_lib.journal.rows import Row
from tests.conftest import SEED_VARIABLE
from tests.scale import scaled
from tests.unit.audit import drift_cases, late_cases, lie_cases, restore_cases
from tests.unit.audit.arrivals import Arrivals, File, cut, true_time
from tests.unit.audit.generator import BEGIN, TORN, Generator
from tests.unit.audit.oracle import Oracle, Stray, Verdict
from tests.unit.audit.rules.test_pipeline import KNOWN, SKEWED, Kinds, all_cases
from tests.unit.audit.tree import random_tree, with_gaps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW, GRACE, BOUND, SILENCE = 10_000, 6_000, 3_000, 25_000
"""Twice the grace exceeds the maximum clock difference of generated journals."""
SETTINGS = AuditSettings(WINDOW, GRACE, BOUND, SILENCE)
DOMAINS = scaled(4, "PUBSUB_TEST_DOMAINS")
"""Number of generated journals that go through the real command in one run of the tests, beside all known answers. With
more than 100 there is one more restart, progress is printed, and the journals also go through ``pubsub-audit run``. See
docs/contributing/audit-internals.md, "How it is tested".
"""
JOURNALS = scaled(15, "PUBSUB_TEST_JOURNALS")
"""Number of generated journals that are cut; set it to 1000 for all of them (a minute and a half)."""
MANY = 100
TREES = 5
"""The remainder of seeds of journals with relays."""
CLOCKS = 3
"""The remainder of seeds of journals whose clocks are far apart."""
OF_THE_STORE = {
    "missing", "stale", "wrong_value", "zombie", "foreign_history", "behind", "unpublished", "phantom_publish",
    "phantom_commit", "chain_broken", "diverged", "rot",
}  # fmt: skip
UNSEEN = {("unknown", "", ""), ("lost", "", "writer"), ("pending", "", ""), ("corrupt", "writer", "")}
"""A phantom publication, a commit that only the store has recorded, an item without a closed window, and a content that
only the store shows otherwise."""
SECONDS = [
    each
    for name, value in (("window", WINDOW), ("grace", GRACE), ("bound", BOUND), ("silence", SILENCE))
    for each in (f"--{name}", f"{value / SECOND}")
]
Kept = Counter[tuple[str, int, Verdict | Stray]]


def without_store(rows: Sequence[Row]) -> list[Row]:
    """The rows without those of the store, which a follower does not read."""
    return [row for row in rows if row.side != "store"]


def generated(seed: int) -> list[Row]:
    if seed % 6 == TREES:
        rng = random.Random(seed)
        return without_store(with_gaps(rng, random_tree(rng, f"d{seed}").rows()))
    one = Generator(random.Random(seed), 0.0 if seed % 5 == 0 else 1.0, f"d{seed}", clocks=seed % 4 == CLOCKS)
    return without_store(one.rows())


def known_answers() -> dict[str, list[Row]]:
    return {name: without_store(rows) for name, rows in all_cases().items()}


def verdicts_of_oracle(cases: Mapping[str, Sequence[Row]]) -> Kept:
    """The oracle's verdicts of the windows that a follower closes when it has all files."""
    found: Kept = Counter()
    for domain, rows in cases.items():
        one = Oracle(rows, WINDOW, GRACE, BOUND, SILENCE, TORN)
        for verdict, time in one.timed():
            window = time // WINDOW * WINDOW
            if window + WINDOW <= one.closed_until():
                found[domain, window, verdict] += 1
    return found


def verdicts_of_follower(out: Path) -> Kept:
    """Of the last revisions."""
    found: Kept = Counter()
    for closed in written(out):
        for path in sorted(place_of(out, *closed.key, closed.revision).glob("*/*.parquet")):
            kind: type[Verdict | Stray] = Verdict if path.parent.name == "delivery" else Stray
            for row in pq.read_table(path, partitioning=None).to_pylist():
                assert row["domain"] == closed.domain
                found[row["domain"], closed.window, kind(*[row[name] for name in kind._fields])] += 1
    return found


BELATED = {"late", "corrupt", "duplicate_applied", "stale_applied"}
"""What a loss may turn out to be."""


def changed(then: Kept, now: Kept, *, part: bool = False) -> list[object]:
    """The differences of later verdicts, apart from losses that turned out to be belated, and late repairs of which a
    message came after all. ``part``: the earlier ones are of a part of the windows.
    """
    gone, new = then - now, now - then
    lost = Counter({of: gone[of] for of in gone if may_turn(of[-1])})
    came = Counter({of: new[of] for of in new if of[-1].verdict in BELATED})
    found: list[object] = [*(gone - lost), *(by_item(lost) - by_item(came))]
    if not part:
        found += [*(new - came), *(by_item(came) - by_item(lost))]
    return found


def may_turn(row: Verdict | Stray) -> bool:
    return row.verdict == "lost" or (isinstance(row, Verdict) and (row.verdict, row.way) == ("late", "repair"))


def by_item(verdicts: Kept) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for (domain, window, row), number in verdicts.items():
        found[(domain, window, *row[:8])] += number
    return found


class Bench:
    """A follower that can be started again."""

    def __init__(self, spark: "SparkSession", root: Path, folders: Mapping[str, Sequence[Path]]) -> None:
        self.spark, self.out, self.checkpoint, self.folders = spark, root / "out", root / "checkpoint", folders
        self.out.mkdir()
        self.checkpoint.mkdir()

    def start(self, judge: Judge) -> AuditLoop:
        stream = Stream(self.spark, self.checkpoint)
        intake = Intake(self.folders, stream.spool, patience=1e9)
        return AuditLoop(stream, intake, judge, SETTINGS, self.checkpoint, lambda: 2**50)


@pytest.mark.long
@pytest.mark.parametrize("kill", [False, True])
def test_every_closed_window_is_as_in_the_batch(
    kill: bool, spark: "SparkSession", tmp_path: Path, rng: random.Random, capfd: pytest.CaptureFixture[str]
) -> None:
    """All known answers and random faults, through the command: early verdicts do not change, and in the end none is
    missing. ``kill``: the first follower is a process that is killed between two windows of its round.
    """
    begin = monotonic()
    seeds = rng.sample(range(2**32), DOMAINS)
    cases = known_answers() | {f"d{seed}": generated(seed) for seed in seeds}
    moments = [BEGIN + 35_000, BEGIN + 45_000] if DOMAINS > MANY else [BEGIN + 45_000]
    arrivals = Arrivals(tmp_path / "journals", cases, rng, sorted(cases)[::2], moments)
    folders = [f"{domain}={folder}" for domain, (folder,) in arrivals.folders.items()]
    truth = verdicts_of_oracle(cases)
    command = ["follow", *folders, "--out", str(tmp_path / "out"), "--once", "--patience", "1e9", *SECONDS]
    earlier: Kept = Counter()
    for moment in moments:
        arrivals.come(moment, moment + GRACE, 0.9)
        if kill and moment == moments[0]:
            turn = rng.randrange(2, MANY) if DOMAINS > MANY else 4
            killed(command, tmp_path, "follower.before_window=kill", turn)
            assert len(written(tmp_path / "out")) == turn - 1
        else:
            assert main(command) & 64 == 0
        early = verdicts_of_follower(tmp_path / "out")
        assert not changed(early, truth, part=True)
        assert earlier.total() < early.total()
        earlier = early
        print_progress(capfd, f"{early.total()} verdicts after {monotonic() - begin:.0f} s")
    arrivals.all_come()
    assert main(command) & 64 == 0
    found = verdicts_of_follower(tmp_path / "out")
    assert found == truth, (list((found - truth).items())[:5], list((truth - found).items())[:5])
    assert earlier.total() < found.total()
    as_known(found)
    assert "arrived after windows" not in capfd.readouterr().err
    verdicts = Counter(each.verdict for _, _, each in found.elements())
    windows = len(written(tmp_path / "out"))
    print_progress(
        capfd,
        f"seed {os.environ[SEED_VARIABLE]}: {len(cases)} journals, {windows} windows, {found.total()} verdicts after "
        f"{monotonic() - begin:.0f} s, all as the oracle's: {dict(verdicts.most_common())}",
    )
    if DOMAINS > MANY:
        as_by_run(folders, tmp_path / "batch", cases)
        print_progress(capfd, f"by run, too, after {monotonic() - begin:.0f} s")


@pytest.mark.long
def test_loss_that_turns_out_to_be_belated_revises_its_window(
    spark: "SparkSession", tmp_path: Path, rng: random.Random
) -> None:
    """Through the command: the replicas go on after the windows of what they missed were closed."""
    cases = {name: rows for name, rows in known_answers().items() if name in late_cases.CASES}
    moment = BEGIN + 28_000
    arrivals = Arrivals(tmp_path / "journals", cases, rng, cases, [moment])
    folders = [f"{domain}={folder}" for domain, (folder,) in arrivals.folders.items()]
    command = ["follow", *folders, "--out", str(tmp_path / "out"), "--once", "--patience", "1e9", *SECONDS]
    truth = verdicts_of_oracle(cases)
    arrivals.come(moment, moment + GRACE)
    assert main(command) & 64 == 0
    early = verdicts_of_follower(tmp_path / "out")
    assert not changed(early, truth, part=True)
    assert early - truth
    arrivals.all_come()
    assert main(command) & 64 == 0
    assert verdicts_of_follower(tmp_path / "out") == truth
    revised = {each.domain for each in written(tmp_path / "out") if each.revision == 2}
    assert {domain for domain, _, _ in early - truth} == revised
    assert all(place_of(tmp_path / "out", domain, BEGIN).exists() for domain in revised)
    before = written(tmp_path / "out")
    assert main(command) & 64 == 0
    assert written(tmp_path / "out") == before


def print_progress(capfd: pytest.CaptureFixture[str], sentence: str) -> None:
    """Print the progress of a long run."""
    if DOMAINS > MANY:
        with capfd.disabled():
            print(f"\n{sentence}", flush=True)


def as_known(found: Kept) -> None:
    """Check each known answer, except for verdicts that need the store's journal, and for open windows. Those after a
    restore or a lie need the commits, which it has; the oracle without it has judged them, too.
    """
    kinds: dict[str, Kinds] = defaultdict(dict)
    for (domain, _, each), number in found.items():
        kind = (each.verdict, each.detail, each.blame) if isinstance(each, Verdict) else (each.verdict, "", "")
        if each.verdict != "ok":
            kinds[domain][kind] = kinds[domain].get(kind, 0) + number
    of_the_store = {*restore_cases.CASES, *lie_cases.CASES}
    answers = {name: wanted for name, (_, wanted, _) in KNOWN.items() if name not in of_the_store}
    for name, wanted in {**answers, "skew-5000": SKEWED, "skew0": SKEWED, "skew5000": SKEWED}.items():
        seen = {kind: n for kind, n in wanted.items() if n and kind[0] not in OF_THE_STORE and kind not in UNSEEN}
        assert kinds[name] == seen, name


def killed(command: Sequence[str], tmp_path: Path, failpoint: str, turn: int) -> None:
    """Run a follower in a process that is killed in the middle of a round, when it hits the failpoint for the
    ``turn``-th time: it has not saved that windows are closed.
    """
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), failpoints.VARIABLE: f"{failpoint}@{turn}"}
    program = [sys.executable, "-m", "pubsub_lib.audit.main", *command, "--master", "local[2]"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    state = msgspec.json.decode((tmp_path / "out" / "checkpoint" / "state.json").read_bytes(), type=State)
    assert not state.closed
    assert state.closing


def as_by_run(folders: Sequence[str], out: Path, cases: Mapping[str, Sequence[Row]]) -> None:
    """Check that the batch over the same files gives the oracle's verdicts."""
    assert main(["run", *folders, "--out", str(out), *SECONDS]) & 64 == 0
    found: Counter[tuple[str, Verdict | Stray]] = Counter()
    for name, kind in (("delivery", Verdict), ("strays", Stray)):
        for row in pq.read_table(out / name).to_pylist():
            found[row["domain"], kind(*[row[column] for column in kind._fields])] += 1
    truth: Counter[tuple[str, Verdict | Stray]] = Counter()
    for domain, rows in cases.items():
        one = Oracle(rows, WINDOW, GRACE, BOUND, SILENCE, TORN)
        truth.update((domain, each) for each, _ in one.timed())
    assert found == truth, (list((found - truth).items())[:5], list((truth - found).items())[:5])


def oracle_judge(out: Path) -> Judge:
    """A cheap replacement of the pipeline's judge: windows have one row for each count of the oracle."""

    def judge(files: Mapping[str, Sequence[Path]], spans: Mapping[str, Span]) -> Judged:
        found = []
        for domain, span in spans.items():
            rows = [row for path in files[domain] for row in read(path)]
            counted: dict[int, Counter[Verdict | Stray]] = defaultdict(Counter)
            for verdict, time in Oracle(rows, WINDOW, GRACE, BOUND, SILENCE, TORN).timed():
                window = time // WINDOW * WINDOW
                if (span.begin is None or window >= span.begin) and window + WINDOW <= span.end:
                    counted[window][verdict] += 1
            for window, verdicts in sorted(counted.items()):
                target = place_of(out, domain, window)
                if not target.exists():
                    counts = [(Count(domain, "delivery", str(key), "", "", n), False) for key, n in verdicts.items()]
                    closed = Closed(domain, window, 0, Balance(), 0, [count for count, _ in counts])
                    beside = target.with_name(f".{target.name}")
                    beside.mkdir(parents=True, exist_ok=True)
                    (beside / "summary.json").write_bytes(msgspec.json.encode(closed))
                    beside.rename(target)
                    found.append(closed)
        return Judged(found)

    return judge


class Killed(Exception):
    """Stands for SIGKILL: no code catches it."""


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A counter of renames that succeed; the next rename raises ``Killed``. ``[]``: no limit."""
    left: list[int] = []
    rename, replace = Path.rename, Path.replace

    def mortal(real: Callable[..., Path]) -> Callable[..., Path]:
        def move(self: Path, target: Path) -> Path:
            if left:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
            return real(self, target)

        return move

    monkeypatch.setattr(Path, "rename", mortal(rename))
    monkeypatch.setattr(Path, "replace", mortal(replace))
    return left


@pytest.mark.long
def test_follower_resumes_after_a_kill_at_any_rename(spark: "SparkSession", tmp_path: Path, dying: list[int]) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    cases = {"clean": known_answers()["clean"], "d1": generated(1), "d2": generated(2)}
    truth = verdicts_of_oracle(cases)
    arrivals = Arrivals(tmp_path / "journals", cases, rng)
    bench = Bench(spark, tmp_path, arrivals.folders)
    kills = 0
    for end in (BEGIN + 30_000, BEGIN + 45_000, 2**62):
        arrivals.come(end, end + GRACE)
        for lives in (rng.randrange(12), rng.randrange(3), None):
            loop = bench.start(oracle_judge(bench.out))
            dying[:] = [] if lives is None else [lives]
            try:
                loop.round(last=end == 2**62)
            except (Killed, StreamingQueryException):
                kills += 1
            finally:
                dying.clear()
                loop.close()
    assert kills
    found: Counter[tuple[str, int, str]] = Counter()
    for closed in written(bench.out):
        found.update({(closed.domain, closed.window, each.verdict): each.count for each in closed.counts})
    assert found == {(domain, window, str(key)): n for (domain, window, key), n in truth.items()}


class Given:
    """Stands for a stream and an intake: the parts of journals that have arrived, by a table of runs."""

    def __init__(self) -> None:
        self.parts_there: list[JournalPart] = []
        self.coming: dict[str, Coming] = {}
        self.notes: list[str] = []

    def look(self) -> Look:
        return Look(0, {"": self.coming}, {}, [])

    def save(self) -> None: ...

    def advance(self) -> None: ...

    def parts(self, given_up: object) -> WindowRows:
        return WindowRows({"": self.parts_there}, {}, [])

    def noted(self) -> list[str]:
        notes, self.notes = self.notes, []
        return notes

    def files(self, domain: str, parts: object) -> tuple[list[Path], list[str]]:
        return [], []

    def arrive(self, run: str, name: str, last: int, *, number: int = 1, begin: int = BEGIN) -> None:
        stem = f"{run}-{number:06d}"
        part = JournalPart(stem, run, number, "replica", name, "h", True, number, begin, last, last, False)
        self.parts_there.append(part)


def test_follower_names_an_expected_participant_once_until_its_journal_arrives(tmp_path: Path) -> None:
    given = Given()
    expected = [("replica", "there"), ("replica", "later"), ("writer", "never")]

    def start() -> AuditLoop:
        return AuditLoop(
            given, given, lambda *_: Judged([]), SETTINGS, tmp_path, lambda: 2**50, expected  # type: ignore[arg-type]
        )  # fmt: skip

    def named(problems: Sequence[str]) -> list[str]:
        return [each.partition(" is expected")[0] for each in problems]

    loop = start()
    given.arrive("a", "there", BEGIN + 100)
    assert named(loop.round().problems) == [], "no window is closed"
    assert named(loop.problems) == ["the replica later", "the writer never"]
    given.arrive("a", "there", BEGIN + 5 * WINDOW, number=2, begin=BEGIN + 101)
    assert named(loop.round().problems) == ["the replica later", "the writer never"]
    given.arrive("a", "there", BEGIN + 9 * WINDOW, number=3, begin=BEGIN + 5 * WINDOW + 1)
    assert named(loop.round().problems) == []
    given.arrive("b", "later", BEGIN + 10 * WINDOW, begin=BEGIN + 9 * WINDOW)
    assert named(loop.round().problems) == []
    assert named(loop.problems) == ["the writer never"]
    loop.close()
    loop = start()
    assert named(loop.problems) == [], "it is not in the state"
    assert named(loop.round(last=True).problems) == ["the writer never"]
    loop.close()


def test_follower_names_missing_evidence_of_a_kind_once_while_it_is_missing(tmp_path: Path) -> None:
    given = Given()
    missing: list[Problem] = []
    begun: list[object] = []

    def judge(_: object, spans: Mapping[str, Span]) -> Judged:
        begun.append(spans[""].begun)
        return Judged([], missing)

    def start() -> AuditLoop:
        return AuditLoop(given, given, judge, SETTINGS, tmp_path, lambda: 2**50)  # type: ignore[arg-type]

    def closing(number: int) -> Sequence[str]:
        """The new problems of a round that closes windows."""
        given.arrive("a", "there", BEGIN + 5 * number * WINDOW, number=number, begin=BEGIN + 5 * (number - 1) * WINDOW)
        return loop.round().problems

    loop = start()
    missing[:] = [Problem("", "requests", "2 requests"), Problem("", "databases", "2 databases")]
    assert closing(1) == ["2 requests", "2 databases"]
    assert loop.round().problems == []
    missing[:] = [Problem("", "requests", "3 requests"), Problem("", "begin", "1 begin")]
    assert closing(2) == ["1 begin"]
    assert loop.problems == ["3 requests", "1 begin"]
    loop.close()
    loop = start()
    assert loop.problems == ["3 requests", "1 begin"]
    given.coming = {"b": Coming({1}, Begun("relay", "r1", "h", BEGIN + 90 * WINDOW))}
    missing[:] = []
    assert closing(3) == []
    assert begun == [frozenset(), frozenset(), {("relay", "r1")}]
    assert loop.problems == []
    loop.close()


def test_follower_names_a_run_that_expired_and_one_that_comes_back(tmp_path: Path) -> None:
    given = Given()
    spans: list[Mapping[str, Span]] = []

    def judge(_: object, closed: Mapping[str, Span]) -> Judged:
        spans.append(closed)
        return Judged([])

    def start() -> AuditLoop:
        return AuditLoop(given, given, judge, SETTINGS, tmp_path, lambda: 2**50)  # type: ignore[arg-type]

    loop = start()
    given.arrive("a", "dead", BEGIN + 100)
    given.arrive("b", "alive", BEGIN + 100 + SILENCE)
    found = loop.round()
    assert (found.problems, found.waiting) == ([], {"": ("a", BEGIN + 100)})
    given.arrive("b", "alive", BEGIN + 9 * WINDOW, number=2, begin=BEGIN + 101 + SILENCE)
    found = loop.round()
    (sentence,) = found.problems
    assert sentence.startswith("the run a of the replica dead has not ended, and wrote nothing for 0.025 seconds; ")
    assert found.waiting == {"": ("b", BEGIN + 9 * WINDOW)}
    assert [each[""].end for each in spans] == [BEGIN + 7 * WINDOW]
    assert loop.round().problems == []
    given.coming = {"a": Coming({1})}
    assert loop.round().problems == [], "its file is copied again"
    given.coming = {}
    loop.close()
    loop = start()
    given.arrive("c", "dead", BEGIN + 9 * WINDOW, begin=BEGIN + 9 * WINDOW)  # it comes back after the silence
    assert loop.round().problems == []
    given.arrive("a", "dead", BEGIN + 9 * WINDOW, number=2, begin=BEGIN + 8 * WINDOW)
    (sentence,) = [each for each in loop.round().problems if "arrived after" not in each]
    assert sentence.startswith("the run a goes on, or another took its place, after windows were closed without it; ")
    loop.close()


class Failing(Given):
    """One step of the next round fails: ``advance``, ``parts`` (it began to read all again), ``judge``, or ``state``
    (its disk is full).
    """

    def __init__(self) -> None:
        super().__init__()
        self.fails = ""
        self.found: list[str] = []
        self.new = self.unread = 0
        self.judged: list[tuple[int | None, int]] = []

    def arrive(self, run: str, name: str, last: int, *, number: int = 1, begin: int = BEGIN) -> None:
        super().arrive(run, name, last, number=number, begin=begin)
        self.new += 1

    def look(self) -> Look:
        found, self.found, new, self.new = self.found, [], self.new, 0
        self.unread += new
        return Look(new, {}, {}, found)

    def advance(self) -> None:
        self.fail("advance")
        self.unread = 0

    def parts(self, given_up: object) -> WindowRows:
        if self.fails == "parts":
            self.unread += 1
        self.fail("parts")
        return super().parts(given_up)

    def judge(self, _: object, spans: Mapping[str, Span]) -> Judged:
        self.judged += [(each.begin, each.end) for each in spans.values()]
        self.fail("judge")
        return Judged([])

    def fail(self, step: str) -> None:
        if self.fails == step:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def start(self, checkpoint: Path) -> AuditLoop:
        return AuditLoop(self, self, self.judge, SETTINGS, checkpoint, lambda: 2**50)  # type: ignore[arg-type]

    def failed(self, step: str, loop: AuditLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run a round that fails in this step."""
        self.fails = step
        with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
            if step == "state":
                patched.setattr("pubsub_lib.audit.stream.loop.write_whole", lambda *_: self.fail(step))
            loop.round()
        self.fails = ""


@pytest.mark.parametrize("step", ["advance", "parts", "judge", "state"])
@pytest.mark.parametrize("restarted", [False, True])
def test_round_after_a_failed_one_repeats_its_steps(
    step: str, restarted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New files are read, problems are reported, and windows are closed as if no round had failed."""
    given = Failing()
    loop = given.start(tmp_path)
    given.arrive("b", "alive", BEGIN + 4 * WINDOW)
    loop.round()
    first = given.judged[-1][1]
    given.arrive("b", "alive", BEGIN + 9 * WINDOW, number=2, begin=BEGIN + 4 * WINDOW)
    given.found, given.notes = ["x is not a journal"], ["all is read again"]
    given.failed(step, loop, monkeypatch)
    if restarted:
        loop.close()
        loop = given.start(tmp_path)
        given.found = ["x is not a journal"]  # a new intake finds it again
    found = loop.round()
    assert given.unread == 0, "the stream has read the file of the failed round"
    assert (found.problems, found.notes) == (["x is not a journal"], ["all is read again"])
    assert loop.problems == ["x is not a journal"]
    assert given.judged[-1] == (first, BEGIN + 7 * WINDOW)
    assert loop.closed_until[""] == BEGIN + 7 * WINDOW
    assert loop.round().problems == []
    loop.close()


def test_file_that_comes_after_a_failed_round_wrote_its_windows_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The windows are not written again, so the follower must name the file."""
    given = Failing()
    loop = given.start(tmp_path)
    given.arrive("b", "alive", BEGIN + 9 * WINDOW)
    given.failed("judge", loop, monkeypatch)
    loop.close()
    loop = given.start(tmp_path)
    given.arrive("c", "other", BEGIN + 9 * WINDOW, begin=BEGIN + WINDOW)
    (sentence,) = loop.round().problems
    assert sentence.startswith("c-000001 arrived after windows of its records were closed")
    loop.close()


class Files(Given):
    """The files of one domain that have arrived, and those that are being written, at a moment."""

    def __init__(self, rows: Sequence[Row], rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._left = cut("", rows, rng)
        self._coming: dict[str, Coming] = {}
        self.arrived: dict[str, File] = {}

    def until(self, moment: float) -> None:
        """Most files that end until then arrive; other runs that have begun are seen, with or without their header."""
        ready = [each for each in self._left if each.last <= moment and (moment == 2**62 or self._rng.random() < 0.8)]
        for file in ready:
            self.arrived[file.stem] = file
            self._left.remove(file)
            self.parts_there.append(as_part(file))
        self._coming = {}
        for file in self._left:
            if file.first <= moment:
                first = file.rows[0]
                part = run_and_part(file.stem)[1]
                begun = None
                if self._rng.random() < 0.7:
                    begun = Begun(first.side, first.name, first.host, first.wall, first.mono)
                self._coming.setdefault(first.run, Coming(begun=begun)).open.add(part)

    def look(self) -> Look:
        return Look(0, {"": self._coming}, {}, [])

    def files(self, domain: str, parts: Iterable[JournalPart]) -> tuple[list[Path], list[str]]:  # type: ignore[override]
        return [Path(each.stem) for each in parts], []


def as_part(file: File) -> JournalPart:
    first, marks = file.rows[0], [row.wall for row in file.rows if row.kind == "mark"]
    numbers, walls = [row.number for row in file.rows], [row.wall for row in file.rows]
    return JournalPart(
        file.stem, first.run, run_and_part(file.stem)[1], first.side, first.name, first.host, True, min(numbers),
        min(walls), max(walls), max(marks, default=None), any(row.kind == "close" for row in file.rows), max(numbers),
        clocks=clocks_in(pa.Table.from_pylist([{name: getattr(row, name) for name in COLUMNS} for row in file.rows])),
    )  # fmt: skip


def test_windows_that_close_in_any_order_of_files_are_as_in_the_batch(tmp_path: Path, rng: random.Random) -> None:
    """Without Spark: the follower's decisions, and the oracle in place of the pipeline."""
    cases = known_answers() | {f"d{seed}": generated(seed) for seed in rng.sample(range(2**32), JOURNALS)}
    early = gone = 0
    for name, rows in cases.items():
        given = Files(rows, rng)
        found: Kept = Counter()
        moment = BEGIN

        def judge(files: Mapping[str, Sequence[Path]], spans: Mapping[str, Span]) -> Judged:
            there = [row for path in files[""] for row in given.arrived[str(path)].rows]  # noqa: B023
            torn = {(run, last) for run, last in TORN if any((row.run, row.number) == (run, last) for row in there)}
            for verdict, time in Oracle(there, WINDOW, GRACE, BOUND, SILENCE, torn).timed():
                window, span = time // WINDOW * WINDOW, spans[""]
                if (span.begin is None or window >= span.begin) and window + WINDOW <= span.end:
                    found["", window, verdict] += 1  # noqa: B023
            return Judged([])

        (tmp_path / name).mkdir()
        loop = AuditLoop(given, given, judge, SETTINGS, tmp_path / name, lambda: moment - WINDOW)  # type: ignore[arg-type] # noqa: B023
        problems: list[str] = []
        truth = Counter({("", *key[1:]): n for key, n in verdicts_of_oracle({name: rows}).items()})
        longer = 100 if name in drift_cases.CASES else 1
        for moment in (BEGIN + 30_000 * longer, BEGIN + 45_000 * longer, BEGIN + 60_000 * longer, 2**62):
            given.until(moment)
            problems += loop.round(last=moment == 2**62).problems
            assert not changed(found, truth, part=True), (name, moment)
            early += found.total() if moment < 2**62 else 0
        loop.close()
        assert not changed(found, truth), name
        assert not any("goes on" in each or "arrived after" in each for each in problems), (name, problems)
        gone += any("has not ended" in each for each in problems)
    assert early
    assert gone > 1


def prefix(rows: Sequence[Row], rng: random.Random) -> tuple[list[Row], list[str]]:
    """The records of each run that may have arrived at some moment, and the runs without any."""
    runs: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda each: (each.run, each.number)):
        runs[row.run].append(row)
    moment = rng.randrange(min(map(true_time, rows)), max(map(true_time, rows)))
    found: list[Row] = []
    unseen: list[str] = []
    for of_run in runs.values():
        until = moment + rng.randrange(20_000)
        last = max((row.number for row in of_run if true_time(row) <= until), default=0)
        found += [row for row in of_run if row.number <= last]
        if not last:
            unseen.append(of_run[0].run)
    return found, unseen


def test_verdicts_of_a_closed_window_do_not_change() -> None:
    """By the oracle alone: later records change no verdict, except losses that turn out to be belated."""
    rng = random.Random(20261121)
    compared = belated = 0
    late = [rows for name, rows in known_answers().items() if name in late_cases.CASES]
    for seed, rows in enumerate([*map(generated, range(JOURNALS)), *late]):
        every = Oracle(rows, WINDOW, GRACE, BOUND, SILENCE)
        whole = every.timed()
        for _ in range(3 if seed < JOURNALS else 20):
            early, unseen = prefix(rows, rng)
            one = Oracle(early, WINDOW, GRACE, BOUND, SILENCE)
            if one.clocks.undecided():
                continue
            frontier = min([one.closed_until() + BOUND + 2 * GRACE, *map(every.first_wall, unseen)])
            until = frontier - BOUND - 2 * GRACE

            def closed(timed: list[tuple[Verdict | Stray, int]], until: float = until) -> Kept:
                return Counter(("", time, row) for row, time in timed if time // WINDOW * WINDOW + WINDOW <= until)

            then, now = closed(one.timed()), closed(whole)
            assert not changed(then, now), seed
            compared += now.total()
            belated += (then - now).total()
    assert compared > 10 * JOURNALS
    assert belated
