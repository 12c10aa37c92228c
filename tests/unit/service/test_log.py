"""The service's log output. Each case runs in its own process, because it configures the root logger."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pubsub_lib.errors import ConfigError
from pubsub_lib.service import log
from pubsub_lib.store.fork_safety import GatedPool

PROGRAM = """
import logging, sys
from pubsub_lib.logs import fields, logger
from pubsub_lib.service.log import set_up

set_up(*sys.argv[1:])
log = logger("pubsub_lib.somewhere")
log.debug("unimportant")
logging.getLogger("pubsub_lib.store.fork_safety.GatedPool").info("Pool recreating")
log.info("listening to %s", "api-1", extra=fields(address="tcp://10.0.0.1:8866"))
"""


def run(tmp_path: Path, options: str, *level: str) -> "subprocess.CompletedProcess[str]":
    config = tmp_path / "service.conf"
    config.write_text(f"[DEFAULT]\n{options}\n[pubsub]\nstore_url = sqlite:///net.db\n")
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(config), *level]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)


def test_log_is_one_line_on_stderr_by_default(tmp_path: Path) -> None:
    done = run(tmp_path, "")
    assert (done.returncode, done.stdout) == (0, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith(" INFO pubsub_lib.somewhere: listening to api-1")


def test_pool_logs_only_warnings() -> None:
    assert f"{GatedPool.__module__}.{GatedPool.__qualname__}=WARN" == log._POOL


def test_command_line_level_takes_precedence_over_the_file(tmp_path: Path) -> None:
    assert "unimportant" in run(tmp_path, "debug = true").stderr
    assert run(tmp_path, "debug = true", "warning").stderr == ""
    assert "unimportant" in run(tmp_path, "", "debug").stderr


def test_json_log_contains_the_fields(tmp_path: Path) -> None:
    record = json.loads(run(tmp_path, "use_json = true").stderr)
    assert record["message"] == "listening to api-1"
    assert record["extra"] == {"pubsub_address": "tcp://10.0.0.1:8866"}


def test_log_file_replaces_stderr(tmp_path: Path) -> None:
    assert run(tmp_path, "log_file = service.log").stderr == ""
    assert "listening to api-1" in (tmp_path / "service.log").read_text()


@pytest.mark.quick_variants(2)
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("log_file = no/such/folder/service.log", "No such file or directory"),
        ("debug = perhaps", "perhaps"),
        ("debug = $debug", "an option refers by $ to itself"),
        ("syslog_log_facility = $syslog_log_facility", "an option refers by $ to itself"),
        ("log_dir = $log_file\nlog_file = $log_dir", "an option refers by $ to itself"),
        ("log_config_append = nowhere.conf", "nowhere.conf"),
    ],
)
def test_invalid_logging_option_is_one_sentence(tmp_path: Path, options: str, complaint: str) -> None:
    done = run(tmp_path, options)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("pubsub_lib.errors.ConfigError: the logging options in ")
    assert complaint in last
    assert last.endswith("correct them in [DEFAULT]")


@pytest.mark.parametrize("name", [".", ""])
def test_folder_in_place_of_the_file_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^the configuration file '{re.escape(name)}' cannot be read: .*directory"):
        log.set_up(name)


HANDLING = """
import sys
from pubsub_lib.logs import logger
from pubsub_lib.service.log import set_up

set_up(*sys.argv[1:])
try:
    raise OSError("the server is away")
except OSError as error:
    logger("pubsub_lib.somewhere").warning("following failed: %s", error)
    logger("pubsub_lib.somewhere").exception("it broke")
"""


@pytest.mark.parametrize(
    ("form", "times"), [("", 1), ("logging_default_format_string = %(message)s: %(error_summary)s", 2)]
)
def test_exception_is_logged_once_unless_the_format_asks_for_it(tmp_path: Path, form: str, times: int) -> None:
    config = tmp_path / "service.conf"
    config.write_text(f"[DEFAULT]\n{form}\n")
    command = [sys.executable, "-W", "error", "-c", HANDLING, str(config)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    first, *traceback = done.stderr.splitlines()
    assert first.count("the server is away") == times, first
    assert "Traceback" in "".join(traceback)


INTERRUPTED = """
import logging, sys
from pubsub_lib.service.log import set_up

set_up(*sys.argv[1:])
pool = logging.getLogger("pubsub_lib.store.fork_safety.GatedPool")
for raised in (KeyboardInterrupt(), OSError("the server is gone")):
    try:
        raise raised
    except BaseException:
        pool.error("Exception during reset or similar", exc_info=True)
"""


def test_interrupt_in_the_reset_of_a_connection_is_not_logged_and_an_error_is(tmp_path: Path) -> None:
    config = tmp_path / "service.conf"
    config.write_text("[DEFAULT]\n")
    command = [sys.executable, "-W", "error", "-c", INTERRUPTED, str(config)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.count("Exception during reset or similar") == 1
    assert "OSError: the server is gone" in done.stderr
    assert "KeyboardInterrupt" not in done.stderr
