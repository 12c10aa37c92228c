"""``tools/bench`` runs, reports in the documented format, and detects missing messages."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import bench_app
import pytest
from _bench import commits, fullsync, journal, payload, ratios
from _bench.cases import REQUIRED, cases
from _bench.measure import BenchError, in_turns, row
from _bench.payload import Plan
from _bench.replicas import check
from _bench.report import machine, report
from _bench.store import PlannedStore
from _mutants.trial import missing_servers

from pubsub_lib import Replica, Settings, Store
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.model import ALL, EMPTY, ZERO, Full, TopicSnapshot, Want
from pubsub_lib.errors import ConfigError, StoreError
from pubsub_lib.journal.rows import Kind
from pubsub_lib.journal.writer import _Run

ROOT = Path(__file__).resolve().parent.parent.parent.parent
STORE = [
    f"store-{database}-{changes}-{threads}"
    for database in ("sqlite", "postgresql", "mariadb")
    for changes in (1, 20)
    for threads in (1, 4, 8)
]
for _server in ("postgresql", "mariadb"):
    STORE.insert(STORE.index(f"store-{_server}-20-8") + 1, f"store-{_server}-host")
SMALL = [
    "burst10", "burst1", "hop", "latency", "latency-hop", "relay-hop", "relay-syncs", "relay-syncs-beside", "sync",
    "journal", "journal-work",
]  # fmt: skip
ROWS = [*SMALL, *STORE, "pgnotify-postgresql"]
REQUIRED_OF_DATABASES = {
    "store-sqlite-1-1": ("most", 3), "store-sqlite-20-1": ("most", 2),
    "store-postgresql-1-1": ("least", 0.8), "store-postgresql-1-8": ("least", 0.9),
    "store-postgresql-host": ("least", 2.0),
    "pgnotify-postgresql": ("most", 3.0),
}  # fmt: skip


def small(links: int = 3) -> Plan:
    return payload.plan("bench", keys=20, transactions=links, changes=4, seed=1)


@pytest.mark.long
def test_quick_measures_every_case_and_prints_json(tmp_path: Path) -> None:
    copy = tmp_path / "bench.json"
    program = str(ROOT / "tools/bench_app.py")
    command = [sys.executable, program, "--quick", "--json", str(copy), "-f", "json", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert json.loads(copy.read_text()) == found
    assert (found["value_bytes"], found["rounds"], found["quick"]) == (256, 1, True)
    present = [each for each in ROWS if not any(name in each for name in missing_servers())]
    assert [each["name"] for each in found["cases"]] == present
    for each in found["cases"]:
        assert len(each["ours_rounds"]) == len(each["peer_rounds"]) == 1
        if each["name"] != "relay-hop":  # differences of medians, which few messages do not show
            assert min(each["ours"], each["theirs"]) > 0
        assert each["ratio"] == pytest.approx(each["ours"] / each["theirs"])
    assert "generated routes" in found["cases"][8]["note"]
    assert [(each["at"], each["required"]) for each in found["cases"][:11]] == [
        ("least", 0.6), ("least", 0.35), ("least", 10), ("most", 2), ("most", 4), ("most", 2),
        ("most", 5), ("most", None), ("least", 0.4), ("least", 0.85), ("most", 1.15),
    ]  # fmt: skip
    judged = {each["name"]: (each["at"], each["required"]) for each in found["cases"][11:] if each["required"]}
    assert judged == {name: each for name, each in REQUIRED_OF_DATABASES.items() if name in present}
    assert list(REQUIRED) == list(cases(tmp_path))
    required = [name for names in REQUIRED.values() for name in names]
    # Few messages may show a negative difference, which is no figure.
    assert {*found["not_measured"]} - {"relay-hop"} == {name for name in required if name not in present}
    assert {each["name"] for each in found["cases"] if each["required"]} == {*required} & {*present}


def test_values_are_canonical_json_of_the_stated_size_and_all_different() -> None:
    values = [payload.value(number) for number in (0, 1, 10**6)]
    assert {len(each) for each in values} == {payload.VALUE_BYTES} == {256}
    assert len({json.loads(each)["data"] for each in values}) == 3


def test_plan_matches_a_cache_and_is_reproducible() -> None:
    planned = small()
    cache = Cache()
    assert cache.replace("bench", planned.start).intact
    assert all(cache.apply(link).intact for link in planned.links)
    shown = {(each.table, each.key): (each.version, each.value) for each in cache.iterate()}
    assert shown == planned.expected()
    assert planned.end.point == planned.links[-1].point
    assert small() == planned


def test_planned_store_answers_only_a_first_sync() -> None:
    planned = small()
    store = PlannedStore([planned])
    assert store.read_heads([ALL]).topics == {"bench": planned.start.head}
    assert store.read_sync({"bench": Want()}).chains == {"bench": planned.full()}
    assert store.read_sync({"default": Want()}).chains == {"default": Full({"default": TopicSnapshot(EMPTY, [])}, ZERO)}
    with pytest.raises(StoreError, match="should have received"):
        store.read_sync({"bench": Want(after=planned.start.head.point)})
    store.commit()
    assert store.read_heads(["bench"]).store == planned.end.point
    with pytest.raises(StoreError, match="should have received"):
        store.read_sync({"bench": Want()})


def test_a_replica_that_missed_the_last_link_fails_the_check() -> None:
    planned = small()
    short = Plan(planned.topic, planned.start, [])
    settings = Settings(store_url="sqlite:////nowhere/bench.db", driver="memory")
    with Replica(settings, topics=["bench"], store=PlannedStore([short])) as replica:
        replica.wait_synced(30.0)
        with pytest.raises(BenchError, match="differ from the 20 expected"):
            check(replica, [planned])
        check(replica, [short])


def test_ratio_of_medians_is_judged_by_least_or_most() -> None:
    values = [(10.0, 30.0), (20.0, 10.0), (90.0, 20.0)]
    made = row("x", "title", "changes/s", "peer", values, "least", 1.0)
    assert (made.ours, made.theirs, made.ratio, made.met) == (20.0, 20.0, 1.0, True)
    assert not row("x", "title", "µs", "peer", values, "most", 0.9).met


@pytest.mark.parametrize(("ours", "theirs"), [(10.0, -5.0), (-10.0, 5.0), (-10.0, -5.0), (10.0, 0.0)])
def test_ratio_of_a_median_that_is_not_positive_is_neither_met_nor_missed(ours: float, theirs: float) -> None:
    made = row("relay-hop", "title", "µs", "peer", [(ours, theirs)], "most", 2.0)
    assert not made.met
    found = report([made], 1, False, machine(), None, ["relay-hop"])
    assert (found.met, found.missed, found.not_measured) == (False, False, ["relay-hop"])
    assert report([made], 1, True, machine()).met, "a quick run is not judged"
    assert row("relay-hop", "title", "µs", "peer", [(ours, theirs)], "most", None).met


def test_required_ratio_without_a_row_is_not_met() -> None:
    made = row("hop", "title", "changes/s", "peer", [(20.0, 1.0)], "least", 10.0)
    assert report([made], 1, False, machine(), None, ["hop"]).met
    found = report([made], 1, False, machine(), None, ["hop", "pgnotify-postgresql"])
    assert (found.met, found.missed, found.not_measured) == (False, False, ["pgnotify-postgresql"])
    assert report([made], 1, True, machine(), None, ["pgnotify-postgresql"]).met, "a quick run is not judged"


def test_case_without_its_server_did_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_binaries() -> None:
        raise ConfigError("PostgreSQL is not installed")

    monkeypatch.setattr("_bench.pgnotify.postgres_binaries", no_binaries)
    assert ratios.main(["--case", "pgnotify"]) == 3
    assert capsys.readouterr().err.endswith("tools/bench: not measured: pgnotify-postgresql\n")
    assert ratios.main(["--case", "pgnotify", "--allow-missing"]) == 0


def test_burst_with_journals_fails_when_one_of_them_loses_records(monkeypatch: pytest.MonkeyPatch) -> None:
    journal.measure(small(), journals=True)
    put = _Run.put

    def lossy(run: _Run, kind: Kind, *arguments: Any, **named: Any) -> None:
        if kind != "data":
            put(run, kind, *arguments, **named)

    monkeypatch.setattr(_Run, "put", lossy)  # the processes are forked
    with pytest.raises(BenchError, match="the journals have 0 sent and 0 received links of 3"):
        journal.measure(small(), journals=True)


def test_rounds_alternate_the_first_side() -> None:
    order: list[str] = []

    def noted(name: str) -> float:
        order.append(name)
        return float(len(order))

    assert list(in_turns(3, lambda: noted("ours"), lambda: noted("peer"), lambda _: None)) == [(2, 1), (3, 4), (6, 5)]
    assert order == ["peer", "ours", "ours", "peer", "peer", "ours"]


def test_generated_routes_have_distinct_keys_on_five_topics() -> None:
    routes = list(fullsync.generated(70_000))
    assert len({each.key for each in routes}) == 70_000
    assert len({each.topic for each in routes}) == 5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["--rounds", "0"], "'0' is not a whole number from 1 on"), (["--case", "nothing"], "invalid choice: 'nothing'")],
)
def test_wrong_options_are_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        bench_app.main(arguments)
    assert caught.value.code == 2
    output = capsys.readouterr().err
    assert sentence in output
    assert output.count("\n") == 1


def test_each_round_of_commits_writes_all_its_changes(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round with the values of the round before it would write nothing, and would look fast."""
    monkeypatch.setattr(commits, "KEYS", 10)
    monkeypatch.setattr(commits, "WRITERS", 1)
    commits.fill(sqlite_url)
    reached = []
    for _ in range(3):
        commits.timed(commits.ours, sqlite_url, commits.Load(changes=2, transactions=3, threads=1))
        with Store(sqlite_url) as store:
            reached.append(store.topics()[commits.topic_of(0)].point.position)
    assert reached[2] - reached[1] == reached[1] - reached[0] >= 2 * 3
