"""The parts of the demo: shares, expected state, dumps, comparison, report and exit codes."""

import gzip
import io
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from _routes import command, comparison, data, dump
from _routes.plan import PROGRESS, Plan
from _routes.replica import percentile
from _routes.report import ReplicaRow, Report, WriterRow, as_json, show
from _routes.run import Run
from rich.console import Console

from pubsub_lib.core.model import Record
from pubsub_lib.errors import StoreFull, UsageError
from pubsub_lib.store.verbs import Stored

SMALL = Path(__file__).resolve().parent.parent.parent.parent / "tools" / "data" / "updates-small.jsonl.gz"


def route(key: str, action: str = "set", topic: str = "t", number: int = 0) -> data.Route:
    value = None if action == "delete" else {"n": number}
    return msgspec.convert(
        {"time": 0, "table": "route", "key": key, "topic": topic, "action": action, "value": value},
        data.Route,
    )


def test_shares_hold_every_line_once_and_a_key_in_one_share() -> None:
    routes = list(data.read(SMALL))
    shares = [data.share(routes, index, 4) for index in range(4)]
    assert sum(map(len, shares)) == len(routes) == 7033
    keys = [{each.key for each in share} for share in shares]
    assert sum(map(len, keys)) == len(set.union(*keys))
    assert min(map(len, shares)) > len(routes) / 8, "one writer would do nearly nothing"


def test_follow_counts_what_changes_something() -> None:
    state: data.State = {}
    assert data.follow(state, [route("a"), route("a"), route("b", "delete"), route("a", number=1)]) == {
        "t": 2
    }
    assert data.follow(state, [route("a", topic="u", number=1)]) == {"t": 1, "u": 1}
    assert data.follow(state, [route("a", "delete")]) == {"u": 1}
    assert state == {}


def test_a_file_that_is_no_file_of_routes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"routes\.gz is missing"):
        list(data.read(tmp_path / "routes.gz"))
    (tmp_path / "plain").write_text("no gzip")
    with pytest.raises(UsageError, match="cannot be read as routes"):
        list(data.read(tmp_path / "plain"))
    with gzip.open(tmp_path / "other.gz", "wb") as file:
        file.write(b'{"a":1}\n')
    with pytest.raises(UsageError, match="cannot be read as routes"):
        list(data.read(tmp_path / "other.gz"))


@pytest.mark.parametrize("number", [0, 1, dump.PAGE, dump.PAGE + 1])
def test_a_dump_comes_back(number: int, tmp_path: Path) -> None:
    records = [Record("route", f"k{each}", each + 1, b"{}") for each in range(number)]
    dump.write(tmp_path / "dump", records)
    assert list(dump.read(tmp_path / "dump")) == records


@pytest.mark.parametrize(
    ("numbers", "percent", "wanted"),
    [([], 50, None), ([7.0], 99, 7.0), ([1.0, 2.0], 50, 1.0), ([float(n) for n in range(1, 101)], 99, 99.0)],
)
def test_percentile(numbers: list[float], percent: int, wanted: float | None) -> None:
    assert percentile(numbers, percent) == wanted


OBJECTS = {
    ("route", "a"): Stored("route", "a", "t", 1, b'{"n":1}'),
    ("route", "b"): Stored("route", "b", "u", 2, b'{"n":2}'),
    (PROGRESS, "w"): Stored(PROGRESS, "w", PROGRESS, 3, b'{"done":5}'),
}
A, B = Record("route", "a", 1, b'{"n":1}'), Record("route", "b", 2, b'{"n":2}')
W = Record(PROGRESS, "w", 3, b'{"done":5}')


