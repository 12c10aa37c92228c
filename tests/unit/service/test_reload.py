"""What a reload of the configuration changes in a running service, and which options it names as needing a restart."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_log.log import get_default_log_levels

from pubsub_lib.config.options import SERVICE
from pubsub_lib.config.reading import Configuration
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.service import log
from pubsub_lib.service.reload import ADJUSTED, Reload

RESTART = "these options have changed, and need a restart of the service: "
IN_USE = "the configuration is reloaded; changed and in use: "


class Running:
    """A configuration file and the service that was started with it."""

    def __init__(self, folder: Path, level: str = "", role: str = "origin", **log_options: str) -> None:
        self.path = folder / "net.conf"
        self._role = f"role = {role}\nserve_syncs = true\n"
        self.adjusted: list[ServiceSettings] = []
        self._common = (
            f"[pubsub]\nstore_url = sqlite:///{folder}/net.db\nservice_name = api-1\nenable_pub_sub = true\n"
            "topics = t\n"
        )
        self.write(default="\n".join(f"{name} = {value}" for name, value in log_options.items()))
        drivers = ["zmq_pubsub_driver", "zmq_pubsub_multiproc_driver"]
        configuration = Configuration.read(self.path)
        self._reload = Reload(str(self.path), level, configuration, drivers, log.read(str(self.path)))

    def write(self, service: str = "", pubsub: str = "", default: str = "", zmq: str = "") -> None:
        """Replace the file."""
        own = f"[publisher_service]\n{self._role}{service}\n"
        self.path.write_text(f"[DEFAULT]\n{default}\n{self._common}{pubsub}\n{own}[pubsub_zmq]\n{zmq}\n")

    def reload(self, caplog: pytest.LogCaptureFixture) -> list[str]:
        """The lines that a reload logs."""
        caplog.clear()
        with caplog.at_level("INFO", "pubsub_lib.service.reload"):
            self._reload(self.adjusted.append)
        return [each.getMessage() for each in caplog.records if each.name == "pubsub_lib.service.reload"]


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """The levels of the tests' process are those of before."""
    names = ("", "pubsub_lib.store", *(each.partition("=")[0] for each in get_default_log_levels()))
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


def test_adjusted_options_are_options_of_the_service() -> None:
    assert set(ADJUSTED) < {option.dest for option in SERVICE}


