"""The audit of real processes: an origin, two relays in a row, and a replica, with faults planted on each hop."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from _processes import poll

from pubsub_lib import Store, Worker
from pubsub_lib.audit.ingest.store_journal import journal_of_store
from pubsub_lib.audit.main import main
from pubsub_lib.audit.report.report import read_summary
from pubsub_lib.journal.reading import find, read
from tests.e2e.judges import JUDGES, ORACLE
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.test_relays import OPTIONS, listens_to
from tests.unit.audit.oracle import Oracle, Verdict

SECOND = 1_000_000
SETTINGS = (SECOND, SECOND, 30 * SECOND, 60 * SECOND)
"""Window, grace, bound and silence."""
FAULTS = {
    "above-relay-1": {("relay-1", "api-1", "wire")},
    "forget-relay-1": {("relay-2", "relay-1", "relay")},
    "below-relay-1": {("relay-2", "relay-1", "wire")},
    "above-relay-2": {("relay-2", "relay-1", "wire")},
    "forget-relay-2": {("agent", "relay-2", "relay")},
    "below-relay-2": {("agent", "relay-2", "wire")},
}
"""The fault, by the object that it concerns, and the rows that must show it: replica, service, blame."""


class Row:
    """The origin, two relays in a row, and their journals."""

    def __init__(self, folder: Path, database: str) -> None:
        self.journals = folder / "journals"
        options = {**OPTIONS, "journal_folder": self.journals, "journal_mark_seconds": 0.2}
        self.origin = Host(folder / "api-1", database, "api-1", replica_name="agent", **options)
        self.relays = [Host(folder / name, database, name, role="relay", **options) for name in ("relay-1", "relay-2")]
        for each in self.relays:
            each.program = [str(Path(__file__).with_name("faulty_relay.py")), each.name]
        upper, lower = self.relays
        lower.change("topics = t0, t1", f"topics = t0, t1\nparents = {upper.settings.bind_address}")
        self.agent = msgspec.structs.replace(self.origin.settings, parents=(lower.settings.bind_address,))

    def close(self) -> None:
        for each in (self.origin, *self.relays):
            each.close()


@pytest.fixture
def row(tmp_path: Path, sqlite_url: str) -> Iterator[Row]:
    made = Row(tmp_path, sqlite_url)
    yield made
    made.close()


@pytest.mark.parametrize("judge", JUDGES)
def test_fault_on_each_hop_is_found_at_its_hop_and_nothing_else(judge: str, row: Row, tmp_path: Path) -> None:
    positions: dict[int, str] = {}
    with Store(row.origin.database) as store:
        processes = [each.service() for each in (row.origin, *row.relays)]
        with Watched(row.agent) as watched, Worker(row.origin.settings, store):
            other = row.origin.worker()
            assert poll(lambda: listens_to(watched, row.relays[1]), LONG), watched.replica.status()
            warm = write(other, 20)
            watched.must_come_to(warm, store)
            for fault in FAULTS:
                with store.transaction() as tx:
                    tx.set("item", fault, 1, topic="t0")
                positions[store.read_heads(()).store.position] = fault
                watched.must_come_to(store.read_heads(()).store.position, store)
                watched.must_come_to(write(other, 3), store)
        other.communicate(timeout=LONG)  # the end of its input ends it: what a worker may still hand over is pending
        assert other.returncode == 0
        for process in reversed(processes):
            process.terminate()
            assert process.wait(LONG) == 0
        assert journal_of_store(store, tmp_path / "store")
    rows = [each for path in find([row.journals, tmp_path / "store"]).append for each in read(path)]
    oracle = Oracle(rows, *SETTINGS)
    expected = {(name, service, blame, at) for at, fault in positions.items() for name, service, blame in FAULTS[fault]}
    found = [each for each in oracle.delivery() if each.verdict not in ("ok", "excused")]
    assert {each.verdict for each in found} == {"repaired"}
    assert {(each.name, each.service, each.blame, each.position) for each in found if each.position > warm} == expected
    assert (oracle.strays(), oracle.store(), oracle.state(), oracle.missing(), oracle.bits()) == ([], [], [], False, 0)

    if judge != ORACLE:
        spark_agrees(row, oracle, found, tmp_path)


def spark_agrees(row: Row, oracle: Oracle, found: list[Verdict], tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--window", "1", "--grace", "1", "--bound", "30", "--silence", "60"]
    assert main(["run", str(row.journals), "--store", row.origin.database, "--out", str(out), *options]) == 0
    delivered = pq.read_table(out / "delivery", columns=list(Verdict._fields)).to_pylist()
    assert sorted(tuple(each.values()) for each in delivered) == oracle.delivery()
    tree_has_each_hop_and_where_its_changes_were_last_seen(out, found)


def tree_has_each_hop_and_where_its_changes_were_last_seen(out: Path, found: list[Verdict]) -> None:
    table = pq.read_table(out / "tree").to_pylist()
    assert read_summary(out).tree == table
    shown = ("name", "name_role", "service", "service_role", "current")
    assert sorted(tuple(each[column] for column in shown) for each in table) == [
        ("agent", "replica", "relay-2", "relay", True),
        ("relay-1", "relay", "api-1", "service", None),  # without parents: it listens to all services
        ("relay-2", "relay", "relay-1", "relay", True),
    ]
    for each in table:
        blames = Counter(row.blame for row in found if (row.service, row.name) == (each["service"], each["name"]))
        assert (each["at_publisher"], each["on_wire"], each["lost"]) == (blames["relay"], blames["wire"], 0)
        assert each["expected"] == each["delivered"] + each["repaired"] + each["excused"]
    assert '"Below relay-2"' in (out / "page.html").read_text()
