"""A lake without results."""

from pathlib import Path

import pytest

from pubsub_lib.audit.lake.folder import prepare
from tests.unit.audit.lake.additions import WINDOW


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """The folder of an empty lake."""
    prepare(tmp_path / "lake", WINDOW)
    return tmp_path / "lake"
