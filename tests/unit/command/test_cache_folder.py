"""The user's cache folder."""

from pathlib import Path

import pytest

from pubsub_lib.command.cache_folder import cache_folder
from pubsub_lib.errors import ConfigError


def test_cache_folder_is_in_the_named_folder_or_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert cache_folder() == tmp_path / "c" / "pubsub_lib"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == tmp_path / ".cache" / "pubsub_lib"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "pubsub_lib"


def test_user_without_a_home_folder_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ConfigError, match="no home folder for a cache; set XDG_CACHE_HOME"):
        cache_folder()
