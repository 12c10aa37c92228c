"""An option in a group where it is not read is reported with its own group; other programs' options are ignored."""

from pathlib import Path

import pytest
from oslo_log import _options as oslo_log_options

from pubsub_lib import Settings
from pubsub_lib.config import installed_drivers
from pubsub_lib.config.places import groups_of, misplaced
from pubsub_lib.errors import ConfigError


def found(**sections: str) -> list[str]:
    return misplaced({group: names.split() for group, names in sections.items()})


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("publisher_port", "[pubsub]"),
        ("store_url", "[pubsub]"),
        ("topics", "[pubsub]"),
        ("keep_links", "[publisher_service]"),
        ("lease", "[publisher_service]"),
        ("recount_time", "[pubsub] or [publisher_service]"),
        ("send_hwm", "[pubsub_zmq]"),
        ("enable_df_pub_sub", "[df]"),
        ("publisher-port", "[pubsub]"),
    ],
)
def test_option_in_default_is_named_with_its_group(name: str, group: str) -> None:
    assert found(DEFAULT=name) == [f"{name} is set in [DEFAULT] and belongs in {group}"]


@pytest.mark.parametrize(
    "name", ["debug", "log_file", "log-file", "transport_url", "report_interval", "host", "delay", "seed", "bus"]
)
def test_option_of_other_programs_in_default_is_ignored(name: str) -> None:
    assert found(DEFAULT=name) == []


def test_option_that_its_own_group_sets_too_is_ignored() -> None:
    assert found(DEFAULT="publisher_port topics", pubsub="publisher_port topics") == []
    assert found(DEFAULT="recount_time", publisher_service="recount_time") == []


@pytest.mark.parametrize(
    ("given", "group", "read"),
    [
        ("publisher_port", "df", "publisher_port"),
        ("enable_pub_sub", "df", "enable_df_pub_sub"),
        ("enable_pub_sub", "pubsub", "enable_df_pub_sub"),
        ("enable_df_pub_sub", "pubsub", "enable_pub_sub"),
        ("enable_df_pub_sub", "pubsub", "enable_df_pub_sub"),
    ],
)
def test_option_that_is_set_by_another_name_or_in_dragonflows_group_is_ignored(
    given: str, group: str, read: str
) -> None:
    assert found(DEFAULT=given, **{group: read}) == []


def test_option_in_a_dragonflow_group_that_is_not_read_from_there() -> None:
    assert found(df="publisher_port local_ip apps_list db_sync_time monitor_table_poll_time unknown_option") == []
    assert found(df="max_idle_time keep_links") == [
        "max_idle_time is set in [df] and belongs in [pubsub]",
        "keep_links is set in [df] and belongs in [publisher_service]",
    ]


def test_our_options_and_oslo_logs_have_different_names() -> None:
    lists = (
        oslo_log_options.common_cli_opts,
        oslo_log_options.logging_cli_opts,
        oslo_log_options.generic_log_opts,
        oslo_log_options.log_opts,
    )
    names = [option.dest for each in lists for option in each]
    assert len(names) > 20
    assert {name: groups_of(name) for name in names if groups_of(name)} == {}


def test_driver_whose_options_cannot_be_imported_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_drivers, "packages", lambda: {"broken": "no_such_package_anywhere"})
    assert groups_of("publisher_port") == ["pubsub"]


def test_settings_refuse_a_file_with_misplaced_options(tmp_path: Path) -> None:
    path = tmp_path / "net.conf"
    path.write_text("[DEFAULT]\ndebug = true\npublisher_port = 9000\nlease = 3\n[pubsub]\nstore_url = sqlite:///x.db\n")
    with pytest.raises(ConfigError) as caught:
        Settings.from_file(path)
    assert str(caught.value) == (
        f"{str(path)!r} sets options in groups where they are not read: publisher_port is set in [DEFAULT] and "
        "belongs in [pubsub], lease is set in [DEFAULT] and belongs in [publisher_service]; move each to its group, or "
        "set it there as well if another program reads the one that you have"
    )


def test_old_names_belong_in_our_group() -> None:
    assert groups_of("max_handler_backoff") == ["pubsub"]
    assert groups_of("queue_limit") == ["pubsub", "pubsub_memory"]
    assert found(DEFAULT="max_handler_backoff") == ["max_handler_backoff is set in [DEFAULT] and belongs in [pubsub]"]


@pytest.mark.parametrize(
    ("name", "set_as"),
    [("queue_limit", "queue_limit"), ("handler_queue_limit", "queue_limit"), ("queue_limit", "handler_queue_limit")],
)
def test_option_of_other_programs_is_ignored_when_ours_is_set_by_any_name(name: str, set_as: str) -> None:
    assert found(DEFAULT=name, pubsub=set_as) == []
