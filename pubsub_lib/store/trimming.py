"""Removes the oldest links of the changelog, whole transactions, in short transactions of the database."""

from collections.abc import Iterator
from functools import partial

from pubsub_lib.arguments import check_kind
from pubsub_lib.core.limits import MAX_LINKS
from pubsub_lib.core.timing import MAX_SECONDS
from pubsub_lib.errors import InvalidValueError
from pubsub_lib.store import changelog
from pubsub_lib.store.retry import Run


def batches(reading: Run, writing: Run, keep_links: int | None, keep_seconds: float | None) -> Iterator[int]:
    """Remove links until every given bound holds; yields after each transaction how many it removed. ``reading`` and
    ``writing`` run a function in a transaction. Invalid bounds raise InvalidValueError or UsageError at once; each item
    may raise StoreError.
    """
    if keep_links is not None:
        check_kind("keep_links", keep_links, int, "an integer, or None")
    if keep_seconds is not None:
        check_kind("keep_seconds", keep_seconds, (int, float), "a number of seconds, or None")
    if not (0 <= (keep_links or 0) <= MAX_LINKS and 0 <= (keep_seconds or 0) <= MAX_SECONDS):
        raise InvalidValueError(
            f"trimming to {keep_links} links or {keep_seconds} s is not possible; give at most {MAX_LINKS} links "
            f"and {MAX_SECONDS:.0f} s, and nothing below 0"
        )
    return _removed(reading, writing, keep_links, None if keep_seconds is None else round(keep_seconds * 1e6))


def _removed(reading: Run, writing: Run, keep_links: int | None, keep_us: int | None) -> Iterator[int]:
    cut = -1
    if keep_links is not None:
        # Once for all batches: the query walks over all links to keep. Links written meanwhile are not removed.
        cut = reading("trimming", partial(changelog.cut_by_count, keep=keep_links))
    while removed := writing("trimming", partial(changelog.trim_batch, cut=cut, keep_us=keep_us)):
        yield removed
