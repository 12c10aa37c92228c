"""Closing several parts, of which some may fail or be interrupted."""

from collections.abc import Callable


def close_all(*steps: Callable[[], object] | None) -> None:
    """Take all steps in this order (None: no step), also after one that raised. Raises the last one's exception at the
    end, with those before as its context.

    So Ctrl-C, or a third-party driver whose ``close`` raises, leaves nothing open in an object whose ``close`` does its
    work only once.
    """
    if not steps:
        return
    first, *others = steps
    try:
        if first is not None:
            first()
    finally:
        close_all(*others)