def test_unchanged_file_changes_nothing(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    assert running.reload(caplog) == [f"{IN_USE}no option"]


def test_intervals_and_bounds_take_effect(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    running.write("follow_interval = 0.5\nkeep_links = 10\nkeep_time = 60\nrecount_time = 7\ntrim_interval = 3")
    named = ", ".join(f"{name} in [publisher_service]" for name in ADJUSTED)
    assert running.reload(caplog) == [f"{IN_USE}{named}"]
    (service,) = running.adjusted
    assert [getattr(service, name) for name in ADJUSTED] == [0.5, 10, 60.0, 7.0, 3.0]
    assert running.reload(caplog) == [f"{IN_USE}no option"]


def test_each_other_option_is_named_at_every_reload_until_the_restart(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.write("lease = 20\ntrim_interval = 3", "max_idle_time = 7", "use_json = true", "send_hwm = 5")
    needed = (
        f"{RESTART}use_json in [DEFAULT], lease in [publisher_service], max_idle_time in [pubsub], "
        "send_hwm in [pubsub_zmq]"
    )
    assert running.reload(caplog) == [f"{IN_USE}trim_interval in [publisher_service]", needed]
    assert running.reload(caplog) == [f"{IN_USE}no option", needed]
    running.write("trim_interval = 3")
    assert running.reload(caplog) == [f"{IN_USE}no option"]


@pytest.mark.parametrize(
    ("role", "used"), [("relay", "no option"), ("standby", "follow_interval in [publisher_service]")]
)
def test_options_that_the_role_does_not_use_are_not_called_in_use(
    role: str, used: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(tmp_path, role=role)
    running.write("follow_interval = 0.5\nkeep_links = 10\nkeep_time = 0.6\nrecount_time = 7\ntrim_interval = 3")
    others = ", ".join(f"{name} in [publisher_service]" for name in ADJUSTED if name not in used)
    assert running.reload(caplog) == [
        f"{IN_USE}{used}",
        f"these options have changed, and a service with role = {role} does not use them: {others}",
    ]
    assert running.reload(caplog) == [f"{IN_USE}no option"]
    running.write("lease = 20")
    assert running.reload(caplog)[2] == f"{RESTART}lease in [publisher_service]"


def test_role_of_the_start_decides_which_options_are_in_use(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running._role = "role = standby\nserve_syncs = true\n"
    running.write("keep_links = 10")
    assert running.reload(caplog)[0] == f"{IN_USE}keep_links in [publisher_service]"


def test_values_are_not_logged(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    running.path.write_text(running.path.read_text().replace("sqlite:///", "postgresql://me:tOpSeCrEt@localhost/"))
    assert running.reload(caplog)[1:] == [f"{RESTART}store_url in [pubsub]"]
    assert "tOpSeCrEt" not in caplog.text


@pytest.mark.parametrize(
    ("group", "line", "reason"),
    [
        ("service", "trim_interval = soon", "trim_interval"),
        ("service", "trim_intervall = 3", "trim_intervall"),
        ("pubsub", "service_name =", "set service_name"),
        ("default", "debug = perhaps", "the logging options in"),
        ("default", "default_log_levels = pubsub_lib=LOUD", "unknown level 'LOUD' of the logger 'pubsub_lib'"),
        ("default", "default_log_levels = pubsub_lib=1e1", "unknown level '1e1' of the logger 'pubsub_lib'"),
        ("service", "keep_links = $keep_links", "'keep_links' in group [publisher_service] refers by $ to itself"),
        ("pubsub", "service_name = $local_ip\nlocal_ip = $service_name", "in group [pubsub] refers by $ to itself"),
        ("default", "debug = $debug", "an option refers by $ to itself"),
        ("default", "syslog_log_facility = $syslog_log_facility", "an option refers by $ to itself"),
        ("default", "log_dir = $log_file\nlog_file = $log_dir", "an option refers by $ to itself"),
    ],
)
def test_invalid_file_changes_nothing(
    group: str, line: str, reason: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    level = logging.getLogger().level
    running.write(**{"service": "keep_links = 10", "default": "debug = true", group: line})
    (only,) = running.reload(caplog)
    assert only.startswith("the configuration is not reloaded, and the service runs on with the old one: ")
    assert reason in only
    assert running.adjusted == []
    assert logging.getLogger().level == level
    running.path.unlink()
    assert "cannot be read" in running.reload(caplog)[0]


def test_log_levels_take_effect(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    running.write(default="debug = true\ndefault_log_levels = pubsub_lib.store=WARNING, boto=40")
    assert running.reload(caplog) == [f"{IN_USE}debug in [DEFAULT], default_log_levels in [DEFAULT]"]
    assert logging.getLogger().level == logging.DEBUG
    assert logging.getLogger("pubsub_lib.store").level == logging.WARNING
    assert logging.getLogger("boto").level == logging.ERROR
    assert logging.getLogger("amqp").level == logging.NOTSET  # not in the new list
    assert logging.getLogger("sqlalchemy").level == logging.WARNING  # SQLAlchemy sets it itself
    running.write()
    running.reload(caplog)
    assert logging.getLogger().level == logging.INFO
    assert logging.getLogger("pubsub_lib.store").level == logging.NOTSET
    assert logging.getLogger("boto").level == logging.WARNING


@pytest.mark.parametrize(("written", "level"), [("-5", -5), ("+10", 10), ("1_0", 10), ("40", 40)])
def test_level_is_any_number_that_the_logging_library_takes(
    written: str, level: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(tmp_path, default_log_levels=f"boto={written}")
    running.write(default=f"default_log_levels = amqp={written}")
    assert running.reload(caplog) == [f"{IN_USE}default_log_levels in [DEFAULT]"]
    assert logging.getLogger("amqp").level == level
    assert logging.getLogger("boto").level == logging.NOTSET
    running.write()
    assert running.reload(caplog) == [f"{IN_USE}default_log_levels in [DEFAULT]"]
    assert len(running.adjusted) == 2


def test_loggers_that_are_no_longer_named_have_the_level_of_a_start() -> None:
    names = ("sqlalchemy", "pubsub_lib.store.fork_safety.GatedPool")
    before = {"default_log_levels": [f"{name}=DEBUG" for name in names], "log_config_append": None}
    log.set_levels({"debug": False, "default_log_levels": [], "log_config_append": None}, before)
    assert [logging.getLogger(name).level for name in names] == [logging.WARNING, logging.WARNING]


def test_levels_of_the_start_are_not_checked_again() -> None:
    before = {"default_log_levels": ["boto=LOUD"], "log_config_append": None}
    log.set_levels({"debug": False, "default_log_levels": [], "log_config_append": None}, before)
    assert logging.getLogger("boto").level == logging.NOTSET


@pytest.mark.parametrize("name", ["", "root"])
def test_entry_of_the_root_logger_follows_the_precedence_of_its_start(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "level", root.level)
    none: log.Values = {"debug": False, "default_log_levels": [], "log_config_append": None}
    entry = {**none, "default_log_levels": [f"{name}=ERROR"]}
    log.set_levels(entry, none)
    assert root.level == logging.ERROR
    log.set_levels(none, entry)
    assert root.level == logging.INFO
    root.setLevel(logging.WARNING)
    log.set_levels(entry, none, "warning")
    assert root.level == logging.WARNING
    log.set_levels(none, entry, "warning")
    assert root.level == logging.WARNING


def test_service_is_adjusted_after_all_that_can_fail(
    running: Running, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise ValueError("no such level")

    monkeypatch.setattr(log, "set_levels", fail)
    with pytest.raises(ValueError, match="no such level"):
        running.reload(caplog)
    assert running.adjusted == []


def test_too_short_time_in_the_changelog_is_logged(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    running.write("keep_time = 0.1\ngrace = 0.01\nfollow_interval = 0.03")
    grace = ServiceSettings().grace  # the one in use: it needs a restart
    sentence = (
        "keep_time in [publisher_service] is 0.1 s, so links would leave the changelog before the service has read "
        f"them (follow_interval + grace = {0.03 + grace:g} s); raise it, or set 0"
    )
    assert running.reload(caplog)[-1] == sentence
    assert caplog.records[-1].levelname == "WARNING"
    assert running.reload(caplog)[-1] == sentence
    running.write("keep_time = 60")
    assert running.reload(caplog) == [
        f"{IN_USE}follow_interval in [publisher_service], keep_time in [publisher_service]"
    ]


def test_levels_of_a_file_of_the_logging_module_need_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(tmp_path, log_config_append="levels.conf")
    running.write(default="log_config_append = levels.conf\ndebug = true")
    level = logging.getLogger().level
    assert running.reload(caplog) == [f"{IN_USE}no option", f"{RESTART}debug in [DEFAULT]"]
    assert logging.getLogger().level == level


def test_level_of_the_command_line_takes_precedence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    running = Running(tmp_path, level="error")
    logging.getLogger().setLevel(logging.ERROR)
    running.write(default="debug = true\ndefault_log_levels = boto=40")
    assert running.reload(caplog) == [f"{IN_USE}default_log_levels in [DEFAULT]"]
    assert logging.getLogger().level == logging.ERROR


def test_values_are_those_of_oslo_config(running: Running) -> None:
    values = Configuration.read(running.path).all_values(["zmq_pubsub_driver"])
    assert values["pubsub", "service_name"] == "api-1"
    assert {group for group, _ in values} == {"pubsub", "publisher_service", "pubsub_zmq"}
