"""Twelve concurrent writers for a moment; ``tools/bench stress --database all --seconds 60`` is the long form.

``--least`` is the minimum number of transactions of each writer, so that the rare cases also occur on a busy machine.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "tools" / "bench_app.py"


def stress(url: str, seed: int) -> dict[str, Any]:
    given = ["--database", url, "--seed", str(seed), "--seconds", "3", "--least", "25"]
    command = [sys.executable, str(BENCH), "stress", "-f", "json", *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    figures: dict[str, Any]
    (figures,) = json.loads(done.stdout)["findings"]
    assert figures["wrong"] == [], (figures, done.stderr)
    assert done.returncode == 0
    return figures


@pytest.mark.quick_variants("postgresql")
@pytest.mark.slow
def test_twelve_writers_with_rollbacks_leave_no_gap(database_url: str, seed: int) -> None:
    figures = stress(database_url, seed)
    assert figures["committed"] > 50
    assert figures["raised"] > 0
    assert figures["violated"] > 0
    assert figures["rolled_back_after_counter"] > 0


@pytest.mark.long
@pytest.mark.slow
def test_naive_follower_misses_rows_on_postgresql(postgres_url: str, seed: int) -> None:
    """Ids of an autoincrement column are assigned before the commit, so that polling by ``id > last`` loses rows."""
    figures = stress(postgres_url, seed)
    assert figures["naive_missed"] > 0
