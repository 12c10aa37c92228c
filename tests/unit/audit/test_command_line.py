"""The command line of ``pubsub-audit``."""

import pytest

from pubsub_lib.audit.command_line import parser, settings_of
from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.errors import ConfigError


def test_options_of_run_and_follow_become_settings() -> None:
    options = parser().parse_args(["run", "journals", "--bound", "1.5", "--strict"])
    assert settings_of(options) == AuditSettings(bound=3 * SECOND // 2, strict=True)
    assert settings_of(parser().parse_args(["follow", "--out", "x"])) == AuditSettings()
    with pytest.raises(ConfigError, match="window is 0 microseconds"):
        settings_of(parser().parse_args(["run", "--window", "0"]))


@pytest.mark.parametrize("command", [["run"], ["follow", "--out", "x"], ["report", "x"], ["show", "x"], ["prepare"]])
def test_every_command_has_the_options_for_output_and_errors(command: list[str]) -> None:
    options = parser().parse_args([*command, "-f", "json", "--debug"])
    assert (options.command, options.format, options.debug) == (command[0], "json", True)
