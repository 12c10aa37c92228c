"""Lines in files: valid content, errors of broken lines, and files that are complete or absent."""

import gzip
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pubsub_lib.cli.jsonl import BLANKS_PER_OBJECT, MAX_BLANKS, Line, Reader, created
from pubsub_lib.command.exit_codes import FileError
from pubsub_lib.core.limits import Limits
from pubsub_lib.store import Stored

LIMITS = Limits(max_value_bytes=1000)
GOOD = b'{"table":"t","key":"k","value":1}\n'


def read(path: Path | str) -> Sequence[tuple[int, Line]]:
    with Reader(str(path), LIMITS) as reader:
        return [(each.number, each.line) for each in reader.read()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "objects.jsonl"


def test_members(path: Path) -> None:
    path.write_bytes(
        b'{"table":"t","key":"k","topic":"p","value":{"a":"\xc3\xb6"},"version":3}\n'
        b"\n  \n"
        b'{"time":9.5,"action":"delete","table":"t","key":"k","value":null}\n'
        b'{"action":"create","table":"t","key":"k","value":null}'
    )
    assert read(path) == [
        (1, Line("t", "k", {"a": "ö"}, "p", version=3)),
        (4, Line("t", "k", action="delete", time=9.5)),
        (5, Line("t", "k", None, action="create")),
    ]


def test_gzip_by_name(tmp_path: Path) -> None:
    path = tmp_path / "objects.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD * 3))
    assert [number for number, _ in read(path)] == [1, 2, 3]


@pytest.mark.parametrize("blank", [b"\n", b" \r\n"])
def test_archive_of_blank_lines_is_refused_at_the_limit(tmp_path: Path, blank: bytes) -> None:
    """1 MB of such an archive is 1 GiB of lines, which took minutes of processor time."""
    path = tmp_path / "objects.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD + blank * 1_000_000))
    last = 1 + MAX_BLANKS + BLANKS_PER_OBJECT
    with Reader(str(path), LIMITS) as reader:
        lines = reader.read()
        assert next(lines).number == 1
        with pytest.raises(FileError, match=rf"line {last + 1} of .* {MAX_BLANKS} and {BLANKS_PER_OBJECT} for each"):
            next(lines)


def test_blank_lines_between_objects_are_read(path: Path) -> None:
    count = 2 * MAX_BLANKS // BLANKS_PER_OBJECT
    path.write_bytes((GOOD + b"\n" * BLANKS_PER_OBJECT) * count)
    assert len(read(path)) == count


def test_blank_lines_before_the_first_one_to_read_are_skipped(path: Path) -> None:
    path.write_bytes(b"\n" * (MAX_BLANKS + 1) + GOOD)
    with Reader(str(path), LIMITS) as reader:
        assert [each.number for each in reader.read(first=MAX_BLANKS)] == [MAX_BLANKS + 2]


def test_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD)))
    assert read("-") == [(1, Line("t", "k", 1))]
    assert not sys.stdin.buffer.closed


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{nonsense}", "malformed"),
        (b'{"table":"t","key":"k","value":1', "truncated"),
        (b'{"table":"t","value":1}', "missing required field `key`"),
        (b'{"table":"t","key":"k"}', "it has no member `value`"),
        (b'{"table":"t","key":"k","action":"set"}', "it has no member `value`"),
        (b'{"table":"t","key":7,"value":1}', "Expected `str`, got `int`"),
        (b'{"table":"t","key":"k","value":1,"colour":"red"}', "unknown field `colour`"),
        (b'{"table":"t","key":"k","value":1,"action":"update"}', "Invalid enum value 'update'"),
        (b'{"table":"t","key":"\xff","value":1}', "byte 21 of it is not UTF-8"),
        (b'{"table":"t","key":"\\ud83d","value":1}', "half a character"),
        (b'{"table":"t","key":"k","value":"\\ud83dx"}', "half a character"),
        (b'{"table":"t","key":"k","value":"\\udc00"}', "half a character"),
        (b'{"table":"t","key":"\\ud83d\\ude00","value":"\\\\ud800","no":1}', "unknown field `no`"),
        (b'["t","k",1]', "Expected `object`, got `array`"),
        (b'{"table":"t","key":"k","value":' + b"[" * 5000 + b"]" * 5000 + b"}", "recursion"),
        (b'{"table":"t","key":"k","value":"' + b"x" * 100_000 + b'"}', "longer than 73536 bytes"),
    ],
)
def test_reader_error_names_the_broken_line(line: bytes, reason: str, path: Path) -> None:
    path.write_bytes(GOOD * 2 + line + b"\n" + GOOD)
    seen: list[int] = []
    with Reader(str(path), LIMITS) as reader, pytest.raises(FileError) as caught:
        seen.extend(each.number for each in reader.read())
    assert seen == [1, 2]
    assert str(caught.value).startswith(f"line 3 of {path} is broken: ")
    assert reason.lower() in str(caught.value).lower()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xef\xbb\xbf" + GOOD, "byte order mark"),
        (GOOD.decode().encode("utf-16"), "UTF-16"),
        (b"\xfe\xff" + GOOD.decode().encode("utf-16-be"), "UTF-16"),
        (gzip.compress(GOOD, mtime=0), "a name that ends in .gz"),
    ],
    ids=["BOM", "UTF-16", "UTF-16 big-endian", "gzip"],
)
def test_error_names_a_wrong_encoding(data: bytes, reason: str, path: Path) -> None:
    path.write_bytes(data)
    with pytest.raises(FileError, match=f"^line 1 of .*{reason}"):
        read(path)


