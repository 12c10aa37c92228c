"""The options that every program reads."""

import msgspec
import pytest

from pubsub_lib.config.program import HANDLER_PREFIX, JOURNAL_PREFIX, STORE_PREFIX, ProgramSettings, StoreSettings
from pubsub_lib.core.handler_queue import HandlerPolicy
from pubsub_lib.journal import JournalSettings
from pubsub_lib.settings import Settings


def test_settings_have_the_fields_of_the_options() -> None:
    made = Settings(store_url="sqlite:///net.db", service_name="api-1", replica_metrics_port=8868)
    assert isinstance(made, ProgramSettings)
    assert (made.service_name, made.replica_metrics_port, made.discovery_interval) == ("api-1", 8868, 10.0)


def test_the_url_is_secret_in_a_settings_text() -> None:
    made = Settings(store_url="postgresql://me:tOpSeCrEt@db/net")
    assert "tOpSeCrEt" not in repr(made)


@pytest.mark.parametrize(
    ("prefix", "struct"),
    [(STORE_PREFIX, StoreSettings), (JOURNAL_PREFIX, JournalSettings), (HANDLER_PREFIX, HandlerPolicy)],
)
def test_prefixes_keep_the_names_of_structs_apart(prefix: str, struct: type[msgspec.Struct]) -> None:
    prefixed = {prefix + field for field in struct.__struct_fields__}
    assert prefixed.isdisjoint(ProgramSettings.__struct_fields__)
