"""A running replica's endpoint, asked by HTTP: what it holds of a topic, and a resync."""

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
from pubsub_lib.errors import ConfigError, NotSubscribedError, TransportError

TIMEOUT: Final = 30.0
"""Seconds; a replica of millions of objects needs some to count them."""
MAX_BYTES: Final = 1 << 28
"""Of one answer: some millions of objects."""
_MAX_WORDS: Final = 4096
"""Bytes of a refusal."""

Fingerprints = Mapping[tuple[str, str], tuple[int, int]]
"""(table, key) -> (version, fingerprint)."""


class ReplicaAnswer(msgspec.Struct, frozen=True):
    """What a replica tells of a topic, counted from its values."""

    state: str
    known: Point | None
    staleness: float | None
    objects: int
    digest: int
    buckets: Mapping[int, int]


class ReplicaClient:
    """The endpoint at one URL. Every method blocks for ``TIMEOUT`` at most and raises TransportError (not reached, or
    no replica), NotSubscribedError (it does not follow the topic).
    """

    def __init__(self, url: str) -> None:
        """``url``: ``http://host:port``, or ``host:port``. Raises ConfigError."""
        given = url if "://" in url else f"http://{url}"
        if not (given.isascii() and given.isprintable()) or " " in given:
            raise ConfigError(f"{url!r} is no URL of a replica (it holds what no URL may); give http://HOST:PORT")
        try:
            parts = urllib.parse.urlsplit(given)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"{url!r} is no URL of a replica ({error}); give http://HOST:PORT") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
            raise ConfigError(f"{url!r} is no URL of a replica; give http://HOST:PORT, its replica_metrics_port")
        self.url = given.rstrip("/")

    def contents(self, topic: str) -> ReplicaAnswer:
        """A topic as the replica holds it now."""
        return self._convert(self._ask("GET", "/verify", {"topic": [topic]}))

    def objects(self, topic: str, buckets: Collection[int]) -> tuple[Point | None, Fingerprints]:
        """What is known of the topic, and the objects of some buckets."""
        found = self._ask("GET", "/objects", {"topic": [topic], "bucket": list(buckets)})
        try:
            objects = {(table, key): (version, print_) for table, key, version, print_ in found["objects"]}
            return _point(found), objects
        except (KeyError, TypeError, ValueError) as error:
            raise self._foreign() from error

    def resync(self, topics: Collection[str]) -> None:
        """Have these topics read anew; none: all that it follows."""
        self._ask("POST", "/resync", {"topic": list(topics)})

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
        request = urllib.request.Request(f"{self.url}{path}?{asked}", method=method)
        try:
            code, body = self._exchange(request)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise TransportError(
                f"the replica at {self.url} cannot be reached ({reason}); see whether it runs, and its "
                "replica_metrics_port"
            ) from error
        except http.client.HTTPException as error:  # it speaks, but not HTTP
            raise self._foreign() from error
        if code is not None:
            raise self._refused(code, body.decode(errors="replace").strip())
        try:
            return json.loads(body)
        except ValueError as error:
            raise self._foreign() from error

    def _exchange(self, request: urllib.request.Request) -> tuple[int | None, bytes]:
        """(None, the answer), or (a status, the words of a refusal)."""
        until = time.monotonic() + TIMEOUT
        try:
            # No proxy: a replica is asked directly, whatever the environment says of the world outside.
            with _DIRECT.open(request, timeout=TIMEOUT) as answer:
                return None, self._body(answer, until)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(_MAX_WORDS)

    def _body(self, answer: http.client.HTTPResponse, until: float) -> bytes:
        """All of it. Whoever answers may be anybody: neither without end, nor for ever drop by drop."""
        parts, size = [], 0
        while part := answer.read1(1 << 16):
            size += len(part)
            if size > MAX_BYTES:
                raise self._foreign()
            if time.monotonic() > until:
                raise TimeoutError(f"its answer was not complete after {TIMEOUT:g} s")
            parts.append(part)
        return b"".join(parts)

    def _refused(self, code: int, said: str) -> Exception:
        if code == 404 and "not subscribed to" in said:
            return NotSubscribedError(f"the replica at {self.url}: {said}")
        if code in (404, 405):
            return self._foreign()
        return TransportError(f"the replica at {self.url} refuses ({code}): {said}")

    def _foreign(self) -> TransportError:
        return TransportError(f"what answers at {self.url} is no replica of this library; see its replica_metrics_port")


def _point(found: Mapping[str, Any]) -> Point | None:
    return None if found["position"] is None else Point(found["position"], found["nonce"])


_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
