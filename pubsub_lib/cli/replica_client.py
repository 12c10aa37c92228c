"""HTTP client for a running replica's endpoint: read the contents of a topic and the status, and request a resync."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from pubsub_lib.cli.endpoint_client import EndpointClient
from pubsub_lib.core.model import Point
from pubsub_lib.core.quarantine import QuarantinedPublisher
from pubsub_lib.errors import NotSubscribedError

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


class ReplicaClient(EndpointClient):
    """The endpoint of a replica. Also raises NotSubscribedError (the replica is not subscribed to the topic)."""

    kind = "replica"
    option = "replica_metrics_port"

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

    def refusal(self, code: int, text: str) -> Exception:
        """The error for a response with this status and this text."""
        if code == 404 and "not subscribed to" in text:
            return NotSubscribedError(f"the replica at {self.url}: {text}")
        return super().refusal(code, text)


def _point(found: Mapping[str, Any]) -> Point | None:
    return None if found["position"] is None else Point(found["position"], found["nonce"])
