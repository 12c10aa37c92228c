"""Reading INI files: values, names, and how often a file is opened."""

import builtins
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from pubsub_lib.config import options
from pubsub_lib.config.pubsub import GROUP
from pubsub_lib.config.reading import Configuration, files_of, refuse_misspelt_groups, sections_of
from pubsub_lib.errors import ConfigError
from pubsub_lib.service import settings as service_settings
from pubsub_lib.service.contradictions import find

URL = "store_url = sqlite:///net.db\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "net.conf"
    path.write_text(text)
    return path


def test_values_and_names_come_from_the_same_files(tmp_path: Path) -> None:
    path = written(tmp_path, f"[pubsub]\n{URL}max_idle_time = 7\n[other]\nx = 1\n")
    configuration = Configuration.read(path)
    assert configuration.values(GROUP, options.OPTIONS)["max_idle_time"] == 7.0
    assert configuration.files == {str(path): sections_of(path)}
    assert configuration.files[str(path)]["other"] == {"x": ["1"]}


def test_a_check_opens_the_file_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for the values and once for the names; the contradictions are found in what was read."""
    path = written(tmp_path, f"[pubsub]\n{URL}service_name = a\nenable_pub_sub = true\n")
    opened: Counter[str] = Counter()
    real = builtins.open

    def counted(file: Any, *args: Any, **named: Any) -> Any:
        opened[str(file)] += 1
        return real(file, *args, **named)

    monkeypatch.setattr(builtins, "open", counted)
    configuration = Configuration.read(path)
    settings, service = service_settings.load(configuration)
    find(configuration, settings, service)
    assert opened[str(path)] == 2


@pytest.mark.parametrize(
    "text",
    [
        "service_name = $service_name\n",
        "publisher_port = $publisher_port\n",
        "local_ip = $service_name\nservice_name = ${local_ip}\n",
    ],
)
def test_option_that_refers_to_itself_is_refused(text: str, tmp_path: Path) -> None:
    configuration = Configuration.read(written(tmp_path, f"[pubsub]\n{URL}{text}"))
    with pytest.raises(ConfigError, match=r"^the option '\w+' in group \[pubsub\] refers by \$ to itself, directly or"):
        configuration.values(GROUP, options.OPTIONS)


@pytest.mark.parametrize("name", ["config_file", "config_dir"])
def test_file_list_that_refers_to_itself_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config_file or config_dir in \[DEFAULT\] refers by \$ to itself"):
        Configuration.read(written(tmp_path, f"[DEFAULT]\n{name} = ${name}\n[pubsub]\n{URL}"))


@pytest.mark.parametrize(("name", "value"), [("queue_limit", "7"), ("max_handler_backoff", "8")])
def test_old_names_are_still_read(name: str, value: str, tmp_path: Path) -> None:
    configuration = Configuration.read(written(tmp_path, f"[pubsub]\n{URL}{name} = {value}\n"))
    configuration.check_names()
    values = configuration.values(GROUP, options.OPTIONS)
    assert str(value) in {f"{values['handler_queue_limit']:g}", f"{values['handler_max_backoff']:g}"}


def test_new_name_takes_precedence_over_the_old_one(tmp_path: Path) -> None:
    configuration = Configuration.read(written(tmp_path, "[pubsub]\nqueue_limit = 7\nhandler_queue_limit = 8\n"))
    assert configuration.values(GROUP, options.OPTIONS)["handler_queue_limit"] == 8


def test_unknown_name_in_any_file_is_refused(tmp_path: Path) -> None:
    good, folder = written(tmp_path, f"[pubsub]\n{URL}"), tmp_path / "more"
    folder.mkdir()
    (folder / "a.conf").write_text("[pubsub]\nmax_idel_time = 1\n")
    conf = cfg.ConfigOpts()
    conf([f"--config-file={good}", f"--config-dir={folder}"], project="x", prog="x")
    assert files_of(conf) == [good, folder / "a.conf"]
    with pytest.raises(ConfigError, match=r"a\.conf' sets an unknown option 'max_idel_time'.*'max_idle_time'"):
        Configuration.of(conf).check_names()


def test_a_conf_without_files_has_no_names() -> None:
    assert files_of(cfg.ConfigOpts()) == []


def test_dragonflow_options_without_effect_are_named_once_for_each_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configuration = Configuration.read(written(tmp_path, f"[df]\nnb_db_class = etcd\n[pubsub]\n{URL}"))
    with caplog.at_level(logging.WARNING, "pubsub_lib.config.reading"):
        configuration.warn_of_dragonflow()
    (record,) = [each for each in caplog.records if each.name == "pubsub_lib.config.reading"]
    assert "nb_db_class (set store_url in [pubsub])" in record.getMessage()


def test_options_from_the_environment_are_named_without_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_PUBSUB__STORE_URL", "postgresql://me:tOpSeCrEt@db/net")
    monkeypatch.setenv("OS_PUBLISHER_SERVICE__METRICS_PORT", "0")
    monkeypatch.setenv("OS_PUBSUB_ZMQ__SEND_HWM", "7")
    monkeypatch.setenv("OS_PUBSUB_MEMORY__LOSS", "1")  # of a driver that is not used
    monkeypatch.setenv("OS_OTHER__STORE_URL", "x")
    configuration = Configuration.read(written(tmp_path, f"[pubsub]\n{URL}"))
    assert configuration.from_environment(["zmq_pubsub_driver"]) == [
        "OS_PUBLISHER_SERVICE__METRICS_PORT",
        "OS_PUBSUB_ZMQ__SEND_HWM",
        "OS_PUBSUB__STORE_URL",
    ]


def test_error_of_an_option_names_its_environment_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_PUBSUB__MAX_IDLE_TIME", "long")
    configuration = Configuration.read(written(tmp_path, f"[pubsub]\n{URL}max_idle_time = 7\n"))
    with pytest.raises(ConfigError, match=r"'max_idle_time' .*OS_PUBSUB__MAX_IDLE_TIME is set\) cannot be"):
        configuration.values(GROUP, options.OPTIONS)


def test_conf_without_the_environment_names_no_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_PUBSUB__STORE_URL", "sqlite:///other.db")
    conf = cfg.ConfigOpts()
    conf([f"--config-file={written(tmp_path, f'[pubsub]{chr(10)}{URL}')}"], project="x", prog="x", use_env=False)
    assert Configuration.of(conf).from_environment([]) == []


def test_environment_variable_of_an_old_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """oslo.config would ignore it."""
    monkeypatch.setenv("OS_PUBSUB__QUEUE_LIMIT", "7")
    configuration = Configuration.read(written(tmp_path, f"[pubsub]\n{URL}"))
    with pytest.raises(ConfigError, match="OS_PUBSUB__QUEUE_LIMIT is not read; name it OS_PUBSUB__HANDLER_QUEUE_LIMIT"):
        configuration.values(GROUP, options.OPTIONS)


def test_typo_of_an_old_name_is_answered_with_the_new_one(tmp_path: Path) -> None:
    configuration = Configuration.read(written(tmp_path, f"[pubsub]\n{URL}max_handler_backof = 1\n"))
    with pytest.raises(ConfigError, match="did you mean 'handler_max_backoff'"):
        configuration.check_names()


def test_configuration_shows_no_value(tmp_path: Path) -> None:
    path = written(tmp_path, "[pubsub]\nstore_url = postgresql://me:tOpSeCrEt@db/net\n")
    configuration = Configuration.read(path)
    assert repr(configuration) == f"Configuration({path})"
    assert "tOpSeCrEt" not in repr(configuration.__rich_repr__())


def test_maximum_is_written_in_full(tmp_path: Path) -> None:
    path = written(tmp_path, f"[pubsub]\n{URL}store_pool_size = 99999999999\n")
    with pytest.raises(ConfigError, match="less than or equal to 2147483647;"):
        Configuration.read(path).values(GROUP, options.OPTIONS)


OTHERS = (
    "DEFAULT", "database", "keystone_authtoken", "oslo_concurrency", "oslo_messaging_notifications",
    "oslo_messaging_rabbit", "oslo_messaging_zmq", "oslo_policy", "agent", "ovs", "ml2",
    "securitygroup", "nova", "placement", "cors", "quotas", "service_providers", "publish",
    "publisher", "publishers", "subscriber", "pub", "sub", "redis", "zmq", "df_l2_app", "df_l3_app",
    "df_dnat_app", "df_ryu", "df_skydive",
)
"""Groups of other programs that may share a file, and words near ours."""
GROUPS = ("pubsub", "publisher_service", "df", "pubsub_zmq", "pubsub_redis")


def one_typo(name: str) -> set[str]:
    """The name with two neighbours exchanged, a letter left out, doubled or replaced."""
    places = range(len(name))
    exchanged = {name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :] for at in places}
    changed = {name[:at] + letters + name[at + 1 :] for at in places for letters in ("", name[at] * 2, "x")}
    return (exchanged | changed) - {name}


@pytest.mark.parametrize("group", ["pubsub", "publisher_service", "pubsub_zmq", "pubsub_redis"])
def test_each_typo_of_a_group_is_refused(group: str) -> None:
    for typo in sorted(one_typo(group)):
        with pytest.raises(ConfigError, match=rf"has an unknown group \[{typo}\]; did you mean \[{group}\]\?"):
            refuse_misspelt_groups([typo], GROUPS, "net.conf")


@pytest.mark.parametrize("group", OTHERS)
def test_group_of_another_program_is_left_alone(group: str) -> None:
    refuse_misspelt_groups([group], GROUPS, "net.conf")
