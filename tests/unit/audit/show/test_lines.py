"""Records as lines for people and for programs."""

import json
from pathlib import Path

import msgspec
import pytest

from pubsub_lib.audit.show.files import JournalFile
from pubsub_lib.audit.show.lines import json_line, moment, summary, table_line, title
from pubsub_lib.audit.show.source import Source
from pubsub_lib.journal.rows import COLUMNS, ChangeRow, Row

ROW = Row(
    side="replica", name="r1", host="h1", run="ab" * 16, number=5, kind="data", wall=1_764_150_000_123_999, mono=7,
    service="s1", uuid="cd" * 16, topic="t1", sequence=11, position=21, nonce=3, part=1, parts=1, outcome="applied",
    cause="s1", size=9, count=40, changes=(ChangeRow("lport", "p1", 8, "set", 1, 9, 7),),
)  # fmt: skip
HOSTILE = "\x1b[2J\x9b31m\u202e\n"


def changed(**values: object) -> Row:
    return msgspec.structs.replace(ROW, **values)


def line(row: Row) -> list[str]:
    return table_line(row, row.changes).split()


def source(row: Row | None, path: str = "a.journal", part: int = 2, parts: int = 3) -> Source:
    made = Source(JournalFile(Path(path), "ab" * 16, part, parts))
    made.first = row
    return made


def test_line_of_a_message_has_its_object_and_versions() -> None:
    expected = "2025-11-26T09:40:00.123Z 5 data applied t1 11 21 lport/p1 set 7->8 s1 cdcdcdcd"
    assert " ".join(line(ROW)) == expected


def test_columns_are_below_their_titles() -> None:
    text = table_line(ROW, ROW.changes)
    names = title()
    for name, value in (
        ("time", "2025"),
        ("record", "data"),
        ("topic", "t1"),
        ("object", "lport/"),
        ("version", "7->8"),
    ):
        assert names.index(name) == text.index(value)
    for name, value in (("number", "5  data"), ("sequence", "11  "), ("position", "21  ")):
        assert names.index(name) + len(name) == text.index(value) + len(value.split()[0])


def test_longer_text_is_not_cut() -> None:
    assert "t" * 300 in table_line(changed(topic="t" * 300), ROW.changes)


def test_wide_characters_keep_the_columns() -> None:
    one, other = table_line(changed(topic="\u540d"), ROW.changes), table_line(changed(topic="ab"), ROW.changes)
    assert len(one) == len(other) - 1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"changes": (*ROW.changes, ChangeRow("lport", "p2", 9, "delete", 0, 0))}, "1 of 2 objects"),
        ({"part": 2, "parts": 3}, "part 2 of 3"),
        ({"outcome": "dropped", "cause": "retired"}, "cdcdcdcd retired"),
        ({"kind": "reject", "outcome": "", "cause": "oversized", "count": 4, "changes": ()}, "oversized, count 4"),
        ({"kind": "sync_end", "outcome": "full", "cause": "", "count": 4, "changes": ()}, "count 4, 9 bytes"),
        ({"kind": "ask", "outcome": "", "cause": "", "count": 0, "peer": "77"}, "peer 77"),
    ],
)
def test_note_has_what_the_kind_uses(values: dict[str, object], words: str) -> None:
    assert " ".join(line(changed(**values))).endswith(words)


def test_line_of_a_mark_has_no_zeros() -> None:
    mark = Row(side="replica", name="r1", host="h1", run="ab", number=1, kind="mark", wall=0, mono=0)
    assert line(mark) == ["1970-01-01T00:00:00.000Z", "1", "mark"]


def test_json_has_all_columns_the_time_and_the_file() -> None:
    found = json.loads(json_line(source(ROW), ROW))
    assert list(found) == ["time", "file", *COLUMNS]
    assert (found["time"], found["file"], found["wall"]) == ("2025-11-26T09:40:00.123Z", "a.journal", ROW.wall)
    assert found["changes"] == [
        {"table": "lport", "key": "p1", "version": 8, "action": "set", "hash": 1, "size": 9, "before": 7}
    ]


def test_control_characters_are_escaped() -> None:
    evil = changed(
        topic=HOSTILE, service=HOSTILE, uuid=HOSTILE, cause=HOSTILE, outcome="dropped", peer=HOSTILE, kind=HOSTILE,
        name=HOSTILE, host=HOSTILE, changes=(ChangeRow(HOSTILE, HOSTILE, 1, HOSTILE, 0, 0),),
    )  # fmt: skip
    lines = [table_line(evil, evil.changes), json_line(source(evil), evil), summary(source(evil, f"{HOSTILE}.journal"))]
    assert all(each.isprintable() for each in lines)
    assert json.loads(lines[1])["topic"] == HOSTILE


def test_name_of_a_file_may_hold_any_bytes() -> None:
    found = source(ROW, "\udcff.journal")
    assert json.loads(json_line(found, ROW))["file"] == "\\udcff.journal"
    assert summary(found).startswith("\\udcff.journal: ")


def test_summary_names_the_participant_and_its_parts() -> None:
    who = f"a.journal: replica r1 on h1, run {'ab' * 16}"
    assert summary(source(changed(kind="open"))) == f"{who}, part 2 (3 in its folder), begins 2025-11-26T09:40:00.123Z"
    assert summary(source(ROW, part=0, parts=1)) == f"{who}, continues 2025-11-26T09:40:00.123Z"
    growing = source(ROW)
    growing.growing = True
    assert summary(growing).endswith("continues 2025-11-26T09:40:00.123Z, being written")
    assert summary(source(None)) == "a.journal: no record"


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_764_150_000_000_999, "2025-11-26T09:40:00.000Z"),
        (2**63 - 1, str(2**63 - 1)),
        (2**64 * 1000, str(2**64 * 1000)),
    ],
)
def test_moment_is_utc_with_milliseconds(micros: int, text: str) -> None:
    assert moment(micros) == text
