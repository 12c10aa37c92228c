"""The command line of ``pubsub-audit``."""

import pytest

from pubsub_lib.audit.command_line import parser, settings_of
from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import ConfigError


def test_options_of_run_and_follow_become_settings() -> None:
    options = parser().parse_args(["run", "journals", "--bound", "1.5", "--strict"])
    assert settings_of(options) == AuditSettings(bound=3 * SECOND // 2, strict=True)
    options = parser().parse_args(["follow", "--out", "x", "--bound", "10"])
    assert settings_of(options) == AuditSettings()
    with pytest.raises(ConfigError, match="window is 0 microseconds"):
        settings_of(parser().parse_args(["run", "--window", "0"]))


def test_bound_follows_from_the_times_of_the_programs() -> None:
    """The greatest promise of rule 13, as ``pubsub-db status`` prints it."""
    options = parser().parse_args(["run", "journals"])
    timing = Timing(max_idle_time=20, poll_interval=7)
    promised = 3 * 20 + 7 + timing.sync_wait + timing.sync_timeout
    assert settings_of(options, timing).bound == round(promised * SECOND)
    slow = Timing(max_idle_time=20, poll_interval=1, message_delay_window=100)
    promised = 20 + slow.reading_age + slow.round_trip + 100 + slow.sync_wait + slow.sync_timeout
    assert settings_of(options, slow).bound == round(promised * SECOND)
    assert settings_of(options) == settings_of(options, Timing())
    assert settings_of(parser().parse_args(["run", "journals", "--bound", "3"]), timing).bound == 3 * SECOND


@pytest.mark.parametrize("command", [["run"], ["follow", "--out", "x"], ["report", "x"], ["show", "x"], ["prepare"]])
def test_every_command_has_the_options_for_output_and_errors(command: list[str]) -> None:
    options = parser().parse_args([*command, "-f", "json", "--debug"])
    assert (options.command, options.format, options.debug) == (command[0], "json", True)
