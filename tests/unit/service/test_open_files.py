"""The soft limit of open files becomes the hard one."""

import resource

import pytest

from pubsub_lib.service import open_files


def test_soft_limit_is_raised_to_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    with caplog.at_level("INFO", "pubsub_lib.service.open_files"):
        assert open_files.raise_limit() == 4096
        assert open_files.raise_limit() == 4096
    assert limits == [(1024, 4096), (4096, 4096)]
    assert caplog.messages == ["raised the limit of open files from 1024 to 4096"]


def test_limit_that_cannot_be_raised_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert open_files.raise_limit() == 1024
    assert "stays at 1024, and 4096 is not allowed" in caplog.text
