"""The loader (rule D1): for a missing or unusable driver it raises one sentence that names what to do."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pubsub_lib import Settings, loader
from pubsub_lib.api import Capabilities, Driver
from pubsub_lib.errors import ConfigError, DriverError

Install = Callable[..., None]

CLASS = """
from pubsub_lib.api import Capabilities, Driver

class Toy(Driver):
    name = "toy"
    capabilities = Capabilities(bind_based=True, cross_process=True, cross_host=False, ordered=True)
    publisher = subscriber = None
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution with one driver package into its own folder on sys.path."""
    # stevedore caches lists of entry points on disk: never read those of another run.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(name: str, package: str, code: str, options: str = "") -> None:
        root = tmp_path / f"root-{package}"
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("")
        (root / package / "driver.py").write_text(code)
        (root / package / "options.py").write_text("OPTIONS = ()\n" + options)
        metadata = root / f"{package}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[pubsub_lib.drivers]\n{name} = {package}.driver:Toy\n")
        monkeypatch.syspath_prepend(root)

    # DriverManager also caches entry points per group in the process.
    monkeypatch.setattr("stevedore.extension.ExtensionManager.ENTRY_POINT_CACHE", {})
    return make


def test_load_returns_the_drivers_class(install: Install) -> None:
    install("toy", "toy_one", CLASS)
    driver = loader.load("toy")
    assert isinstance(driver, type)
    assert issubclass(driver, Driver)
    assert driver.name == "toy"


@pytest.mark.parametrize("name", ["memory", "db_polling_pubsub_driver"])
def test_the_shipped_drivers_are_found(name: str) -> None:
    assert loader.load(name).name == name


def test_publisher_at_an_address_that_others_can_reach_needs_insecure(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("toy", "toy_exposed", CLASS.replace("cross_host=False", "cross_host=True"))
    exposed = Settings(store_url="sqlite:///net.db", driver="toy", bind_address="tcp://192.0.2.7:8866")
    with pytest.raises(ConfigError, match=r"tcp://192.0.2.7:8866 \(publisher_bind_address in \[pubsub\]\)"):
        loader.load_publisher(exposed)
    assert caplog.text == ""
    with pytest.raises(DriverError, match="cannot make its publisher"):  # the toy is no whole driver
        loader.load_publisher(msgspec.structs.replace(exposed, insecure=True))
    assert "insecure = true: without keys, others can reach tcp://192.0.2.7:8866" in caplog.text


def test_publisher_with_keys_may_bind_an_address_that_others_can_reach(caplog: pytest.LogCaptureFixture) -> None:
    given = Settings(
        store_url="sqlite:///net.db", driver="zmq_pubsub_driver", bind_address="tcp://192.0.2.7:8866", keys=True
    )
    assert len(loader.load_publisher(given).public_key()) == 40
    assert caplog.text == ""


def test_keys_need_a_driver_that_has_them(install: Install) -> None:
    install("toy", "toy_keyless", CLASS)
    given = Settings(store_url="sqlite:///net.db", driver="toy", bind_address="tcp://127.0.0.1:1", keys=True)
    with pytest.raises(DriverError, match=r"the capability 'keys', needed by keys = true .* zmq_pubsub_driver"):
        loader.load_publisher(given)


def test_an_unknown_driver_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DriverError, match="'zmqq' is not installed; installed are db_polling_pubsub_driver, memory"):
        loader.load("zmqq")


def test_a_missing_extra_is_named_with_its_command(install: Install) -> None:
    install("toy", "toy_two", "import no_such_transport\n", "EXTRA = 'toys'\n")
    with pytest.raises(DriverError, match=r"no_such_transport.*pip install pubsub-lib\[toys\]$") as caught:
        loader.load("toy")
    assert isinstance(caught.value.__cause__, ImportError)


@pytest.mark.parametrize("code", ["1 / 0\n", "import no_such_transport\n"])
def test_a_driver_that_cannot_be_imported_is_named(install: Install, code: str) -> None:
    install("toy", f"toy_three_{len(code)}", code)
    with pytest.raises(DriverError, match="'toy' cannot be imported"):
        loader.load("toy")


def test_an_entry_point_that_is_not_a_driver_is_named(install: Install) -> None:
    install("toy", "toy_four", "class Toy: pass\n")
    with pytest.raises(DriverError, match="not a class derived from"):
        loader.load("toy")


def test_two_drivers_of_one_name_are_refused(install: Install) -> None:
    install("toy", "toy_five", CLASS)
    install("toy", "toy_six", CLASS)
    with pytest.raises(DriverError, match="several installed packages"):
        loader.load("toy")


def test_an_incapable_driver_is_refused_by_name(install: Install) -> None:
    install("toy", "toy_seven", CLASS)
    assert loader.load("toy", {"ordered": "the demo"}).name == "toy"
    with pytest.raises(
        DriverError, match="'toy' lacks the capability 'cross_host', needed by publishers_ips"
    ) as caught:
        loader.load("toy", {"cross_host": "publishers_ips = 10.0.0.1"})
    assert str(caught.value).endswith(
        "drivers that have it: db_polling_pubsub_driver, nats_pubsub_driver, pgnotify_pubsub_driver, "
        "redis_pubsub_driver, zmq_pubsub_driver"
    )


def test_an_unknown_capability_is_refused() -> None:
    with pytest.raises(DriverError, match="the capability 'fast' is unknown; name one of bind_based"):
        loader.load("memory", {"fast": "the demo"})


def test_the_table_shows_every_capability(install: Install) -> None:
    install("toy", "toy_eight", CLASS)
    install("broken", "toy_nine", "import no_such_transport\n")
    head, _, *rows = loader.driver_table(["toy", "broken"]).splitlines()
    assert head.count("|") == len(Capabilities.__struct_fields__) + 2
    assert rows[0].startswith("| `broken` | not installed |")
    assert rows[1] == "| `toy` | yes | yes | no | yes | yes | no | yes | yes | no |"
    with pytest.raises(DriverError, match="the driver 'x' is not installed"):
        loader.driver_table(["x"])
