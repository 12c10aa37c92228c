"""Hide passwords in texts for people: in URLs, settings and error messages of other libraries."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

HIDDEN: Final = "hidden"
_SECRET: Final = ("password", "passwd", "secret", "token", "credential", "private_key", "api_key")
"""An option or query parameter whose name contains one of these is secret."""

# A password may contain any character, although a URL must escape some. So what is hidden ends at the last @ of the
# word; when the word has none, it ends at the last @ of the line, unless the word is a port.
_IN_URL: Final = re.compile(r"(?P<before>://[^\s:/@'\"]*:)(?:\S*@|(?!\d[^\s@]*(?:\s|$)).*@)")
_WHOLE_URL: Final = re.compile(r"^(?P<before>[\w+.-]+://[^\s:/@'\"]*:).*@", re.DOTALL)
_IN_QUERY: Final = re.compile(
    rf"(?P<before>[?&][^=&\s]*(?:{'|'.join(_SECRET)})[^=&\s]*=)[^&\s'\"]+(?:['\"]+[^&\s'\",;)\]}}]+)*", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """Whether an option of this name is secret, judged by the name alone."""
    return any(each in name.lower() for each in _SECRET)


def masked(text: str) -> str:
    """The text without the passwords of the URLs in it, those in their queries included."""
    return _in_query(_IN_URL.sub(r"\g<before>***@", text))


def masked_url(text: str) -> str:
    """As :func:`masked` for a text that is one URL: its password may hold any character."""
    return _in_query(_WHOLE_URL.sub(r"\g<before>***@", text))


def has_password(url: str) -> bool:
    """Whether this URL contains a password."""
    return masked_url(url) != url


def masked_value(name: str, value: object) -> object:
    """A setting's value as it may be shown, of any type, for a ``repr``."""
    if is_secret(name) and value:
        return HIDDEN
    if isinstance(value, str):
        return masked_url(value) if _WHOLE_URL.match(value) else masked(value)
    if isinstance(value, Mapping):
        return {inner: masked_value(str(inner), each) for inner, each in value.items()}
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return type(value)(masked_value(name, each) for each in value)
    return value


def masked_fields(names: Sequence[str], of: object) -> list[tuple[str, Any]]:
    """(name, value to show) of these attributes, for a ``__rich_repr__``."""
    return [(name, masked_value(name, getattr(of, name))) for name in names]


def masked_repr(names: Sequence[str], of: object) -> str:
    """The text of these attributes, for a ``__repr__``."""
    shown = ", ".join(f"{name}={value!r}" for name, value in masked_fields(names, of))
    return f"{type(of).__name__}({shown})"


def _in_query(text: str) -> str:
    return _IN_QUERY.sub(rf"\g<before>{HIDDEN}", text)
