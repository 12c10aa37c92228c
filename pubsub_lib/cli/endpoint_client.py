"""HTTP client for the endpoint of a running replica or service: bounded in time and bytes, whatever the server is."""

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from pubsub_lib.errors import ConfigError, TransportError
from pubsub_lib.http_routes import POST_HEADER

TIMEOUT: Final = 30.0
"""Seconds; a replica needs some seconds to count millions of objects."""
MAX_BYTES: Final = 1 << 28
"""Maximum number of bytes of one answer: some millions of objects."""
TOO_MANY: Final = 429
"""The HTTP status of a request that comes too soon after another one."""
_MAX_ERROR_BYTES: Final = 4096
"""Maximum number of bytes that are read of an error response."""


class EndpointClient:
    """The endpoint at one URL. Every method blocks for at most ``TIMEOUT``. Raises TransportError (not reached, or
    another program).
    """

    kind = "program"
    """What has the endpoint, for errors."""
    option = ""
    """The option with its port."""

    def __init__(self, url: str) -> None:
        """``url``: ``http://host:port``, or ``host:port``. Raises ConfigError."""
        wrong = f"{url!r} is not the URL of a {self.kind}"
        given = url if "://" in url else f"http://{url}"
        if not (given.isascii() and given.isprintable()) or " " in given:
            raise ConfigError(f"{wrong} (invalid characters); give http://HOST:PORT")
        try:
            parts = urllib.parse.urlsplit(given)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"{wrong} ({error}); give http://HOST:PORT") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
            raise ConfigError(f"{wrong}; give http://HOST:PORT, its {self.option}")
        self.url = given.rstrip("/")

    def _ask(self, method: str, path: str, query: Mapping[str, list[Any]]) -> Any:
        """The answer, decoded."""
        try:
            return json.loads(self._received(method, path, query))
        except ValueError as error:
            raise self._foreign() from error

    def _received(self, method: str, path: str, query: Mapping[str, list[Any]]) -> bytes:
        """The answer's body."""
        asked = urllib.parse.urlencode(query, doseq=True)
        request = urllib.request.Request(f"{self.url}{path}?{asked}", headers={POST_HEADER: "1"}, method=method)  # noqa: S310 - the scheme is checked
        try:
            code, body = self._when_due(request)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise TransportError(
                f"the {self.kind} at {self.url} cannot be reached ({reason}); check that it runs, and its {self.option}"
            ) from error
        except http.client.HTTPException as error:  # the server does not use HTTP
            raise self._foreign() from error
        if code is not None:
            raise self.refusal(code, body.decode(errors="replace").strip())
        return body

    def _when_due(self, request: urllib.request.Request) -> tuple[int | None, bytes]:
        """The exchange, repeated when the server asks for a pause that ends in time."""
        until = time.monotonic() + TIMEOUT
        while True:
            code, body, pause = self._exchange(request)
            if code != TOO_MANY or time.monotonic() + pause > until:
                return code, body
            time.sleep(pause)

    def _exchange(self, request: urllib.request.Request) -> tuple[int | None, bytes, float]:
        """(None, the answer, 0), or (the HTTP status, the text of an error response, seconds until the next try)."""
        until = time.monotonic() + TIMEOUT
        try:
            # No proxy: the request goes to the server directly, whatever proxy the environment sets.
            with _DIRECT.open(request, timeout=TIMEOUT) as answer:
                return None, self._body(answer, until), 0.0
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(_MAX_ERROR_BYTES), _seconds(error.headers.get("Retry-After"))

    def _body(self, answer: http.client.HTTPResponse, until: float) -> bytes:
        """The complete body. Size and time are limited, because the server may be any program."""
        parts, size = [], 0
        while part := answer.read1(1 << 16):
            size += len(part)
            if size > MAX_BYTES:
                raise self._foreign()
            if time.monotonic() > until:
                raise TimeoutError(f"its answer was not complete after {TIMEOUT:g} s")
            parts.append(part)
        return b"".join(parts)

    def refusal(self, code: int, text: str) -> Exception:
        """The error for a response with this status and this text."""
        if code in (404, 405):
            return self._foreign()
        return TransportError(f"the {self.kind} at {self.url} rejected the request ({code}): {text}")

    def _foreign(self) -> TransportError:
        return TransportError(
            f"the server at {self.url} is not a {self.kind} of this library; give the {self.kind}'s {self.option}"
        )


def _seconds(given: str | None) -> float:
    """A Retry-After header; 1 s for one that is no small number."""
    return float(given) if given is not None and given.isascii() and given.isdecimal() and len(given) < 4 else 1.0


_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
