"""The settings of a journal, and those of them that are options of an INI file."""

import pytest

from pubsub_lib.config import options
from pubsub_lib.errors import ConfigError
from pubsub_lib.journal import JournalSettings
from pubsub_lib.settings import Settings


def test_without_a_folder_there_is_no_journal_by_default() -> None:
    assert JournalSettings().folder == ""


def test_conversion_to_parquet_is_no_option() -> None:
    names = {option.name for option in options.JOURNAL}
    assert "journal_roll_bytes" in names
    assert "journal_to_parquet" not in names


@pytest.mark.parametrize(("field", "value"), [("roll_bytes", 0), ("mark_seconds", 0.0), ("keep_seconds", 1e10)])
def test_a_setting_out_of_its_range_is_named(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"journal\.{field} is {value}"):
        Settings(store_url="sqlite://", journal=JournalSettings(**{field: value}))  # type: ignore[arg-type]
