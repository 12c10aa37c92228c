"""Bounds of a store's settings and limits hold however these are made."""

from pathlib import Path
from typing import Any

import pytest

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import ConfigError
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
def test_settings_out_of_bounds_are_refused_by_name(field: str, value: Any, tmp_path: Path) -> None:
    wrong = StoreSettings(**{field: value})
    for use in (Store, migrate):
        with pytest.raises(ConfigError, match=rf"settings\.{field} is .*correct it"):
            use(f"sqlite:///{tmp_path}/net.db", settings=wrong)
    assert list(tmp_path.iterdir()) == []


def test_limits_out_of_bounds_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"limits\.max_value_bytes is 0 "):
        Store(f"sqlite:///{tmp_path}/net.db", limits=Limits(max_value_bytes=0))


def test_whole_seconds_are_seconds(sqlite_url: str) -> None:
    with Store(sqlite_url, settings=StoreSettings(lock_timeout=3)) as store:
        assert store.topics() == {}