@pytest.mark.parametrize(
    ("records", "topics", "number"),
    [
        ([A, B, W], (), 0),
        ([A], ("t",), 0),
        ([A, B], ("t",), 1),
        ([A, B], (), 1),
        ([Record("route", "a", 2, b'{"n":1}')], ("t",), 1),
        ([Record("route", "a", 1, b'{"n":3}')], ("t",), 1),
        ([A, A], ("t",), 1),
        ([], ("t",), 1),
    ],
)
def test_a_replica_is_compared_object_by_object(
    records: list[Record], topics: tuple[str, ...], number: int
) -> None:
    found = comparison.of_replica(OBJECTS, topics, records)
    assert found.number == number
    assert bool(found.example) == bool(number)


def test_the_database_is_compared_with_the_files() -> None:
    expected = {("route", "a"): ("t", b'{"n":1}'), ("route", "b"): ("u", b'{"n":2}')}
    assert comparison.of_files(OBJECTS, expected, {"w": 5}).number == 0
    assert comparison.of_files(OBJECTS, expected, {"w": 6}).number == 1
    assert comparison.of_files(OBJECTS, expected | {("route", "a"): ("u", b'{"n":1}')}, {"w": 5}).number == 1
    assert comparison.of_files(OBJECTS, expected | {("route", "c"): ("u", b"{}")}, {"w": 5}).number == 1
    del expected["route", "a"]
    assert comparison.of_files(OBJECTS, expected, {"w": 5}).number == 1


def report(differences: int = 0, faults: int = 0, *, as_input: bool = True) -> Report:
    row = ReplicaRow(
        name="replica-1",
        topics=("as3333",),
        kills=1,
        objects=56_839,
        changes=5788,
        links=700,
        conflated=0,
        duplicates=3,
        holes=2,
        deltas=1,
        fulls=1,
        faults=faults,
        latency_p50=0.0301,
        latency_p99=None,
        sync_seconds=1.0,
        memory=70_000_000,
        differences=differences,
        example="'[a]', which the replica does not have" if differences else "",
    )
    return Report(
        database="sqlite",
        routes=10,
        load_seconds=1.0,
        changes=20,
        transactions=2,
        replay_seconds=1.0,
        objects=12,
        position=30,
        as_input=as_input,
        writers=[WriterRow("writer-1", 20, 10, 10)],
        replicas=[row],
        seconds=3.0,
    )


def test_the_table_fits_into_80_columns() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    show(report(), console)
    table = console.export_text()
    line = next(line for line in table.splitlines() if "replica-1 *" in line)
    assert line.split() == [
        "replica-1",
        "*",
        "as3333",
        "56,839",
        "5,788",
        "3",
        "2",
        "1/1",
        "30",
        "–",
        "equal",
    ]
    assert "after 10 of its 20 changes; the next process went on at 10" in table


def test_the_table_names_what_differs() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    show(report(2), console)
    table = console.export_text()
    assert "differs" in table
    assert "replica-1: 2 differ, for example '[a]', which the replica does not have" in table


def test_json_says_the_same() -> None:
    found = msgspec.json.decode(as_json(report(2)))
    assert (found["equal"], found["replicas"][0]["verdict"], found["replicas"][0]["holes"]) == (
        False,
        "differs",
        2,
    )


@pytest.fixture
def _signals() -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize(
    ("ended", "code"),
    [(report(), 0), (report(1), 1), (report(faults=1), 1), (report(as_input=False), 1)],
    ids=["equal", "differs", "faults", "not as the files"],
)
def test_exit_codes(ended: Report, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "execute", lambda _self: ended)
    assert command.execute("tools/demo", "json", _one_run) == code


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize("error", [StoreFull("no room\nleft"), OSError(28, "No space left on device")])
def test_an_error_is_one_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_self: Run) -> Report:
        raise error

    monkeypatch.setattr(Run, "execute", fail)
    assert command.execute("tools/demo", "table", _one_run) == 3
    said = capsys.readouterr().err
    assert said.startswith("tools/demo: ")
    assert said.count("\n") == 1


def _one_run(run: Callable[[Plan], int], folder: Path) -> int:
    return run(Plan(database="SQLite", url=f"sqlite:///{folder}/x", routes=folder, changes=folder, replicas=()))
