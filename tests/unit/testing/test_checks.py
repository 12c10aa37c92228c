"""The helpers of the checks fail when they must, because a check that cannot fail proves nothing."""

import os
import threading
from pathlib import Path

import pytest

from pubsub_lib.errors import TransportError
from pubsub_lib.testing import checks


def _raise(error: BaseException) -> None:
    raise error


def _hang() -> None:
    read, _ = os.pipe()
    os.read(read, 1)


def test_only_ours_accepts_only_pubsub_errors() -> None:
    checks.only_ours(lambda: _raise(TransportError("ours")))
    with pytest.raises(AssertionError, match="ValueError"):
        checks.only_ours(lambda: _raise(ValueError("theirs")))


def test_eventually_fails_after_its_patience() -> None:
    answers = iter([False, False, True])
    checks.eventually(lambda: next(answers), 10, "never")
    with pytest.raises(AssertionError, match="still not: it holds"):
        checks.eventually(lambda: False, 0.0, "it holds")


def test_all_at_once_fails_for_slow_and_raising_calls() -> None:
    checks.all_at_once([lambda: None] * 3, 60.0)
    stuck = threading.Event()
    try:
        with pytest.raises(AssertionError, match=r"longer than 0\.0 s"):
            checks.all_at_once([lambda: stuck.wait(30)], 0.0)
    finally:
        stuck.set()
    with pytest.raises(AssertionError, match="raised ValueError"):
        checks.all_at_once([lambda: _raise(ValueError("x"))], 60.0)


def test_in_a_fork_reports_the_childs_failure(tmp_path: Path) -> None:
    checks.in_a_fork(lambda: (tmp_path / "was here").touch(), 10)
    assert (tmp_path / "was here").exists()
    with pytest.raises(AssertionError, match="in a forked child: ValueError"):
        checks.in_a_fork(lambda: _raise(ValueError("x")), 10)
    with pytest.raises(AssertionError, match=r"hung for 0\.2 s"):
        checks.in_a_fork(_hang, 0.2)
