"""Pages in a stream of bytes: each after its length in four bytes, and all together compressed by gzip (rule W6)."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pubsub_lib.errors import FrameError
from pubsub_lib.sync.pages import PAGE_BYTES
from pubsub_lib.threads.giving_way import giving_way

LENGTH: Final = 4
"""Bytes of a page's length, the highest first."""
GZIP: Final = 16 + zlib.MAX_WBITS
"""What zlib calls the format."""
_LEVEL: Final = 1
"""The fastest: JSON of one table compresses well at every level."""
_STEP: Final = 64 * 1024
"""Bytes that are uncompressed at once, and at least sent at once."""


def max_page_bytes(max_frame_bytes: int) -> int:
    """Maximum size of a page between programs with this option: one item above ``PAGE_BYTES``. An item, a value with
    its names, fits in a message; names may have four times as many bytes as characters.
    """
    return 4 * PAGE_BYTES + max_frame_bytes


class Member(NamedTuple):
    """Pages that are compressed as a stream of their own, whose parts can be sent again in another stream."""

    pages: Iterable[bytes]
    keep: Callable[[Sequence[bytes]], None]
    """Is called with the parts, when all pages were sent and these have at most ``max_bytes``."""
    max_bytes: int


class Ready(NamedTuple):
    """The parts that were kept of a :class:`Member`."""

    parts: Sequence[bytes]


Item = bytes | Member | Ready
"""A page, or more than one."""


def packed(pages: Iterable[bytes], *, gzip: bool) -> Iterator[bytes]:
    """The stream of these pages, in parts of at least 64 KiB, except the last one."""
    compress = zlib.compressobj(_LEVEL, zlib.DEFLATED, GZIP) if gzip else None
    waiting: list[bytes] = []
    size = 0
    for page in pages:
        for part in (len(page).to_bytes(LENGTH), page):
            made = part if compress is None else compress.compress(part)
            waiting.append(made)
            size += len(made)
        if size >= _STEP:
            yield b"".join(waiting)
            waiting, size = [], 0
    if compress is not None:
        waiting.append(compress.flush())
    yield b"".join(waiting)


def compressed(items: Iterable[Item]) -> Iterator[bytes]:
    """The stream of these items: several streams of gzip, one after the other."""
    following = iter(items)
    last: list[Member | Ready] = []

    def until_next() -> Iterator[bytes]:
        for item in following:
            if not isinstance(item, bytes):
                last.append(item)
                return
            yield item

    while True:
        yield from packed(until_next(), gzip=True)
        if not last:
            return
        item = last.pop()
        yield from item.parts if isinstance(item, Ready) else _kept(item)


def _kept(member: Member) -> Iterator[bytes]:
    parts: list[bytes] = []
    size = 0
    for part in packed(giving_way(member.pages), gzip=True):
        size += len(part)
        if size <= member.max_bytes:
            parts.append(part)
        yield part
    if size <= member.max_bytes:
        member.keep(parts)


def unpacked(parts: Iterable[bytes], max_page: int, max_total: int, *, gzip: bool) -> Iterator[bytes]:
    """The pages in a stream, which may hold any bytes. Never holds more than a page and a few parts uncompressed.

    Raises FrameError: ``oversized`` (a page has more than ``max_page`` bytes, or all have more than ``max_total``),
    ``truncated``, ``foreign`` (no gzip); and what ``parts`` raises.
    """
    buffer = bytearray()
    total = 0
    for plain in _gunzipped(parts) if gzip else parts:
        total += len(plain)
        if total > max_total:
            raise FrameError(f"a sync's answer has more than {max_total} bytes; raise max_sync_bytes", "oversized")
        buffer += plain
        begin = 0
        while len(buffer) - begin >= LENGTH:
            size = int.from_bytes(buffer[begin : begin + LENGTH])
            if size > max_page:
                raise FrameError(
                    f"a page of a sync's answer has {size} bytes, but at most {max_page} are allowed; use one value of "
                    "max_frame_bytes on all hosts",
                    "oversized",
                )
            if len(buffer) - begin - LENGTH < size:
                break
            begin += LENGTH
            yield bytes(buffer[begin : begin + size])
            begin += size
        del buffer[:begin]
    if buffer:
        raise FrameError("a sync's answer was cut off in the middle of a page", "truncated")


def _gunzipped(parts: Iterable[bytes]) -> Iterator[bytes]:
    expand = zlib.decompressobj(GZIP)
    for part in parts:
        rest, more = part, bool(part)
        while more:
            if expand.eof:  # prepared snapshots are streams of their own
                expand = zlib.decompressobj(GZIP)
            try:
                plain = expand.decompress(rest, _STEP)
            except zlib.error as error:
                raise FrameError(f"a sync's answer is not compressed by gzip: {error}", "foreign") from error
            rest = expand.unused_data if expand.eof else expand.unconsumed_tail
            more = bool(rest) or (len(plain) == _STEP and not expand.eof)  # more may wait inside
            yield plain
    if not expand.eof:
        raise FrameError("a sync's answer was cut off in the middle of its compressed bytes", "truncated")