@pytest.mark.parametrize("more", [0, 1, 73536, 100_000, 3 * 73536 - 1, 3 * 73536])
def test_line_that_is_too_long_can_be_skipped(more: int, path: Path) -> None:
    long = b"x" * (73535 + more)
    path.write_bytes(GOOD + long + b"\n" + GOOD)
    with Reader(str(path), LIMITS) as reader:
        assert [each.number for each in reader.read(3)] == [3]
    path.write_bytes(GOOD + long)
    with Reader(str(path), LIMITS) as reader:
        assert list(reader.read(3)) == []


def test_last_occurrence_of_a_repeated_member_wins(path: Path) -> None:
    path.write_bytes(b'{"table":"t","key":"j","key":"k","value":0,"value":{"a":1,"a":2}}')
    assert read(path) == [(1, Line("t", "k", {"a": 2}))]


def test_whole_characters_in_escapes(path: Path) -> None:
    path.write_bytes(b'{"table":"t","key":"\\ud83d\\ude00","value":1}')
    assert read(path)[0][1].key == "\U0001f600"


@pytest.mark.parametrize("damaged", [True, False])
def test_archive_damage_and_broken_line_have_different_errors(damaged: bool, tmp_path: Path) -> None:
    path = tmp_path / "objects.jsonl.gz"
    # Level 0: stored without compression.
    packed = bytearray(gzip.compress(GOOD + (GOOD if damaged else b"{nonsense}\n") + GOOD, 0))
    if damaged:
        packed[packed.index(GOOD) + len(GOOD)] ^= 1
    path.write_bytes(packed)
    words = "is damaged .line 2 or before it.; copy it again" if damaged else "line 2 of .*; correct or remove it"
    with pytest.raises(FileError, match=words):
        read(path)


