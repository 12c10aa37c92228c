"""The demo over each driver that needs a server, which it starts itself."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from _bench.e2e.side import LeftOutError
from _databases import database
from _routes.drivers import DRIVERS, ZMQ

from pubsub_lib.errors import ConfigError
from tests.e2e.test_demo import CUT, call, processes_of

SERVED = [
    pytest.param(each, marks=pytest.mark.postgresql if each == "pgnotify" else ())
    for each in sorted(set(DRIVERS) - {ZMQ})
]
"""The drivers that need a server."""


def skip_without_servers(name: str, tmp_path: Path) -> None:
    """Skip the test with the reason, unless the servers of this driver start."""
    try:
        with DRIVERS[name].broker(), database(DRIVERS[name].database, tmp_path):
            pass
    except (LeftOutError, ConfigError) as error:
        pytest.skip(str(error))


def demo(name: str, folder: Path, tmp_path: Path) -> dict[str, Any]:
    """Return the output with ``-f json`` of a short run over this driver."""
    skip_without_servers(name, tmp_path)
    results = tmp_path / "results"
    done = call("demo_app.py", "-f", "json", "--driver", name, *CUT, "--out", str(results), folder=folder)
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []
    report: dict[str, Any] = msgspec.json.decode(done.stdout)
    return report


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", SERVED)
def test_demo_over_a_server_ends_equal_and_leaves_nothing(name: str, open_folder: Path, tmp_path: Path) -> None:
    report = demo(name, open_folder, tmp_path)
    shown = DRIVERS[name].shown
    assert [row["transport"] for row in report["replicas"]] == [shown, shown, "polling"]
    assert [row["verdict"] for row in report["replicas"]] == ["equal"] * 3
    assert all(row["changes"] > 0 for row in report["replicas"])
    assert (report["broken"], report["service_starts"]) == ([], 2)
    audit = report["audit"]
    assert (audit["exit_code"], audit["faults"], audit["problems"]) == (0, [], [])
    (balance,) = audit["balance"].values()
    assert balance["delivered"] > 0
    assert balance["lost"] == balance["unknown"] == balance["pending"] == 0
    assert balance["expected"] == sum(number for each, number in balance.items() if each != "expected")
    if name == "pgnotify":
        no_message_is_delivered_but_each_replica_is_notified(report)


def no_message_is_delivered_but_each_replica_is_notified(report: dict[str, Any]) -> None:
    """NOTIFY carries no changes: each replica reads the changelog, most of it because of a notification."""
    assert report["database"] == "postgresql"
    assert report["unsent_means"] == "unannounced"
    *notified, polling = (row["notifications"] for row in report["replicas"])
    assert min(notified) > 0
    assert polling is None
    delivery = pq.read_table(Path(report["audit"]["folder"]) / "delivery", columns=["way", "verdict"])
    assert {row["way"] for row in delivery.to_pylist() if row["verdict"] == "ok"} == {"polling"}
    assert [row["holes"] for row in report["replicas"]] == [0, 0, 0]
