"""What the journals of real replicas show after a restore: no participant is accused."""

from collections import Counter
from pathlib import Path

import pytest

from tests.unit.audit import restored


@pytest.mark.parametrize("how", restored.HOW)
def test_publications_of_an_undone_history_are_unknown(tmp_path: Path, how: str) -> None:
    world, one = restored.run(tmp_path / how, how)
    assert Counter(row.verdict for row in one.store()) == {"unknown": world.undone - world.backup}


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("how", restored.HOW)
def test_no_replica_is_accused_after_a_restore(tmp_path: Path, how: str, *, ends: bool) -> None:
    """Also not while its last listing is of the undone history."""
    _, one = restored.run(tmp_path / how, how, ends=ends)
    assert one.bits() == 32
    assert one.state() == []


@pytest.mark.parametrize("how", restored.HOW)
def test_deliveries_below_the_old_position_are_judged_after_a_restore(tmp_path: Path, how: str) -> None:
    world, one = restored.run(tmp_path / how, how)
    found = Counter((row.name, row.verdict) for row in one.delivery() if row.nonce in world.new)
    assert {verdict for _, verdict in found} == {"ok"}
    assert found["polls", "ok"] == found["every", "ok"] == len(world.new)