@pytest.mark.parametrize("cut", [-1, -9, 15])
def test_truncated_archive_is_an_error(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "objects.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD * 3)[:cut])
    with pytest.raises(FileError, match=r"cannot be read at line \d .*copy it again"):
        read(path)


def test_file_without_gzip_format_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "objects.jsonl.gz"
    path.write_bytes(GOOD)
    with pytest.raises(FileError, match="cannot be read at line 1"):
        read(path)


def test_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        read(tmp_path / "missing")
    with pytest.raises(FileError, match="Is a directory"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_written_lines_can_be_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for _ in range(2):  # and equal objects make equal bytes
        before = path.read_bytes() if path.exists() else None
        with created(str(path)) as writer:
            writer.write(Stored("t", "k", "p", 3, '{"a":"ö"}'.encode()))
            writer.write(Stored("t", "null", "p", 4, b"null"))
        assert before in (None, path.read_bytes())
    assert read(path) == [(1, Line("t", "k", {"a": "ö"}, "p", version=3)), (2, Line("t", "null", None, "p", version=4))]
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_interrupted_write_keeps_the_old_file(path: Path) -> None:
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), created(str(path)) as writer:
        writer.write(Stored("t", "k", "p", 3, b"1"))
        raise KeyboardInterrupt
    assert [each.read_bytes() for each in path.parent.iterdir()] == [b"old"]


@pytest.mark.parametrize("name", ["net.jsonl", "net.jsonl.gz"])
def test_new_file_is_for_its_user_only(name: str, tmp_path: Path) -> None:
    old = os.umask(0o022)  # the usual one, with which other users may read new files
    try:
        with created(str(tmp_path / name)) as writer:
            writer.write(Stored("t", "k", "p", 3, b"1"))
            (part,) = tmp_path.glob(".*.part")
            assert part.stat().st_mode & 0o777 == 0o600  # from its first byte on
    finally:
        os.umask(old)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o600, 0o440, 0o664])
def test_replaced_file_keeps_its_permissions(mode: int, path: Path) -> None:
    path.write_bytes(b"old")
    path.chmod(mode)
    with created(str(path)) as writer:
        writer.write(Stored("t", "k", "p", 3, b"1"))
        (part,) = path.parent.glob(".*.part")
        assert part.stat().st_mode & 0o777 == mode  # from its first byte on
    assert path.stat().st_mode & 0o777 == mode
    assert path.read_bytes() != b"old"


@pytest.mark.parametrize(("allowed", "mode"), [("all", 0o664), ("group", 0o664), ("nothing", 0o604)])
def test_owner_and_group_are_kept_where_that_is_allowed(
    allowed: str, mode: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[tuple[int, int]] = []

    def fchown(_descriptor: int, uid: int, gid: int) -> None:
        if allowed == "nothing" or (allowed == "group" and uid != -1):
            raise PermissionError
        owners.append((uid, gid))

    monkeypatch.setattr(os, "fchown", fchown)
    path.write_bytes(b"old")
    path.chmod(0o664)
    old = path.stat()
    with created(str(path)):
        pass
    wanted = {"all": [(old.st_uid, old.st_gid)], "group": [(-1, old.st_gid)], "nothing": []}
    assert (owners, path.stat().st_mode & 0o777) == (wanted[allowed], mode)


def test_symbolic_link_is_kept(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    path.symlink_to(tmp_path / "elsewhere" / "net.jsonl")
    with created(str(path)) as writer:
        writer.write(Stored("t", "k", "p", 3, b"1"))
    assert path.is_symlink()
    assert len(read(path)) == 1


@pytest.mark.parametrize("link", [False, True])
def test_pipe_and_deleted_file_of_a_descriptor_are_written_directly(link: bool, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    deleted = tmp_path / "deleted"
    for descriptor, source in [(write_end, read_end), (os.open(deleted, os.O_RDWR | os.O_CREAT), None)]:
        deleted.unlink(missing_ok=True)
        name = Path(f"/dev/fd/{descriptor}")
        if link:
            (tmp_path / "link").unlink(missing_ok=True)
            (tmp_path / "link").symlink_to(name)
            name = tmp_path / "link"
        with created(str(name)) as writer:
            writer.write(Stored("t", "k", "p", 3, b"1"))
        assert b'"key":"k"' in os.read(descriptor if source is None else source, 1000)
        os.close(descriptor)
        assert [each.name for each in tmp_path.iterdir()] == (["link"] if link else [])
    os.close(read_end)


def test_full_disk_and_missing_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No space left on device"), created("/dev/full") as writer:
        writer.write(Stored("t", "k", "p", 3, b"1"))
    assert Path("/dev/full").exists()
    with pytest.raises(FileError, match="No such file"), created(str(tmp_path / "no" / "out.jsonl")):
        pass
