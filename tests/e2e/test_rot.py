"""``tools/rot.py``: what rots in memory and in the database is right again within the stated time, read by buckets."""

from pathlib import Path

import rot

OBJECTS, WITHIN = 20_000, 6.0


def test_what_rots_is_repaired_within_the_time_and_little_is_read(tmp_path: Path) -> None:
    figures = list(rot.measure(str(tmp_path), OBJECTS, WITHIN))
    print(*figures, sep="\n")
    assert {(each.where, each.what, each.how) for each in figures} == {
        (where, what, how) for where in ("memory", "database") for what in rot.KINDS for how in ("idle", "writing")
    }
    for each in figures:
        assert each.seconds <= WITHIN, each
        assert each.read <= rot.SHARE * OBJECTS, each
