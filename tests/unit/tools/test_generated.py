"""The common part of all generators: write the page, or report that it is stale."""

from pathlib import Path

import pytest
from _generated import our_drivers, write_or_check


def test_check_finds_a_stale_page_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "states.md"
    assert write_or_check(page, "text", ["--check"]) == 1
    assert "states.md is stale; run tools/" in capsys.readouterr().err
    assert not page.exists()
    assert write_or_check(page, "text", []) == 0
    assert write_or_check(page, "text", ["--check"]) == 0
    assert write_or_check(page, "another text", ["--check"]) == 1
    assert page.read_text(encoding="utf-8") == "text"


def test_mistyped_argument_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write_or_check(tmp_path / "states.md", "text", ["--chek"]) == 2
    assert "--check" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_our_drivers_are_those_of_setup_cfg() -> None:
    assert {"memory", "db_polling_pubsub_driver"} <= set(our_drivers())
