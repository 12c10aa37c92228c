"""The file of ``--expect`` names participants; an invalid line is an error with its number."""

from pathlib import Path

import pytest

from pubsub_lib.audit.ingest.expected import Expected, absent, read_expected
from pubsub_lib.errors import ConfigError


def test_file_names_participants_once_and_has_comments(tmp_path: Path) -> None:
    path = tmp_path / "who"
    path.write_text("# all\nreplica r-1\n\n  service   s 1  # the only one\nwriter w#1\nreplica r-1\n")
    assert read_expected(path) == [("replica", "r-1"), ("service", "s 1"), ("writer", "w#1")]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"replica r\nstore x\n", r"who:2 is not a side \(writer, service, relay, replica\) and a name; write 'repl"),
        (b"replica\n", r"who:1 is not a side"),
        (b"# nothing\n", "names no participant"),
        (b"replica \xff\n", "is not a text in UTF-8"),
    ],
)
def test_invalid_file_is_refused(tmp_path: Path, content: bytes, error: str) -> None:
    (tmp_path / "who").write_bytes(content)
    with pytest.raises(ConfigError, match=error):
        read_expected(tmp_path / "who")


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone cannot be read \(No such file or directory\)"):
        read_expected(tmp_path / "gone")


def test_absent_participants_are_named_in_the_order_of_the_file() -> None:
    expected = [("writer", "w"), ("replica", "r"), ("replica", "w")]
    assert absent(expected, {("replica", "w")}) == [
        f"the {who} is expected (--expect) and has no journal; add its journals, or correct the file"
        for who in ("writer w", "replica r")
    ]


def test_absent_participant_is_reported_once_and_absent_until_it_appears() -> None:
    expected = Expected([("replica", "r"), ("replica", "s")])
    expected.look(set())
    r, s = expected.unreported()
    assert (expected.absent, expected.unreported()) == ([r, s], [])
    expected.look({("replica", "r")})
    assert (expected.absent, expected.unreported()) == ([s], [])
