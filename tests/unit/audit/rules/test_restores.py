"""What the journals of real replicas show after a restore: nobody is accused."""

from collections import Counter
from pathlib import Path

import pytest

from tests.unit.audit import restored


@pytest.mark.parametrize("how", restored.HOW)
def test_publications_of_an_undone_history_are_unknown(tmp_path: Path, how: str) -> None:
    world, one = restored.run(tmp_path / how, how)
    assert Counter(row.verdict for row in one.store()) == {"unknown": world.undone - world.backup}
