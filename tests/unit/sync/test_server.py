"""The route of the server: places, refusals, counters."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

from pubsub_lib.core.model import Point, SyncAnswer, Want
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.http_routes import Streamed
from pubsub_lib.sync import snapshots
from pubsub_lib.sync.places import RECEIVED
from pubsub_lib.sync.question import SyncQuestion, encode_question
from pubsub_lib.sync.reading import read_answer
from pubsub_lib.sync.server import MAX_PAUSE, SyncRoute
from pubsub_lib.sync.stream import unpacked
from tests.unit.sync.answers import plain, random_answer
from tests.unit.world import LONG

WANTS, ANSWER = random_answer(Random(3), aged=False)
QUESTION = encode_question(SyncQuestion(WANTS, refresh=True))


class Given:
    """A body that was sent."""

    def __init__(self, data: bytes = QUESTION) -> None:
        self.data = data
        self.received = self.skipped = False

    def read(self) -> bytes:
        self.received = True
        return self.data

    def skip(self) -> None:
        self.skipped = True


def route(source: Callable[[SyncQuestion], SyncAnswer | None] = lambda question: ANSWER, places: int = 1) -> SyncRoute:
    return SyncRoute(source, places, 60.0, rng=Random(1))


def text(answer: Streamed) -> str:
    return b"".join(answer.parts).decode()


@pytest.mark.parametrize("gzip", [False, True])
def test_question_is_given_to_the_source_and_its_answer_is_sent(gzip: bool) -> None:
    asked: list[SyncQuestion] = []

    def source(question: SyncQuestion) -> SyncAnswer:
        asked.append(question)
        return ANSWER

    served = route(source)
    with served.serve(Given(), gzip=gzip) as answer:
        assert served.running == 1
        data = b"".join(answer.parts)
    assert asked == [SyncQuestion(WANTS, refresh=True)]
    assert answer.status == 200
    assert answer.headers == ({"Content-Encoding": "gzip"} if gzip else {})
    assert plain(read_answer(unpacked([data], 2**21, 2**30, gzip=gzip), WANTS)) == plain(ANSWER)
    assert served.running == 0
    assert served.counters() == {"answered": 1, "busy": 0, "refused": 0, "failed": 0, "bytes": len(data), "prepared": 0}


def test_question_about_a_topic_that_is_being_read_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MAX_WAIT", 0.01)
    entered, go = threading.Event(), threading.Event()
    wants = {"t": Want()}

    def source(question: SyncQuestion) -> SyncAnswer:
        entered.set()
        assert go.wait(LONG)
        return ANSWER

    served = SyncRoute(source, 2, LONG, 2**20, Random(1))
    question = encode_question(SyncQuestion(wants))

    def status() -> int:
        with served.serve(Given(question), gzip=True) as answer:
            return answer.status

    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(status)
        assert entered.wait(LONG)
        with served.serve(Given(question), gzip=True) as answer:
            assert (answer.status, text(answer)) == (503, "the objects of a topic are being read for another replica\n")
            assert 1 <= int(answer.headers["Retry-After"]) <= MAX_PAUSE
        go.set()
        assert first.result(LONG) == 200
    assert served.counters()["busy"] == 1


def test_question_without_a_free_place_gets_503_with_a_random_pause() -> None:
    served = route(places=2)
    pauses = set()
    with served.serve(Given(), gzip=True), served.serve(Given(), gzip=True):
        for _ in range(40):
            body = Given()
            with served.serve(body, gzip=True) as answer:
                assert (answer.status, text(answer)) == (503, "all transfers of this service are in use\n")
                pauses.add(int(answer.headers["Retry-After"]))
            assert body.received
    assert pauses == set(range(1, MAX_PAUSE + 1))
    assert served.counters()["busy"] == 40
    with served.serve(Given(), gzip=True) as answer:
        assert answer.status == 200


LINKS = encode_question(SyncQuestion({"a": Want(after=Point(7, 7)), "b": Want(after=Point(8, 8))}))
OBJECTS = encode_question(SyncQuestion({"a": Want(after=Point(7, 7)), "b": Want()}))
"""Links of one topic, and the objects of another."""


@pytest.mark.parametrize(("slow", "other"), [(OBJECTS, LINKS), (LINKS, OBJECTS)], ids=["objects", "links"])
def test_links_and_objects_have_places_of_their_own(slow: bytes, other: bytes) -> None:
    served = route(places=2)
    with ExitStack() as held:
        for _ in range(2):
            assert held.enter_context(served.serve(Given(slow), gzip=True)).status == 200
        for _ in range(2):
            assert held.enter_context(served.serve(Given(other), gzip=True)).status == 200
        assert served.running == 4
        for question in (slow, other):
            with served.serve(Given(question), gzip=True) as answer:
                assert answer.status == 503
    assert served.running == 0


def test_question_that_cannot_be_received_gets_503_at_once() -> None:
    """Many clients begin to send a question, and stop in the middle of it."""
    served = route(places=2)
    most = 2 + 2 + RECEIVED
    begun, go = threading.Semaphore(0), threading.Event()

    class Slow(Given):
        def read(self) -> bytes:
            begun.release()
            assert go.wait(LONG)
            raise TimeoutError

    def ask() -> None:
        with pytest.raises(TimeoutError), served.serve(Slow(), gzip=True):
            raise AssertionError

    with ThreadPoolExecutor(most) as threads:
        slow = [threads.submit(ask) for _ in range(most)]
        try:
            assert all(begun.acquire(timeout=LONG) for _ in range(most))
            assert served.running == 0, "a question that is not received yet takes no place"
            body = Given(LINKS)
            with served.serve(body, gzip=True) as answer:
                assert (answer.status, text(answer)) == (503, "too many syncs are being asked for\n")
                assert 1 <= int(answer.headers["Retry-After"]) <= MAX_PAUSE
            assert body.skipped
        finally:
            go.set()
        for each in slow:
            each.result(LONG)
    with served.serve(Given(LINKS), gzip=True) as answer:
        assert answer.status == 200


def unavailable(question: SyncQuestion) -> SyncAnswer:
    raise StoreUnavailable("the database at secret.example is unreachable")


def test_source_that_fails_or_has_nothing_gets_503_without_its_error() -> None:
    for source in (unavailable, lambda question: None):
        served = route(source)
        with served.serve(Given(), gzip=True) as answer:
            assert answer.status == 503
            assert "Retry-After" in answer.headers
            assert "secret" not in text(answer)
        assert served.counters()["failed"] == 1


def test_hostile_question_gets_400_and_does_not_reach_the_source() -> None:
    def source(question: SyncQuestion) -> Any:
        raise AssertionError

    served = route(source)
    with served.serve(Given(b"\x94\x01garbage"), gzip=True) as answer:
        assert answer.status == 400
        assert text(answer).startswith("a sync's question cannot be read")
    assert served.counters()["refused"] == 1


def test_route_of_first_syncs_leaves_out_what_another_server_must_answer() -> None:
    asked: list[SyncQuestion] = []

    def source(question: SyncQuestion) -> SyncAnswer:
        asked.append(question)
        return ANSWER

    served = SyncRoute(source, 1, 60.0, firsts=True)
    point = Point(7, 7)
    others = {
        "behind": Want(after=point),
        "rotted": Want(buckets={3: 4}, known=point),
        "known": Want(known=point),
    }
    with served.serve(Given(encode_question(SyncQuestion({**others, "new": Want()}))), gzip=False) as answer:
        assert answer.status == 200
        b"".join(answer.parts)
    assert [each.wants for each in asked] == [{"new": Want()}]
    with served.serve(Given(encode_question(SyncQuestion(others))), gzip=False) as answer:
        assert (answer.status, text(answer)) == (421, "this service answers first syncs only\n")
    assert len(asked) == 1
    assert (served.counters()["answered"], served.counters()["refused"], served.running) == (1, 1, 0)


def test_place_is_free_again_after_a_source_or_a_client_failed() -> None:
    def broken(question: SyncQuestion) -> Any:
        raise RuntimeError("planted")

    served = route(broken)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="planted"), served.serve(Given(), gzip=True):
            raise AssertionError
    served = route()
    for _ in range(3):
        with pytest.raises(TimeoutError), served.serve(Given(), gzip=False) as answer:
            next(answer.parts)
            raise TimeoutError
    assert served.running == 0
    del answer
    assert served.counters()["failed"] + served.counters()["answered"] == 3


def test_answer_for_no_topic_that_is_here_is_none_of_an_error() -> None:
    wants = {"t": Want()}
    served = route(lambda question: SyncAnswer(ANSWER.store, {}, b"", {}))
    with served.serve(Given(encode_question(SyncQuestion(wants))), gzip=False) as answer:
        assert read_answer(unpacked(answer.parts, 2**21, 2**30, gzip=False), wants).ages == {}
