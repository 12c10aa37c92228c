"""Objects as JSON lines in files: plain, gzip by name, or the standard streams."""

import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Literal, cast

import msgspec

from pubsub_lib.cli.prompts import STANDARD, longest
from pubsub_lib.command.exit_codes import FileError
from pubsub_lib.core.limits import Limits
from pubsub_lib.store import Stored

MAX_BLANKS: Final = 10_000
"""Maximum number of blank lines of a file without objects."""
BLANKS_PER_OBJECT: Final = 10
"""Number of further blank lines for each object before them. So blank lines never cost more time than the objects."""
_DAMAGE: Final = (OSError, EOFError, zlib.error)
_MARKS: Final = {
    b"\xef\xbb\xbf": "it begins with a byte order mark; write the file as UTF-8 without one",
    b"\xff\xfe": "the file is UTF-16; write it as UTF-8",
    b"\xfe\xff": "the file is UTF-16; write it as UTF-8",
    b"\x1f\x8b": "the file is a gzip archive; give it a name that ends in .gz",
}
"""First bytes of files in a wrong encoding or with a wrong name, and the error for each."""
_HALF: Final = re.compile(
    rb"(?<!\\)\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})(?<!\\)\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
"""The escape of half a character: a high surrogate without a low one, or a low surrogate without a high one."""


class Line(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One line of a file: an object to write or, with ``action`` "delete", an object to delete.

    ``create`` and ``set`` mean the same, so that a file can be loaded again. ``version`` (of an export) and ``time``
    (of a recording) are ignored.
    """

    table: str
    key: str
    value: Any = None
    topic: str | None = None
    action: Literal["set", "create", "delete"] = "set"
    version: int | None = None
    time: int | float | None = None


class Numbered(msgspec.Struct, frozen=True, gc=False):
    """A line with its number in the file, from 1, and its bytes."""

    number: int
    data: bytes
    line: Line


class _Given(msgspec.Struct, frozen=True, gc=False):
    """Distinguishes a missing value from null."""

    value: msgspec.Raw = msgspec.Raw()


class _Exported(msgspec.Struct, frozen=True, gc=False):
    table: str
    key: str
    topic: str
    version: int
    value: msgspec.Raw


class Reader:
    """The lines of a file, with their numbers, in bounded memory. A context manager; one thread."""

    def __init__(self, name: str, limits: Limits) -> None:
        """Raises FileError when the file cannot be opened."""
        self.name = "the standard input" if name == STANDARD else name
        self.size: int | None = None
        """Bytes of the file; None when the size is unknown."""
        self._longest = longest(limits)
        self._decoder = msgspec.json.Decoder(Line)
        self._given = msgspec.json.Decoder(_Given)
        try:
            self._raw: IO[bytes] = sys.stdin.buffer if name == STANDARD else Path(name).open("rb")  # noqa: SIM115 - __exit__ closes it
        except OSError as error:
            raise FileError(f"the file {name} cannot be read ({error.strerror}); name a readable file") from error
        if name != STANDARD:
            self.size = os.fstat(self._raw.fileno()).st_size or None
        self._packed = name.endswith(".gz")
        unpacked = gzip.GzipFile(fileobj=self._raw) if self._packed else self._raw
        self._lines = cast("IO[bytes]", unpacked)

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    def read(self, first: int = 1) -> Iterator[Numbered]:
        """The lines from number ``first`` on, without blank ones. Raises FileError, naming the line that is broken.

        Lines before ``first`` are not parsed, so that a broken line can be skipped. Too many blank lines are refused:
        one megabyte of a gzip archive can contain a billion of them.
        """
        number, allowed = 0, MAX_BLANKS
        while True:
            number += 1
            try:
                data = self._lines.readline(self._longest)
                while number < first and len(data) >= self._longest and not data.endswith(b"\n"):
                    data = self._lines.readline(self._longest)  # the rest of a line that is skipped
            except _DAMAGE as error:
                raise FileError(f"{self.name} cannot be read at line {number} ({error}); copy it again") from error
            if not data:
                return
            if number < first:
                continue
            if len(data) >= self._longest:
                raise self.broken(number, f"it is longer than {self._longest} bytes")
            if data.strip():
                allowed += BLANKS_PER_OBJECT
                yield self.numbered(number, data)
                continue
            allowed -= 1
            if allowed < 0:
                maximum = f"{MAX_BLANKS} and {BLANKS_PER_OBJECT} for each object before them"
                raise self.broken(number, f"more lines are blank than the maximum, {maximum}")

    def numbered(self, number: int, data: bytes) -> Numbered:
        """The parsed line of these bytes. Raises FileError."""
        return Numbered(number, data, self._parse(number, data))

    def at(self) -> int:
        """Number of bytes of the file that were read so far."""
        return 0 if self.size is None else self._raw.tell()

    def broken(self, number: int, reason: str) -> FileError:
        """The error for a line that cannot be parsed or written."""
        return FileError(f"line {number} of {self.name} is broken: {reason}; correct or remove it")

    def _parse(self, number: int, data: bytes) -> Line:
        try:
            line = self._decoder.decode(data)
            missing = line.value is None and not bytes(self._given.decode(data).value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if self._packed and not self._whole():
                raise FileError(f"{self.name} is damaged (line {number} or before it); copy it again") from error
            reason = _encoding(number, data) or " ".join(str(error).split()).rstrip(".")
            raise self.broken(number, reason) from error
        if missing and line.action != "delete":
            raise self.broken(number, "it has no member `value`")
        return line

    def _whole(self) -> bool:
        """Whether the rest of the archive matches its checksum, which is at its end. Reads all of it."""
        try:
            while self._lines.read(1 << 18):
                pass
        except _DAMAGE:
            return False
        return True


def _encoding(number: int, data: bytes) -> str | None:
    """What is wrong with the encoding of a line; None when the encoding is right."""
    for mark, what in _MARKS.items() if number == 1 else ():
        if data.startswith(mark):
            return what
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"byte {error.start + 1} of it is not UTF-8"
    if _HALF.search(data) is not None:
        return "an escape like \\ud800 is half a character; write both halves, or the character itself"
    return None


class Writer:
    """Writes objects as lines. :func:`created` makes it."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._encoder = msgspec.json.Encoder()
        self.lines = 0

    def write(self, item: Stored) -> None:
        """Write one line in the format of ``load``. Raises OSError."""
        line = _Exported(item.table, item.key, item.topic, item.version, msgspec.Raw(item.value))
        self._out.write(self._encoder.encode(line) + b"\n")
        self.lines += 1


@contextmanager
def created(name: str) -> Iterator[Writer]:
    """A file that exists, and is complete, only after the block succeeded. Until then an older file stays unchanged.

    The new file gets the owner, group and permissions of the file that it replaces, so that a user who could not read
    the old file cannot read the new one.
    The standard output, a device or a pipe is written directly. Raises FileError; BrokenPipeError for a closed pipe.
    """
    if name == STANDARD:
        yield Writer(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    given = Path(name)
    path = given.resolve()  # the target of a symbolic link; the link stays
    old = path.stat() if path.is_file() else None
    # The path of a shell's pipe, such as /dev/fd/63, can be opened; the target of that link is no path.
    direct = old is None and given.exists()
    target = given if direct else path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # It contains the objects, so only this user may open the file, unless an old one had other permissions.
        descriptor = os.open(target, os.O_WRONLY | os.O_TRUNC | (0 if direct else os.O_CREAT), 0o600)
        with os.fdopen(descriptor, "wb") as raw:
            if old is not None:
                _make_like(old, raw.fileno())
            # Without name and time in the header, so that equal objects give equal files.
            packed = gzip.GzipFile("", "wb", 6, raw, mtime=0) if name.endswith(".gz") else None
            out = io.BufferedWriter(cast("Any", packed), 1 << 18) if packed is not None else raw
            yield Writer(cast("IO[bytes]", out))
            out.flush()
            if packed is not None:
                packed.close()
            raw.flush()
            if not direct:
                os.fsync(raw.fileno())
        if not direct:
            target.replace(path)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileError(f"the file {name} cannot be written ({error.strerror}); no partial file is left") from error
    finally:
        if not direct:
            target.unlink(missing_ok=True)


def _make_like(old: os.stat_result, descriptor: int) -> None:
    """Give a file the owner, group and permissions of another one, as far as this user may. Raises OSError."""
    mode = old.st_mode & 0o777
    try:
        os.fchown(descriptor, old.st_uid, old.st_gid)
    except PermissionError:
        try:
            os.fchown(descriptor, -1, old.st_gid)
        except PermissionError:
            mode &= ~0o070  # the permissions were meant for another group
    os.fchmod(descriptor, mode)
