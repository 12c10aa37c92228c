"""The case ``e2e`` of ``tools/bench`` without downloads: its local sides, its figures, and what is left out."""

import json
import subprocess
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bench_app
import msgspec
import pytest
from _bench.e2e import downloads, packages, peers, plan, run, sides
from _bench.e2e.figures import REQUIREMENTS, EndToEnd, Results, required, rows
from _bench.e2e.measured import Measured, computed, percentile
from _bench.e2e.ours import compare, postgresql_host, sqlite
from _bench.e2e.plan import PROBE, Cell
from _bench.e2e.seen import Seen, Watched
from _bench.e2e.side import Facts, LeftOut, LeftOutError
from _bench.measure import BenchError

ROOT = Path(__file__).resolve().parent.parent.parent.parent
QUICK = ["1×1×1", "4×1×1", "1×1×1 100/s", "1×10×2"]


def quick(named: str) -> Any:
    command = [sys.executable, str(ROOT / "tools/bench_app.py"), "--quick", "--case", "e2e", "-f", "json"]
    done = subprocess.run([*command, "--peers", named], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_figures(found: Any, names: Sequence[str]) -> None:
    assert [each["name"] for each in found["e2e"]["sides"]] == names
    assert found["e2e"]["left_out"] == []
    assert found["e2e"]["syncs"] > 0
    cells = {each.short: each for each in (*plan.judged(True), *plan.others(True, False))}
    assert list(cells) == QUICK
    figures = found["e2e"]["figures"]
    assert {(name, each["side"]) for each in figures for name in [msgspec.convert(each["cell"], Cell).short]} == {
        (cell, side) for cell in QUICK for side in names if not side.endswith("-host") or cells[cell].writers > 1
    }
    for each in figures:
        assert each["fewest"] == each["events"] == msgspec.convert(each["cell"], Cell).events
        assert min(each["confirmed"], each["rate"]) > 0
        assert (each["p99_ms"] >= each["p50_ms"] > 0) == (each["cell"]["rate"] > 0)


@pytest.mark.long
def test_quick_measures_sqlite_and_downloads_nothing() -> None:
    found = quick("none")
    assert found["cases"] == []
    check_figures(found, ["sqlite", "bare-sqlite3"])


@pytest.mark.postgresql
@pytest.mark.slow
@pytest.mark.long
def test_quick_compares_postgresql_with_listen_notify() -> None:
    found = quick("postgresql")
    bare = ["bare-psycopg", "bare-psycopg-host"]
    check_figures(found, ["sqlite", "bare-sqlite3", "postgresql", "postgresql-host", *bare, "listen-notify"])
    shown = [(each["name"], each["peer"], each["at"], each["required"]) for each in found["cases"]]
    assert shown == [
        ("e2e-notify", "listen-notify", "least", 0.7),
        ("e2e-notify-4", "listen-notify", "least", 0.5),
        ("e2e-notify-4-host", "listen-notify", "least", 1.5),
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), []),
        (("postgresql",), ["e2e-notify", "e2e-notify-4", "e2e-notify-4-host"]),
        (("ovsdb",), ["e2e-ovsdb", "e2e-latency"]),
        (peers.NAMES, [each.name for each in REQUIREMENTS]),
    ],
)
def test_each_chosen_peer_has_required_ratios(names: Sequence[str], expected: Sequence[str]) -> None:
    assert required(names) == expected


def test_values_have_their_size_and_keys_repeat() -> None:
    cell = plan.cell(4, 10, 1)
    assert cell.events == 10_000
    changes = cell.transaction(3, 12)
    assert [key for key, _ in changes] == [f"w3-{number:03d}" for number in range(20, 30)]
    assert {len(msgspec.json.encode(value)) for _, value in changes} == {200}
    assert [value["n"] for _, value in changes] == list(range(120, 130))
    expected = cell.expected()
    assert len(expected) == 400
    assert (expected["w0-000"], expected["w3-099"]) == (2400, 2499)


def test_matrix_has_every_size_once() -> None:
    cells = [*plan.judged(False), *plan.others(False, matrix=True)]
    assert len(cells) == len({each.short for each in cells}) == 36
    assert {each.rate <= plan.RATE for each in cells} == {True}
    assert all(each.rate * each.changes * each.watchers <= 10_000 for each in cells)


