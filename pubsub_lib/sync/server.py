"""The server of the sync channel: the route ``POST /sync`` of a service's HTTP endpoint."""

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

import msgspec

from pubsub_lib import http_limits
from pubsub_lib.core.model import SyncAnswer, Want
from pubsub_lib.errors import FrameError, PubSubError
from pubsub_lib.http_routes import Body, Streamed
from pubsub_lib.logs import logger
from pubsub_lib.sync.pages import pages_of
from pubsub_lib.sync.places import Places
from pubsub_lib.sync.question import MAX_QUESTION_BYTES, SyncQuestion, SyncSource, decode_question
from pubsub_lib.sync.snapshots import FIRST, BeingRead, Composition, Snapshot, SnapshotCache, answer_of
from pubsub_lib.sync.stream import compressed, packed
from pubsub_lib.threads.giving_way import giving_way

_log = logger(__name__)

ROUTE: Final = "POST /sync"
CONTENT_TYPE: Final = "application/x-pubsub-sync"
MAX_PAUSE: Final = http_limits.BUSY_PAUSE
"""Maximum seconds for which a replica is sent away. They are random, so that replicas do not come back together."""


class SyncRoute:
    """Answers questions from a source; the replicas for which there are no :class:`.Places` get 503.

    ``max_seconds``: maximum time of one request, from its headers to the end of its answer, so that slow replicas do
    not hold the places. ``max_snapshot_bytes``: of the prepared snapshots, compressed; 0: none is kept. ``firsts``:
    only first syncs are answered; the client asks another server for what is left out. Any thread.
    """

    max_body_bytes: Final = MAX_QUESTION_BYTES

    def __init__(
        self,
        source: SyncSource,
        places: int,
        max_seconds: float,
        max_snapshot_bytes: int = 0,
        rng: random.Random | None = None,
        *,
        firsts: bool = False,
    ) -> None:
        self.max_seconds = max_seconds
        self._firsts = firsts
        self._snapshots = SnapshotCache(max_snapshot_bytes)
        self._source = source
        self._places = Places(places)
        self._rng = rng if rng is not None else random.SystemRandom()
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("answered", "busy", "refused", "failed", "bytes"), 0)

    def counters(self) -> Mapping[str, int]:
        """Questions by their outcome, and the sent bytes. ``refused``: they cannot be decoded, or ask for nothing
        that is answered here. ``failed``: the source failed, or the replica left. ``prepared``: topics that were
        answered from snapshots.
        """
        with self._lock:
            return {**self._counts, "prepared": self._snapshots.used}

    @property
    def running(self) -> int:
        """Answers that are made or sent now."""
        return self._places.running

    @contextmanager
    def serve(self, body: Body, *, gzip: bool) -> Iterator[Streamed]:
        """The answer to one request; it holds a place until the block ends."""
        with self._places.request() as received:
            if not received:
                body.skip()
                yield self._busy("too many syncs are being asked for")
                return
            question = self._question(body.read())
            if isinstance(question, Streamed):
                yield question
                return
            with self._places.answer(question.wants) as free:
                yield self._answered(question, gzip=gzip) if free else self._busy(
                    "all transfers of this service are in use"
                )

    def _question(self, body: bytes) -> SyncQuestion | Streamed:
        """The question, or the answer to one that is refused."""
        try:
            question = decode_question(body)
        except FrameError as error:
            self._count("refused")
            return _text(HTTPStatus.BAD_REQUEST, str(error))
        if self._firsts:
            question = msgspec.structs.replace(question, wants=_firsts_of(question.wants))
            if not question.wants:
                self._count("refused")
                return _text(HTTPStatus.MISDIRECTED_REQUEST, "this service answers first syncs only")
        return question

    def _answered(self, question: SyncQuestion, *, gzip: bool) -> Streamed:
        try:
            answer, prepared = self._read(question, gzip=gzip)
        except BeingRead as error:
            return self._busy(str(error))
        except PubSubError as error:
            self._count("failed")
            _log.warning("a sync of a replica cannot be answered: %s", error)
            return self._come_again("the source of this service cannot be read now; see its log")
        if answer is None:
            self._count("failed")
            return self._come_again("this service has nothing of what was asked for now")
        headers = {"Content-Encoding": "gzip"} if gzip else {}
        return Streamed(HTTPStatus.OK, CONTENT_TYPE, self._sent(question, answer, prepared, gzip=gzip), headers)

    def _busy(self, why: str) -> Streamed:
        self._count("busy")
        return self._come_again(why)

    def _read(self, question: SyncQuestion, *, gzip: bool) -> tuple[SyncAnswer | None, Mapping[str, Snapshot]]:
        return answer_of(self._source, question, self._snapshots) if gzip else (self._source(question), {})

    def _sent(
        self, question: SyncQuestion, answer: SyncAnswer, prepared: Mapping[str, Snapshot], *, gzip: bool
    ) -> Iterator[bytes]:
        size = 0
        done = False
        items = Composition(answer, question.wants, prepared, self._snapshots).items
        try:
            pages = compressed(giving_way(items())) if gzip else packed(giving_way(pages_of(answer)), gzip=False)
            for part in pages:
                yield part
                size += len(part)
            done = True
        finally:
            self._count("answered" if done else "failed", size)

    def _come_again(self, why: str) -> Streamed:
        seconds = self._rng.randint(1, MAX_PAUSE)
        return _text(HTTPStatus.SERVICE_UNAVAILABLE, why, {"Retry-After": str(seconds)})

    def _count(self, what: str, size: int = 0) -> None:
        with self._lock:
            self._counts[what] += 1
            self._counts["bytes"] += size


def _firsts_of(wants: Mapping[str, Want]) -> Mapping[str, Want]:
    """Those that ask for all objects."""
    return {chain: want for chain, want in wants.items() if want == FIRST}


def _text(status: int, text: str, headers: Mapping[str, str] | None = None) -> Streamed:
    return Streamed(status, "text/plain; charset=utf-8", iter([f"{text}\n".encode()]), headers or {})
