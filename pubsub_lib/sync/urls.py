"""The URLs of sync channels: those of the option ``sync_url``, or those that a function knows now."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from pubsub_lib.errors import ConfigError
from pubsub_lib.exposure import is_loopback_host
from pubsub_lib.logs import logger

_log = logger(__name__)

PATH: Final = "/sync"
"""The path at which services answer syncs."""
_PORTS: Final = {"http": 80, "https": 443}


class ChannelUrl(NamedTuple):
    """One URL, checked."""

    tls: bool
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        """For messages; it contains no secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"


KnownUrls = Callable[[], Sequence[ChannelUrl]]
"""The URLs that are known now, at least one. Raises StoreUnavailable when there is none. Any thread."""


def known_urls(urls: str | KnownUrls) -> KnownUrls:
    """A function for both kinds of URLs. Raises ConfigError for a text with an invalid URL."""
    if not isinstance(urls, str):
        return urls
    fixed = channel_urls(urls)
    return lambda: fixed


def channel_urls(text: str, option: str = "sync_url") -> tuple[ChannelUrl, ...]:
    """The URLs in a text, separated by commas. Raises ConfigError for an invalid one, and when there is none.
    ``option``: the text is of this option.
    """
    try:
        found = tuple(_channel(each.strip()) for each in text.split(",") if each.strip())
        if not found:
            raise ValueError("names no URL")
    except ValueError as error:
        # The URL is not repeated: it may hold a password.
        raise ConfigError(f"a URL in {option} {error}; write it like http://127.0.0.1:8867") from None
    return found


def warn_of_plain_channels(text: str) -> None:
    """:func:`warn_of_plain` for the URLs of ``sync_url``."""
    warn_of_plain(channel_urls(text))


def warn_of_plain(urls: Iterable[ChannelUrl]) -> None:
    """Log a warning that names the URLs whose answers a program in between can read and change."""
    plain = ", ".join(str(each) for each in urls if not each.tls and not is_loopback_host(each.host))
    if plain:
        _log.warning(
            "the sync channel %s is not encrypted, and its server is not verified: a program in between can read and "
            "change all objects; use https, or a network that only trusted hosts can use (docs/security.md)",
            plain,
        )


def _channel(text: str) -> ChannelUrl:
    """One URL. Raises ValueError, with what is wrong as the end of a sentence."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("cannot be read") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("names neither http nor https and a host")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("has a user, a query or a fragment, which have no use here")
    if any(not "!" <= each <= "~" for each in text):
        raise ValueError("holds a space or a character beyond ASCII")
    path = PATH if parts.path in ("", "/") else parts.path
    return ChannelUrl(parts.scheme == "https", parts.hostname, _PORTS[parts.scheme] if port is None else port, path)
