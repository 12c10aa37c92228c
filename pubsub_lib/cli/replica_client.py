"""HTTP client for a running replica's endpoint: read the contents of a topic and the status, and request a resync."""

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from pubsub_lib.core.model import Point
from pubsub_lib.core.quarantine import QuarantinedPublisher
from pubsub_lib.errors import ConfigError, NotSubscribedError, TransportError
from pubsub_lib.http_routes import POST_HEADER

TIMEOUT: Final = 30.0
"""Seconds; a replica needs some seconds to count millions of objects."""
MAX_BYTES: Final = 1 << 28
"""Maximum number of bytes of one answer: some millions of objects."""
TOO_MANY: Final = 429
"""The HTTP status of a request that comes too soon after another one."""
_MAX_ERROR_BYTES: Final = 4096
"""Maximum number of bytes that are read of an error response."""

Fingerprints = Mapping[tuple[str, str], tuple[int, int]]
"""(table, key) -> (version, fingerprint)."""


class ReplicaAnswer(msgspec.Struct, frozen=True):
    """A replica's answer about a topic, counted from its values."""

    state: str
    known: Point | None
    staleness: float | None
    objects: int
    digest: int
    buckets: Mapping[int, int]


class ReplicaClient:
    """The endpoint at one URL. Every method blocks for at most ``TIMEOUT``. Raises TransportError (not reached, or not
    a replica), NotSubscribedError (the replica is not subscribed to the topic).
    """

    def __init__(self, url: str) -> None:
        """``url``: ``http://host:port``, or ``host:port``. Raises ConfigError."""
        given = url if "://" in url else f"http://{url}"
        if not (given.isascii() and given.isprintable()) or " " in given:
            raise ConfigError(f"{url!r} is not the URL of a replica (invalid characters); give http://HOST:PORT")
        try:
            parts = urllib.parse.urlsplit(given)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"{url!r} is not the URL of a replica ({error}); give http://HOST:PORT") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
            raise ConfigError(f"{url!r} is not the URL of a replica; give http://HOST:PORT, its replica_metrics_port")
        self.url = given.rstrip("/")

    def contents(self, topic: str) -> ReplicaAnswer:
        """The topic's current contents in the replica."""
        return self._convert(self._ask("GET", "/verify", {"topic": [topic]}))

    def objects(self, topic: str, buckets: Collection[int]) -> tuple[Point | None, Fingerprints]:
        """The replica's point of the topic, and the objects of some buckets."""
        found = self._ask("GET", "/objects", {"topic": [topic], "bucket": list(buckets)})
        try:
            objects = {(table, key): (version, print_) for table, key, version, print_ in found["objects"]}
            return _point(found), objects
        except (KeyError, TypeError, ValueError) as error:
            raise self._foreign() from error

    def resync(self, topics: Collection[str]) -> None:
        """Request that the replica reads these topics again; without topics, all that it is subscribed to."""
        self._ask("POST", "/resync", {"topic": list(topics)})

    def quarantined(self) -> list[QuarantinedPublisher]:
        """The publishers whose messages the replica does not use now."""
        try:
            return msgspec.convert(self._ask("GET", "/quarantined", {})["quarantined"], list[QuarantinedPublisher])
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise self._foreign() from error

    def _convert(self, found: Mapping[str, Any]) -> ReplicaAnswer:
        try:
            return ReplicaAnswer(
                found["state"], _point(found), found["staleness"], found["objects"], found["digest"],
                {int(bucket): value for bucket, value in found["buckets"].items()},
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._foreign() from error

    def _ask(self, method: str, path: str, query: Mapping[str, list[Any]]) -> Any:
        asked = urllib.parse.urlencode(query, doseq=True)
        request = urllib.request.Request(f"{self.url}{path}?{asked}", headers={POST_HEADER: "1"}, method=method)  # noqa: S310 - the scheme is checked
        try:
            code, body = self._when_due(request)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise TransportError(
                f"the replica at {self.url} cannot be reached ({reason}); check that it runs, and its "
                "replica_metrics_port"
            ) from error
        except http.client.HTTPException as error:  # the server does not use HTTP
            raise self._foreign() from error
        if code is not None:
            raise self._refused(code, body.decode(errors="replace").strip())
        try:
            return json.loads(body)
        except ValueError as error:
            raise self._foreign() from error

    def _when_due(self, request: urllib.request.Request) -> tuple[int | None, bytes]:
        """The exchange, repeated when the replica asks for a pause that ends in time."""
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
            # No proxy: the request goes to the replica directly, whatever proxy the environment sets.
            with _DIRECT.open(request, timeout=TIMEOUT) as answer:
                return None, self._body(answer, until), 0.0
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(_MAX_ERROR_BYTES), _seconds(error.headers.get("Retry-After"))

    def _body(self, answer: http.client.HTTPResponse, until: float) -> bytes:
        """The complete body. Size and time are limited, because the server may not be a replica."""
        parts, size = [], 0
        while part := answer.read1(1 << 16):
            size += len(part)
            if size > MAX_BYTES:
                raise self._foreign()
            if time.monotonic() > until:
                raise TimeoutError(f"its answer was not complete after {TIMEOUT:g} s")
            parts.append(part)
        return b"".join(parts)

    def _refused(self, code: int, text: str) -> Exception:
        if code == 404 and "not subscribed to" in text:
            return NotSubscribedError(f"the replica at {self.url}: {text}")
        if code in (404, 405):
            return self._foreign()
        return TransportError(f"the replica at {self.url} rejected the request ({code}): {text}")

    def _foreign(self) -> TransportError:
        return TransportError(
            f"the server at {self.url} is not a replica of this library; give the replica's replica_metrics_port"
        )


def _seconds(given: str | None) -> float:
    """A Retry-After header; 1 s for one that is no small number."""
    return float(given) if given is not None and given.isascii() and given.isdecimal() and len(given) < 4 else 1.0


def _point(found: Mapping[str, Any]) -> Point | None:
    return None if found["position"] is None else Point(found["position"], found["nonce"])


_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
