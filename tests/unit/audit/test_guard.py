"""Exit codes and sentences of errors that end a command of ``pubsub-audit``."""

import os
import signal
from pathlib import Path

import pytest

from pubsub_lib.audit.guard import guarded, usable
from pubsub_lib.errors import ConfigError, JournalError


def raising(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (ConfigError("bound is 0; it must be at least 1"), 64, "bound is 0; it must be at least 1"),
        (JournalError("a.journal cannot\nbe read"), 32, "a.journal cannot be read"),
        (KeyboardInterrupt(), 130, "interrupted; run it again"),
        (
            ZeroDivisionError("x"),
            70,
            "internal error (ZeroDivisionError('x')); run it with --debug and report what it shows",
        ),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(
    error: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(lambda: raising(error), debug=False) == code
    assert capsys.readouterr() == ("", f"pubsub-audit: {sentence}\n")


def test_debug_shows_the_traceback_of_an_internal_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: raising(ZeroDivisionError("x")), debug=True) == 70
    assert "Traceback" in capsys.readouterr().err


def test_sigterm_is_143(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return 0

    assert guarded(command, debug=False) == 143
    assert capsys.readouterr().err == "pubsub-audit: interrupted; run it again\n"


def test_without_an_error_the_code_is_that_of_the_command() -> None:
    assert guarded(lambda: 5, debug=False) == 5


def test_error_of_the_system_names_its_file_or_the_folder() -> None:
    for error, named in ((PermissionError(13, "Permission denied", "out/x"), "out/x"), (OSError("gone"), "out")):
        with pytest.raises(ConfigError) as raised, usable(Path("out")):
            raise error
        why = error.strerror or error
        assert str(raised.value) == f"{named} cannot be used ({why}); check its permissions and its disk"
