"""``tools/bench rot``: corruption in memory and in the database is repaired by reading buckets.

``tools/bench rot`` checks the time, which depends on the machine.
"""

from pathlib import Path

from _measurements import rot

OBJECTS, WITHIN, PATIENCE = 20_000, 6.0, 300.0


def test_corruption_is_repaired_with_few_reads(tmp_path: Path) -> None:
    figures = list(rot.figures(str(tmp_path), OBJECTS, WITHIN, limit=PATIENCE))
    print(*figures, sep="\n")
    assert {(each.where, each.what, each.how) for each in figures} == {
        (where, what, how) for where in ("memory", "database") for what in rot.KINDS for how in ("idle", "writing")
    }
    for each in figures:
        assert each.seconds <= PATIENCE, each
        assert each.read <= rot.SHARE * OBJECTS, each
