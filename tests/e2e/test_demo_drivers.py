"""The demo over each driver that needs a broker, which it starts itself."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from _bench.e2e.side import LeftOutError
from _routes.drivers import DRIVERS, ZMQ

from pubsub_lib.errors import ConfigError
from tests.e2e.test_demo import CUT, call, processes_of


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(DRIVERS) - {ZMQ}))
def test_demo_over_a_broker_ends_equal_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    try:
        with DRIVERS[name].broker():
            pass
    except (LeftOutError, ConfigError) as error:
        pytest.skip(str(error))
    folder, results = tmp_path / "tmp", tmp_path / "results"
    folder.mkdir()
    done = call("demo_app.py", "-f", "json", "--driver", name, *CUT, "--out", str(results), folder=folder)
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []
    report: dict[str, Any] = msgspec.json.decode(done.stdout)
    shown = DRIVERS[name].shown
    assert [row["transport"] for row in report["replicas"]] == [shown, shown, "polling"]
    assert [row["verdict"] for row in report["replicas"]] == ["equal"] * 3
    assert all(row["changes"] > 0 for row in report["replicas"])
    assert (report["broken"], report["service_starts"]) == ([], 2)
