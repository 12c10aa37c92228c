"""The outermost frame of a command."""

import pytest

from pubsub_lib.command.entry import report_error, run
from pubsub_lib.command.signals import Terminated


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt(), 130), (Terminated(), 143)])
def test_an_interrupt_ends_a_command_without_output(
    raised: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> int:
        raise raised

    assert run("some-command", command) == code
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("hint", "sentence"),
    [("", "internal error (KeyError('x'))"), ("report it", "internal error (KeyError('x')); report it")],
)
def test_an_unhandled_exception_is_one_sentence(hint: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise KeyError("x")

    assert run("some-command", command, hint) == 70
    assert capsys.readouterr() == ("", f"some-command: {sentence}\n")


def test_the_commands_exit_code_is_returned() -> None:
    assert run("some-command", lambda: 3) == 3


def test_a_reported_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    report_error("some-command", "two\n lines")
    assert capsys.readouterr().err == "some-command: two lines\n"
