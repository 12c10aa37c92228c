"""What works before anything else could be imported, and how the process ends."""

import signal
import sys

import pytest

from pubsub_lib.cli.main import main


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [each for each in sys.modules if each.startswith(("cliff", "pubsub_lib.cli.app"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cliff", None)
    assert main(["tables"]) == 2
    assert capsys.readouterr().err.endswith("is not installed; run: pip install pubsub-lib[cli]\n")


def test_the_handler_of_sigterm_is_put_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    main(["--version"])
    assert signal.getsignal(signal.SIGTERM) is before
