"""The options of installed drivers are read without loading a driver."""

import subprocess
import sys
from pathlib import Path

import pytest

from pubsub_lib import loader
from pubsub_lib.config import installed_drivers
from pubsub_lib.errors import DriverError

DRIVERS = {
    "db_polling_pubsub_driver": "pubsub_sql",
    "memory": "pubsub_memory",
    "nats_pubsub_driver": "pubsub_nats",
    "redis_pubsub_driver": "pubsub_redis",
    "pgnotify_pubsub_driver": "pubsub_pgnotify",
    "zmq_pubsub_driver": "pubsub_zmq",
    "zmq_pubsub_multiproc_driver": "pubsub_ipc",
}


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, entry: str, **modules: str) -> None:
    """Put a distribution with one driver, its package and these modules on the path."""
    package = folder / f"pubsub_{name}"
    package.mkdir()
    for module, text in {"__init__": "", **modules}.items():
        (package / f"{module}.py").write_text(text)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[pubsub_lib.drivers]\n{name} = {entry}\n")
    monkeypatch.syspath_prepend(folder)


def test_driver_options_do_not_load_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = "from oslo_config import cfg\nOPTIONS = (cfg.StrOpt('colour'),)"
    driver = "raise ImportError('no such transport')"
    install(monkeypatch, tmp_path, "fixture", "pubsub_fixture.driver:Toy", driver=driver, options=options)
    group, opts = installed_drivers.options_of("fixture")
    assert (group, [option.name for option in opts]) == ("pubsub_fixture", ["colour"])
    assert "pubsub_fixture.driver" not in sys.modules


@pytest.mark.parametrize("driver", sorted(DRIVERS))
def test_drivers_know_without_their_transports_whether_they_bind(driver: str) -> None:
    assert installed_drivers.binds(driver) == loader.load(driver).capabilities.bind_based


def test_driver_may_bind_unless_its_options_deny_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, "plain", "pubsub_plain:Toy")
    assert installed_drivers.binds("plain")
    assert installed_drivers.binds("zmqq")


def test_an_unknown_driver_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DriverError, match="'zmqq' is not installed; installed are db_polling_pubsub_driver, memory"):
        installed_drivers.options_of("zmqq")


def test_each_driver_has_a_group_of_its_own() -> None:
    assert installed_drivers.groups() == DRIVERS


def test_a_driver_whose_options_cannot_be_imported_is_reported_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, tmp_path, "broken", "pubsub_broken:Broken", __init__="import no_such_transport")
    assert installed_drivers.groups()["broken"] == "pubsub_broken"
    with pytest.raises(DriverError, match="'pubsub_broken' cannot be imported: No module named 'no_such_transport'"):
        installed_drivers.options_of("broken")


def test_options_of_drivers_are_read_without_their_transports() -> None:
    code = (
        "import sys; from pubsub_lib.config import installed_drivers\n"
        "for driver in installed_drivers.packages(): installed_drivers.options_of(driver)\n"
        "print([name for name in ('redis', 'zmq') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
