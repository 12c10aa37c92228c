"""A publisher, or a worker, and the store whose commits it sends must have the same limits."""

from collections.abc import Callable
from typing import Any

import pytest

from pubsub_lib import Publisher, Settings, Store, Worker
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import ConfigError
from tests.unit.world import settings

STRICT = Limits(max_value_bytes=1000, max_transaction_changes=3)


@pytest.fixture
def strict(sqlite_url: str) -> Settings:
    return settings(sqlite_url, limits=STRICT, multiproc_driver="memory")


@pytest.mark.parametrize("sender", [Publisher, Worker])
def test_a_store_with_other_limits_than_the_settings_is_refused(
    sender: Callable[[Settings, Store], Any], strict: Settings
) -> None:
    with Store(strict.store_url) as other, pytest.raises(ConfigError) as refused:
        sender(strict, other)
    message = str(refused.value)
    assert "max_value_bytes = 262144" in message
    assert "1000" in message
    assert "Store(settings)" in message


@pytest.mark.parametrize("sender", [Publisher, Worker])
def test_a_store_of_the_same_settings_is_accepted(sender: Callable[[Settings, Store], Any], strict: Settings) -> None:
    with Store(strict) as store:
        sender(strict, store).close()
