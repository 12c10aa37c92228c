"""The client of the sync channel: it reads for a replica's syncs, as a store does."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from math import inf
from typing import Final

import msgspec

from pubsub_lib.core.model import Delta, Full, Point, SyncAnswer, Want
from pubsub_lib.errors import FrameError, InvalidValueError, StoreError, StoreUnavailable
from pubsub_lib.http_routes import POST_HEADER
from pubsub_lib.logs import logger
from pubsub_lib.sync.http_call import HttpCall, body_of, reason_in
from pubsub_lib.sync.question import SyncQuestion, encode_question
from pubsub_lib.sync.reading import read_answer
from pubsub_lib.sync.resuming import KeptTopics
from pubsub_lib.sync.stream import max_page_bytes, unpacked
from pubsub_lib.sync.urls import ChannelUrl, KnownUrls, known_urls

_log = logger(__name__)

MAX_RETRY_AFTER: Final = 60.0
"""Maximum seconds that a server may demand a pause for."""
_HEADERS: Final = {
    POST_HEADER: "sync",
    "Content-Type": "application/msgpack",
    "Accept-Encoding": "gzip",
    "Connection": "close",
}


class Busy(StoreUnavailable):
    """A server demanded a pause, or the pause that it demanded is not over; or no server is known yet. ``seconds``
    are left: the next question has that wait, and not the doubled one of other failures.
    """

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds

    def __reduce__(self) -> tuple[type["Busy"], tuple[str, float]]:
        # Exceptions are unpickled from ``args`` alone.
        return Busy, (str(self), self.seconds)


class Misdirected(StoreUnavailable):
    """A server answers no questions of this kind: that of a standby answers first syncs alone."""


class SyncClient:
    """Reads from the sync channels at these URLs (``sync_url``, or those that a function knows at each question): from
    the first one that answers, beginning with the one that answered last. One that failed or hung is asked last, and so
    is one whose answer did not help: a relay that is cut off goes on answering. The latter does not put a server that
    failed first, until as much time has passed as its failure took: one that hangs would cost each other question the
    wait for it. Nor does it put the server of a parent first that the replica has left (``ask_last``). A server that is
    busy is not asked again before the time that it named.

    ``timeout``: seconds for one sync at all URLs together. ``begin``: seconds until a server begins its answer, else
    the next one is asked, because it may hang. Each time that it needed longer it has twice as long the next time, so
    that a slow one is not given up. A single server may take the whole time, unless ``others`` may be known instead of
    it at the next question. ``max_pause``: maximum seconds that a server may demand a pause for. ``max_frame_bytes``
    and ``max_bytes`` bound one page and all pages of an answer. The complete topics of a first sync's answer that
    breaks off are kept for the next question, also that to another server: at most ``max_bytes`` of values.
    ``read_sync`` is called by one thread at a time, ``close`` by any thread.
    """

    def __init__(
        self,
        urls: str | KnownUrls,
        *,
        timeout: float,
        begin: float,
        max_frame_bytes: int,
        max_bytes: int,
        others: bool = False,
        max_pause: float = MAX_RETRY_AFTER,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ConfigError for an invalid URL. Connects to nothing."""
        self._known = known_urls(urls)
        self._urls: list[ChannelUrl] = [] if callable(urls) else list(self._known())
        self._others = others
        self._timeout = timeout
        self._max_pause = max_pause
        self._begin = begin
        self._slow: dict[ChannelUrl, float] = {}
        """The seconds for servers that did not begin in time."""
        self._failing: dict[ChannelUrl, float] = {}
        """Until when a server that failed is asked after the others: for as long as its failure took."""
        self._left: Callable[[], tuple[str, int]] = lambda: ("", 0)
        self._max_page = max_page_bytes(max_frame_bytes)
        self._max_bytes = max_bytes
        self._now = now
        self._answered: ChannelUrl | None = None
        """The one that answered the last question, if it is to be asked again."""
        self._nothing_after: dict[str, Point] = {}
        """The points after which a relay had nothing in its last answer."""
        self._not_before: dict[ChannelUrl, float] = {}
        self._kept = KeptTopics(max_bytes)
        self._lock = threading.Lock()
        self._call: HttpCall | None = None
        self._closed = False

    def ask_last(self, left: Callable[[], tuple[str, int]]) -> None:
        """Ask the server of this host and port after the others: the replica has just left it. Call it before ``ask``,
        whose thread calls ``left``.
        """
        self._left = left

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """As :meth:`ask`, without a new proof."""
        return self.ask(SyncQuestion(wants))

    def ask(self, question: SyncQuestion) -> SyncAnswer:
        """Ask the servers, one after the other, until one answers. Blocks for the timeout at most. The answer has the
        time after which its server was asked.

        Raises StoreUnavailable when none is known or answers, StoreError for an answer that cannot be read,
        InvalidValueError for a question that is too large.
        """
        begun = self._now()
        self._use_known()
        failures: list[StoreError] = []
        useless = question.refresh or self._asks_again(question.wants)
        left = self._left() if not useless else ("", 0)  # it may know more again than the one that was of no use
        if self._answered is not None and useless:
            self._ask_last(self._answered)
        self._urls.sort(key=lambda url: self._failing.get(url, begun) > begun or (url.host, url.port) == left)
        for url in [*self._urls]:
            asked = self._now()
            try:
                answer = self._ask(url, question, begun)
            except Misdirected as error:  # it answers other questions, so it keeps its place
                failures.append(error)
                continue
            except StoreError as error:
                failures.append(error)
                failed = self._now()
                self._failing[url] = failed + (failed - asked)
                self._ask_last(url)  # also when it took all the time: else no other one would ever be asked
                if self._closed:
                    raise
                if failed >= begun + self._timeout:
                    break
                continue
            self._answered = url
            self._nothing_after = {} if answer.ages is None else _nothing_after(answer)
            return answer
        raise _of_all(failures)

    def _use_known(self) -> None:
        known = self._known()
        if set(known) != set(self._urls):
            self._urls, self._answered = list(known), None

    def _asks_again(self, wants: Mapping[str, Want]) -> bool:
        """Whether the last answer brought nothing to a topic that needs something: another relay may know more."""
        points = self._nothing_after
        return any(chain in points and want.after == points[chain] for chain, want in wants.items())

    def _ask_last(self, url: ChannelUrl) -> None:
        self._urls.remove(url)
        self._urls.append(url)
        self._answered = None

    def close(self) -> None:
        """End a running request, and refuse all later ones. Idempotent."""
        with self._lock:
            self._closed = True
            call = self._call
        if call is not None:
            call.end()

    def _ask(self, url: ChannelUrl, question: SyncQuestion, begun: float) -> SyncAnswer:
        """Ask one server, without the objects of answers that broke off. Only a server that does not have these as
        they were kept is asked again, for all others.
        """
        while True:
            asked = self._kept.shorter(question)
            try:
                body = encode_question(asked)
            except InvalidValueError:
                if not self._kept:
                    raise
                self._kept.clear()  # the points of many topics do not fit
                continue
            whole = self._kept.completed(self._request(url, body, asked.wants, begun))
            if whole is not None:
                return whole
            _log.info("the sync channel %s has another history than the kept part of an answer; reading it again", url)

    def _request(self, url: ChannelUrl, body: bytes, wants: Mapping[str, Want], begun: float) -> SyncAnswer:
        now = self._now()
        left = self._not_before.get(url, float("-inf")) - now
        if left > 0:
            raise Busy(f"the sync channel {url} is busy and asks to wait for {left:.1f} s more", left)
        with self._lock:
            self._check_open(url)
            asked = time.monotonic()
            # There is no other server to ask instead of a single one.
            begin = self._slow.get(url, self._begin) if self._others or len(self._urls) > 1 else inf
            call = self._call = HttpCall(url, asked + begun + self._timeout - now, asked + begin)
        began = False
        try:
            with call.post(body, _HEADERS) as response:
                began = True
                # A small answer in time does not show that a large one would be.
                if time.monotonic() < asked + self._begin and any(want.after is None for want in wants.values()):
                    self._slow.pop(url, None)
                return msgspec.structs.replace(self._read(url, response, wants), asked_after=now - begun)
        finally:
            if not began and time.monotonic() >= asked + begin:
                self._slow[url] = min(2 * begin, self._timeout)

    def _read(self, url: ChannelUrl, response: HTTPResponse, wants: Mapping[str, Want]) -> SyncAnswer:
        if response.status != HTTPStatus.OK:
            raise self._refusal(url, response)
        gzip = response.getheader("Content-Encoding", "") == "gzip"
        arrived: dict[str, Full] = {}
        try:
            return read_answer(unpacked(body_of(response), self._max_page, self._max_bytes, gzip=gzip), wants, arrived)
        except (OSError, HTTPException):
            self._keep(url, arrived, wants)
            raise
        except FrameError as error:
            self._check_open(url)  # an ended connection looks like an answer that was cut off
            if error.reason == "truncated":
                self._keep(url, arrived, wants)
            raise StoreError(f"the sync channel {url} sent an answer that cannot be used: {error}") from error

    def _keep(self, url: ChannelUrl, arrived: Mapping[str, Full], wants: Mapping[str, Want]) -> None:
        """The answer broke off: keep the topics that are complete."""
        kept = 0 if self._closed else self._kept.keep(arrived, wants)
        if kept:
            _log.info(
                "an answer of the sync channel %s broke off; %d of its %d topics are complete, and are not requested "
                "again",
                url,
                kept,
                len(wants),
            )

    def forget(self) -> None:
        """Forget the kept topics: another source has answered. The thread that calls ``ask``."""
        self._kept.clear()

    def _check_open(self, url: ChannelUrl) -> None:
        if self._closed:
            raise StoreUnavailable(f"the sync channel {url} is not asked any more: the replica is closed")

    def _refusal(self, url: ChannelUrl, response: HTTPResponse) -> StoreError:
        message = f"the sync channel {url} answers {response.status}: {reason_in(response)}"
        if response.status == HTTPStatus.MISDIRECTED_REQUEST:
            return Misdirected(message)
        seconds = _seconds(response.getheader("Retry-After"))
        if seconds is None:
            return StoreUnavailable(message)
        seconds = min(seconds, self._max_pause)
        self._not_before[url] = self._now() + seconds
        return Busy(message, seconds)


def _nothing_after(answer: SyncAnswer) -> dict[str, Point]:
    return {chain: part.head for chain, part in answer.chains.items() if isinstance(part, Delta) and not part.links}


def _seconds(retry_after: str | None) -> float | None:
    """The seconds of the header; None without one, or for a date."""
    if retry_after is None or not (retry_after.isascii() and retry_after.isdecimal()):
        return None
    return float(retry_after[:9])


def _of_all(failures: Sequence[StoreError]) -> StoreError:
    """The error of a question that no server answered. One that could have answered but is busy will answer after its
    pause, so the question fails with the shortest pause. The text names a fault of another server, too.
    """
    able = [each for each in failures if not isinstance(each, Misdirected)] or failures
    busy = [each for each in able if isinstance(each, Busy)]
    faults = [each for each in able if not isinstance(each, Busy)]
    if not busy:
        return faults[0]
    soonest = min(busy, key=lambda each: each.seconds)
    return Busy(f"{faults[0]}; {soonest}", soonest.seconds) if faults else soonest
