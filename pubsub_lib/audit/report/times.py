"""Times of journals as text in UTC."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time(microseconds: int | None) -> str | None:
    """A wall as text, in a form that plotly understands; None when the wall is outside of the calendar."""
    if microseconds is None:
        return None
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).strftime("%Y-%m-%d %H:%M:%S.%f")
    except OverflowError:
        return None


def moment(microseconds: int) -> str:
    """A wall in ISO 8601 with microseconds; the number itself when it is outside of the calendar."""
    text = time(microseconds)
    return str(microseconds) if text is None else f"{text.replace(' ', 'T')}Z"