def test_seen_is_complete_with_every_last_value_and_ready_after_a_new_probe() -> None:
    cell, ready = Cell(1, 2, 1, 2, rate=100.0), []
    seen = Seen(cell, lambda: ready.append(True))
    before = time.monotonic_ns()
    seen.change(PROBE, plan.value(0, time.monotonic_ns()))
    seen.connected()
    seen.change(PROBE, plan.value(0, before))
    assert ready == []
    for _ in range(2):
        seen.change(PROBE, plan.value(0, time.monotonic_ns()))
    assert ready == [True]
    changes = [*cell.transaction(0, 0), *cell.transaction(0, 1)]
    for number, (key, value) in enumerate(changes):
        assert not seen.done, number
        seen.change(key, value)
    assert seen.done
    report = seen.report()
    assert (report.events, len(report.took)) == (4, 4)
    assert report.ended >= changes[-1][1]["t"]


def test_a_replica_without_the_last_value_fails_the_comparison() -> None:
    cell = Cell(1, 1, 1, 3)
    compare({"w0-000": 0, "w0-001": 1, "w0-002": 2}, cell)
    with pytest.raises(BenchError, match="a replica ended with 2 objects that differ from the 3 expected"):
        compare({"w0-000": 0, "w0-001": 1}, cell)


def test_figures_are_of_the_last_watcher_and_of_all_handler_calls() -> None:
    cell = Cell(2, 1, 2, 10, rate=100.0)
    reports = [
        Watched(3_000_000_000, 10, array("q", [1_000_000] * 9)),
        Watched(5_000_000_000, 9, array("q", [8_000_000])),
    ]
    assert computed(cell, [(1_000_000_000, 3_000_000_000), (2_000_000_000, 2_500_000_000)], reports) == Measured(
        2.5, 5.0, 1.0, 8.0, 9
    )
    assert (percentile(range(1, 101), 99), percentile(range(1, 101), 50), percentile([7], 99)) == (99, 50, 7)


def results(**rates: Sequence[float]) -> Results:
    """Rounds of unpaced and paced cells; the latency in ms is the rate."""
    return {
        (cell, name.replace("_", "-")): [Measured(rate, rate, rate, rate, 0) for rate in values]
        for cell in plan.judged(False)
        for name, values in rates.items()
    }


def test_a_ratio_needs_all_rounds_of_both_sides() -> None:
    found = rows(results(sqlite=[10, 20, 30], etcd=[5, 10, 30], ovsdb=[5, 5, 5]), 3)
    assert [(each.name, each.peer, each.ratio, each.met) for each in found] == [
        ("e2e-etcd", "etcd", 2.0, True),
        ("e2e-ovsdb", "ovsdb", 4.0, True),
        ("e2e-latency", "ovsdb", 4.0, False),  # the faster one
    ]
    assert (found[2].ours, found[2].unit) == (20_000, "µs")
    assert [each.name for each in rows(results(sqlite=[1, 2], etcd=[1, 1], ovsdb=[1]), 2)] == [
        "e2e-etcd",
        "e2e-latency",
    ]
    made = rows(results(postgresql=[6], listen_notify=[10]), 1)
    assert [(each.name, each.met) for each in made] == [("e2e-notify", False), ("e2e-notify-4", True)]


class FakeSide:
    facts = Facts("fake", "client", "durable", "nothing")

    def session(self, children: object, cell: object) -> Any:
        raise AssertionError("not used")


class Absent(FakeSide):
    def __init__(self) -> None:
        raise LeftOutError("fake cannot be downloaded:\n no network")


def test_what_cannot_be_had_is_left_out_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "DOWNLOADED", {"etcd": Absent, "ovsdb": FakeSide, "nats": Absent})
    with sides.opened(["etcd", "ovsdb"], lambda _: None) as found:
        assert list(found.all) == ["sqlite", "bare-sqlite3", "ovsdb"]
        assert found.left_out == [LeftOut("etcd", "fake cannot be downloaded: no network")]


