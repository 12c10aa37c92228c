"""``tools/bench rot``: corruption in memory and in the database is repaired in the stated time, by reading buckets."""

from pathlib import Path

from _measurements import rot

OBJECTS, WITHIN = 20_000, 6.0


def test_corruption_is_repaired_within_the_time_and_with_few_reads(tmp_path: Path) -> None:
    figures = list(rot.figures(str(tmp_path), OBJECTS, WITHIN))
    print(*figures, sep="\n")
    assert {(each.where, each.what, each.how) for each in figures} == {
        (where, what, how) for where in ("memory", "database") for what in rot.KINDS for how in ("idle", "writing")
    }
    for each in figures:
        assert each.seconds <= WITHIN, each
        assert each.read <= rot.SHARE * OBJECTS, each
