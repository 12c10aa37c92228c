"""A folder that another user may not search. The user of the tests may be root, who may search all folders."""

from pathlib import Path
from typing import Any

import pytest


def deny(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let the look at this path, and at all below it, fail as in a folder with mode 0700 of another user."""
    stat = Path.stat

    def denied(self: Path, **options: Any) -> Any:
        if self == path or path in self.parents:
            raise PermissionError(13, "Permission denied", str(self))
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", denied)