def test_a_peer_that_fails_is_left_out_and_ours_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    broken = {"ovsdb"}
    found = sides.Sides()
    found.all.update(sqlite=sqlite(), etcd=FakeSide(), ovsdb=FakeSide())
    named = {id(side): name for name, side in found.all.items()}

    def measure(side: object, cell: Cell) -> Measured:
        order.append(named[id(side)])
        if order[-1] in broken:
            raise BenchError("a watcher ended")
        return Measured(1.0, 1.0, 1.0, 1.0, cell.events)

    monkeypatch.setattr(run, "measure", measure)
    cell, done = plan.cell(1, 1, 1), dict[tuple[Cell, str], list[Measured]]()
    run.turn(found, cell, 1, done, lambda _: None)
    run.turn(found, cell, 2, done, lambda _: None)
    assert order == ["etcd", "ovsdb", "sqlite", "sqlite", "etcd"]
    assert {name: len(rounds) for (_, name), rounds in done.items()} == {"sqlite": 2, "etcd": 2}
    assert found.left_out == [LeftOut("ovsdb", "a watcher ended")]
    broken.add("sqlite")
    with pytest.raises(BenchError, match="a watcher ended"):
        run.turn(found, cell, 0, done, lambda _: None)


def test_a_side_for_several_writers_is_not_measured_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    found = sides.Sides()
    host = postgresql_host(lambda: "postgresql://unused")
    found.all.update({"sqlite": sqlite(), "postgresql-host": host})
    monkeypatch.setattr(run, "measure", lambda side, _: order.append(side.facts.name))
    for writers in (1, 4):
        run.turn(found, plan.cell(writers, 1, 1), 0, {}, lambda _: None)
    assert order == ["sqlite", "sqlite", "postgresql-host"]


def test_peers_are_all_by_default_and_local_ones_in_a_quick_run() -> None:
    assert run.Options().names == ("postgresql", "etcd", "ovsdb", "nats", "redis")
    assert run.Options(quick=True).names == ("postgresql",)
    assert run.Options(peers=peers.parsed("etcd,redis")).names == ["etcd", "redis"]
    assert run.Options(peers=peers.parsed("none")).names == []


def test_an_unknown_peer_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        bench_app.main(["--case", "e2e", "--peers", "etcd,oracle"])
    assert caught.value.code == 2
    assert "'oracle' is none of postgresql, etcd, ovsdb, nats, redis" in capsys.readouterr().err


def test_a_failed_download_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fail(command: Sequence[str], failure: str, folder: Path | None = None) -> str:
        raise LeftOutError(f"{failure}: no network")

    monkeypatch.setattr(downloads, "output", fail)
    monkeypatch.setattr(packages, "output", fail)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(LeftOutError, match="the client nats-py cannot be downloaded from PyPI: no network"):
        downloads.client("nats-py", "nats")
    with pytest.raises(LeftOutError, match=r"etcd-server cannot be downloaded .*: no network"):
        packages.server("etcd-server", ["etcd"])
    assert [each for each in downloads.cache().rglob("*") if each.is_file()] == []
    assert not (downloads.cache() / "servers/etcd-server").exists()


def test_a_folder_that_another_process_completed_first_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "client"
    with downloads.complete(folder) as later:
        (later / "module.py").write_text("later")
        with downloads.complete(folder) as first:
            (first / "module.py").write_text("first")
    assert (folder / "module.py").read_text() == "first"
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_cannot_get_its_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "client").write_text("a file")
    with pytest.raises(NotADirectoryError), downloads.complete(tmp_path / "client"):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["client"]


def test_a_failing_program_is_one_sentence_without_apts_warnings() -> None:
    script = "import sys; sys.exit('E: Unable to locate package x\\nW: not sandboxed')"
    with pytest.raises(LeftOutError, match=r"^x cannot be had: E: Unable to locate package x$"):
        downloads.output([sys.executable, "-c", script], "x cannot be had")
    assert downloads.output([sys.executable, "-c", "print(1)"], "x") == "1\n"


def test_libraries_of_a_package_are_its_first_alternatives() -> None:
    field = "adduser, libatomic1 (>= 4.8), libc6 (>= 2.34) | libc6.1, libssl3:amd64, python3:any"
    assert packages.depended(field) == ["libatomic1", "libc6", "libssl3"]


def test_every_peer_states_what_it_does_not_give() -> None:
    from _bench.e2e import etcd, jetstream, notify, ovsdb, redis_stream

    lacks = [etcd.LACKS, jetstream.LACKS, notify.FACTS.lacks, ovsdb.LACKS, redis_stream.LACKS]
    assert all("staleness" in each for each in lacks)
    assert msgspec.json.encode(EndToEnd(1.0, [notify.FACTS], [], []))
