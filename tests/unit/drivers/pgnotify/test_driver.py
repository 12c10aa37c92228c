"""The driver's class: its capabilities, and the errors for options and URLs."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pubsub_lib import loader
from pubsub_lib.api import DriverSettings
from pubsub_lib.config.pubsub import POLLING_DRIVER
from pubsub_lib.errors import ConfigError, DriverError
from pubsub_pgnotify import options
from pubsub_pgnotify.driver import NAME, PgNotifyDriver

URL = "postgresql://user:geheim@db.example/net"
HALVES = [PgNotifyDriver.publisher, PgNotifyDriver.subscriber]


def test_capabilities_are_declared() -> None:
    declared = PgNotifyDriver.capabilities
    assert declared.cross_process
    assert declared.cross_host
    assert declared.ordered
    assert declared.needs_store
    assert declared.connections
    assert not declared.bind_based
    assert not declared.carries_envelopes


def test_driver_is_installed_under_its_name() -> None:
    assert loader.load(NAME) is PgNotifyDriver


def test_options_can_be_imported_without_psycopg() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import pubsub_pgnotify.options as module\n"
        "assert module.EXTRA == 'postgresql' and module.OPTIONS"
    )
    command = [sys.executable, "-c", program]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_options_are_those_of_polling_and_one_more() -> None:
    names = {option.name for option in options.OPTIONS}
    assert names == {"listening", "fastest", "slowest", "batch", "max_backoff"}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("store_url", ["sqlite:////var/net.db", "mysql://user:geheim@db.example/net"])
def test_another_database_is_refused_in_one_sentence(half: Callable[[DriverSettings], Any], store_url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        half(DriverSettings(store_url=store_url))
    text = str(caught.value)
    assert text.startswith("pgnotify_pubsub_driver needs PostgreSQL, but store_url is ")
    assert text.endswith(f"; set store_url to a PostgreSQL database, or pub_sub_driver = {POLLING_DRIVER}")
    assert "geheim" not in text
    assert "\n" not in text


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"store_url": ""}, "pgnotify_pubsub_driver needs the database; set store_url"),
        ({"store_url": "postgresql://host"}, "names no database"),
        ({"options": {"fast": 1}}, r"cannot use its options: .*fast.*; correct \[pubsub_pgnotify\]"),
        ({"options": {"listening": 0}}, r"cannot use its options: .*listening.*; correct \[pubsub_pgnotify\]"),
        ({"options": {"fastest": 2.0}}, r"slowest \(1.0 s\) is below fastest \(2.0 s\); raise it in \[pubsub_pgno"),
    ],
)
def test_settings_that_cannot_be_used_are_config_errors(
    half: Callable[[DriverSettings], Any], given: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(ConfigError, match=wrong):
        half(DriverSettings(**{"store_url": URL, **given}))


def test_driver_cannot_be_the_hop_of_a_host() -> None:
    with pytest.raises(DriverError, match="cannot be used as pub_sub_multiproc_driver, because it sends no messages"):
        loader.load_hop(NAME)
