"""The stream of pages: framing, compression, and every bound."""

import zlib
from collections.abc import Iterator
from random import Random

import pytest

from pubsub_lib.errors import FrameError
from pubsub_lib.sync import stream
from pubsub_lib.sync.stream import Member, compressed, max_page_bytes, packed, unpacked

PAGES = [b"", b"a", b"b" * 70_000, Random(1).randbytes(200_000), b"\0" * 300_000]
LARGE = 1 << 20


def parts(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("gzip", [False, True])
@pytest.mark.parametrize("size", [1, 1000, 65_536, LARGE])
def test_pages_are_read_as_they_were_packed(gzip: bool, size: int) -> None:
    pages = PAGES if size > 1 else PAGES[:2]
    data = b"".join(packed(pages, gzip=gzip))
    assert list(unpacked(parts(data, size), LARGE, LARGE, gzip=gzip)) == pages


def test_compressed_stream_is_ordinary_gzip_and_smaller() -> None:
    data = b"".join(packed(PAGES, gzip=True))
    assert len(data) < 210_000
    assert zlib.decompress(data, 31) == b"".join(packed(PAGES, gzip=False))


def test_packed_bytes_are_yielded_before_the_last_page_is_made() -> None:
    made: list[int] = []

    def pages() -> Iterator[bytes]:
        for number in range(20):
            made.append(number)
            yield Random(number).randbytes(100_000)

    next(packed(pages(), gzip=True))
    assert len(made) <= 2


def test_other_threads_run_between_the_pages_of_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    gave_way: list[bytes] = []

    def giving_way(pages: Iterator[bytes]) -> Iterator[bytes]:
        for page in pages:
            gave_way.append(page)
            yield page

    monkeypatch.setattr(stream, "giving_way", giving_way)
    kept: list[bytes] = []
    data = b"".join(compressed([b"before", Member(PAGES, kept.extend, LARGE)]))
    assert list(unpacked([data], LARGE, LARGE, gzip=True)) == [b"before", *PAGES]
    assert gave_way == PAGES
    assert list(unpacked(kept, LARGE, LARGE, gzip=True)) == PAGES


@pytest.mark.parametrize("gzip", [False, True])
def test_stream_that_is_cut_off_is_truncated(gzip: bool) -> None:
    data = b"".join(packed([b"abc", b"defgh"], gzip=gzip))
    whole = {0, 7, len(data)} if not gzip else {len(data)}
    for size in range(len(data) + 1):
        if size in whole:
            list(unpacked([data[:size]], LARGE, LARGE, gzip=gzip))
            continue
        with pytest.raises(FrameError) as caught:
            list(unpacked([data[:size]], LARGE, LARGE, gzip=gzip))
        assert caught.value.reason == "truncated"


def test_bytes_that_are_no_gzip_are_foreign() -> None:
    data = b"".join(packed([b"abc"], gzip=True))
    damaged = data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]  # its checksum
    for bad in (b"not gzip", data + b"not gzip", damaged):
        with pytest.raises(FrameError) as caught:
            list(unpacked([bad], LARGE, LARGE, gzip=True))
        assert caught.value.reason == "foreign"


def test_page_above_its_bound_is_refused_by_its_length() -> None:
    read = unpacked([(11).to_bytes(4) + b"x"], 10, LARGE, gzip=False)
    with pytest.raises(FrameError, match="a page of a sync's answer has 11 bytes, but at most 10") as caught:
        next(read)
    assert caught.value.reason == "oversized"


def test_small_bytes_that_become_large_ones_are_refused_without_becoming_them() -> None:
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    page = (1000).to_bytes(4) + b"\0" * 1000
    data = b"".join(bomb.compress(page * 1000) for _ in range(100)) + bomb.flush()
    assert len(data) < 1_000_000
    pages = unpacked([data], 1000, LARGE, gzip=True)
    count = 0
    with pytest.raises(FrameError, match=f"more than {LARGE} bytes; raise max_sync_bytes"):
        for _ in pages:
            count += 1
    assert count * 1004 <= LARGE


def test_largest_page_has_room_for_an_item_above_the_ordinary_size() -> None:
    assert max_page_bytes(1024) > 1024 + 256 * 1024
