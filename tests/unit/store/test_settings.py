"""Bounds of a store's settings and limits are checked for every way to create them."""

from pathlib import Path
from typing import Any

import pytest

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import ConfigError
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store, StoreSettings, migrate


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pool_size", 0),
        ("pool_size", 2.5),
        ("pool_size", "5"),
        ("page_size", -1),
        ("retry_attempts", 0),
        ("lock_timeout", 0.0),
        ("lock_timeout", float("inf")),
        ("statement_timeout", float("nan")),
        ("statement_timeout", 1e9),
        ("max_delta_links", None),
    ],
)
def test_settings_out_of_bounds_are_rejected_by_name(field: str, value: Any, tmp_path: Path) -> None:
    wrong = StoreSettings(**{field: value})
    for use in (Store, migrate):
        with pytest.raises(ConfigError, match=rf"settings\.{field} is .*correct it"):
            use(f"sqlite:///{tmp_path}/net.db", settings=wrong)
    assert list(tmp_path.iterdir()) == []


def test_limits_out_of_bounds_are_rejected_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"limits\.max_value_bytes is 0 "):
        Store(f"sqlite:///{tmp_path}/net.db", limits=Limits(max_value_bytes=0))


def test_ini_file_sets_store_settings_with_the_same_bounds(tmp_path: Path) -> None:
    path = tmp_path / "pubsub.conf"
    path.write_text("[pubsub]\nstore_url = sqlite:///net.db\nstore_pool_size = 17\nstore_lock_timeout = 1.5\n")
    assert Settings.from_file(path).store == StoreSettings(pool_size=17, lock_timeout=1.5)
    for line, word in (("store_pool_size = 0", "store_pool_size"), ("store_lock_timeout = 1e12", "store_lock_timeout")):
        path.write_text(f"[pubsub]\nstore_url = sqlite:///net.db\n{line}\n")
        with pytest.raises(ConfigError, match=word):
            Settings.from_file(path)
    with pytest.raises(ConfigError, match=r"store\.page_size"):
        Settings(store_url="sqlite:///net.db", store=StoreSettings(page_size=0))


def test_settings_accept_whole_seconds(sqlite_url: str) -> None:
    with Store(sqlite_url, settings=StoreSettings(lock_timeout=3)) as store:
        assert store.topics() == {}
