"""Answers that break off: complete topics are kept, over real sockets, and the whole answer is that of a store."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.core.contents import Contents, contents_of
from pubsub_lib.core.model import ALL, AnswerAge, Delta, Full, Head, Incomplete, Point, SyncAnswer, TopicSnapshot, Want
from pubsub_lib.errors import StoreError
from pubsub_lib.sync.client import SyncClient
from pubsub_lib.sync.question import SyncQuestion
from pubsub_lib.sync.resuming import KeptTopics
from tests.unit.sync.cut_proxy import CutProxy
from tests.unit.sync.test_client import LONG, client, free_url, service

TOPICS = tuple(f"t{number}" for number in range(8))
FIRST = {topic: Want() for topic in TOPICS}


def fill(store: Store, rng: Random, topics: tuple[str, ...] = TOPICS, objects: int = 40) -> None:
    for topic in topics:
        with store.transaction() as tx:
            for number in range(objects):
                tx.set(f"table-{number % 2}", f"{topic}-{number}", rng.randbytes(1000).hex(), topic=topic)


def change(store: Store, rng: Random) -> None:
    topic = rng.choice(TOPICS)
    with store.transaction() as tx:
        number = rng.randrange(60)
        tx.set(f"table-{number % 2}", f"{topic}-{number}", rng.randrange(99), topic=topic)
        gone = rng.randrange(40)
        if gone != number and store.get(f"table-{gone % 2}", f"{topic}-{gone}") is not None:
            tx.delete(f"table-{gone % 2}", f"{topic}-{gone}")


class Source:
    """A store as the source of a service, with the questions."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.asked: list[SyncQuestion] = []

    def __call__(self, question: SyncQuestion) -> SyncAnswer:
        self.asked.append(question)
        return self.store.read_sync(question.wants)


def objects(answer: SyncAnswer) -> dict[str, tuple[Head, object]]:
    """The topics of an answer: head, and objects in any order."""
    found: dict[str, tuple[Head, object]] = {}
    for chain, part in answer.chains.items():
        assert isinstance(part, Full)
        assert part.head == part.topics[chain].head.point
        found[chain] = (
            part.topics[chain].head,
            {(each.table, each.key): (each.version, each.value) for each in part.topics[chain].records},
        )
    return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/one.db") as store:
        fill(store, Random(1))
        yield store


@pytest.fixture
def source(store: Store) -> Source:
    return Source(store)


@pytest.fixture
def proxy(source: Source) -> Iterator[CutProxy]:
    # An answer that broke off holds its place until the service notices it.
    with service(source, places=24) as (url, _), CutProxy(url) as made:
        yield made


def broken(proxy: CutProxy, asking: SyncClient, share: float = 0.6, wants: Mapping[str, Want] = FIRST) -> None:
    """Ask, and break off the answer after this share of it."""
    proxy.limit = None
    client(proxy.url).read_sync(wants)
    proxy.limit = int(proxy.sizes[-1] * share)
    with pytest.raises(StoreError):
        asking.read_sync(wants)
    proxy.limit = None


@pytest.mark.parametrize("reset", [False, True])
def test_after_a_cut_only_the_missing_topics_are_requested(source: Source, proxy: CutProxy, reset: bool) -> None:
    proxy.reset = reset
    asking = client(proxy.url)
    broken(proxy, asking)
    found = asking.read_sync(FIRST)
    assert objects(found) == objects(source.store.read_sync(FIRST))
    assert found.ages is None
    asked = source.asked[-1]
    kept = [topic for topic, want in asked.wants.items() if want.after is not None]
    # A connection that is reset loses what the client has not read yet.
    assert reset or 3 <= len(kept) <= 5, "about 60 % of 8 topics"
    assert asked.refresh, "a relay must renew its proof, as for objects"
    whole, _, rest = proxy.sizes
    assert rest < whole * (len(TOPICS) - len(kept) + 0.5) / len(TOPICS)
    assert all(isinstance(found.chains[topic].topics[topic].records, Contents) for topic in TOPICS)  # type: ignore[union-attr]


def test_changes_after_the_cut_come_as_links(source: Source, proxy: CutProxy) -> None:
    asking, rng = client(proxy.url), Random(2)
    broken(proxy, asking)
    for _ in range(40):
        change(source.store, rng)
    assert objects(asking.read_sync(FIRST)) == objects(source.store.read_sync(FIRST))
    assert any(want.after is not None for want in source.asked[-1].wants.values())
    assert source.asked[-1].wants.keys() == FIRST.keys()


def test_kept_topics_survive_a_busy_server_and_further_cuts(source: Source, proxy: CutProxy) -> None:
    asking = client(proxy.url)
    broken(proxy, asking, 0.4)
    proxy.target = 1  # refuses
    with pytest.raises(StoreError):
        asking.read_sync(FIRST)
    with service(source, places=1) as (url, route):
        proxy.target = int(url.rpartition(":")[2])
        with route._places.answer(FIRST), pytest.raises(StoreError, match="answers 503"):
            asking.read_sync(FIRST)
        asking._not_before.clear()
        proxy.limit = proxy.sizes[0] // 3
        with pytest.raises(StoreError):
            asking.read_sync(FIRST)
        assert poll(lambda: route.running == 0, LONG), "the place of the broken answer is free"
        proxy.limit = None
        assert objects(asking.read_sync(FIRST)) == objects(source.store.read_sync(FIRST))
        assert sum(want.after is None for want in source.asked[-1].wants.values()) <= 4
    assert sum(proxy.sizes[1:]) < 1.3 * proxy.sizes[0]


def test_kept_topics_are_asked_of_another_server(source: Source, proxy: CutProxy) -> None:
    with service(source) as (other, _):
        asking = client(f"{proxy.url},{other}")
        proxy.limit = None
        client(proxy.url).read_sync(FIRST)
        proxy.limit = proxy.sizes[-1] // 2
        source.asked.clear()
        assert objects(asking.read_sync(FIRST)) == objects(source.store.read_sync(FIRST))
        first, second = source.asked
        assert all(want == Want() for want in first.wants.values())
        assert any(want.after is not None for want in second.wants.values())


def test_topics_of_another_history_are_read_again_in_the_same_sync(
    source: Source, proxy: CutProxy, tmp_path: Path
) -> None:
    asking = client(proxy.url)
    broken(proxy, asking)
    with Store(f"sqlite:///{tmp_path}/other.db") as other:
        fill(other, Random(9), TOPICS[::2])
        source.store = other
        source.asked.clear()
        assert objects(asking.read_sync(FIRST)) == objects(other.read_sync(FIRST))
    assert source.asked[-1] == SyncQuestion(FIRST)
    assert len(source.asked) == 2


def test_links_that_were_trimmed_mean_that_a_topic_is_read_again(source: Source, proxy: CutProxy) -> None:
    asking = client(proxy.url)
    broken(proxy, asking)
    for seed in range(3):
        fill(source.store, Random(seed), ("t0",), 2)
    assert source.store.trim(keep_links=1) > 0
    source.asked.clear()
    assert objects(asking.read_sync(FIRST)) == objects(source.store.read_sync(FIRST))
    after, again = ({topic for topic, want in each.wants.items() if want.after is not None} for each in source.asked)
    assert after - again == {"t0"}


def test_random_cuts_and_changes_end_in_the_answer_of_the_store(source: Source, proxy: CutProxy) -> None:
    kept = 0
    for seed in range(8):
        rng = Random(seed)
        asking = client(proxy.url)
        proxy.limit = None
        client(proxy.url).read_sync(FIRST)
        size = proxy.sizes[-1]
        for _ in range(4):
            proxy.limit, proxy.reset = rng.randrange(size), rng.random() < 0.5
            try:
                asking.read_sync(FIRST)
            except StoreError:
                kept += 0 if proxy.reset else len(asking._kept)
            for _ in range(rng.randrange(3)):
                change(source.store, rng)
        proxy.limit = None
        assert objects(asking.read_sync(FIRST)) == objects(source.store.read_sync(FIRST)), f"seed {seed}"
        assert not asking._kept
    assert kept > 10


def test_server_that_is_gone_costs_only_what_is_missing(source: Source, proxy: CutProxy) -> None:
    asking = client(f"{proxy.url},{free_url()}")
    broken(proxy, asking)
    assert objects(asking.read_sync(FIRST)) == objects(source.store.read_sync(FIRST))
    assert sum(proxy.sizes[1:]) < 1.2 * proxy.sizes[0]


def topic_of(answer: SyncAnswer, topic: str) -> Full:
    part = answer.chains[topic]
    assert isinstance(part, Full)
    return part


def test_only_first_syncs_and_whole_topics_are_kept(store: Store) -> None:
    answer = store.read_sync({**FIRST, "never-written": Want(), "u": Want()})
    arrived = {topic: topic_of(answer, topic) for topic in answer.chains}
    assert KeptTopics(2**30).keep(arrived, FIRST) == 8, "u was not wanted, and nothing has to be kept of never-written"
    assert KeptTopics(2**30).keep(arrived, {topic: Want(known=Point(1, 1)) for topic in TOPICS}) == 0
    assert KeptTopics(200_000).keep(arrived, FIRST) == 2, "40 values of 2 kB each"
    everything = store.read_sync({ALL: Want()}).chains[ALL]
    assert isinstance(everything, Full)
    assert KeptTopics(2**30).keep({ALL: everything}, {ALL: Want()}) == 0
    whole = arrived["t1"].topics["t1"]
    fewer = contents_of("t1", list(whole.records)[1:])
    arrived["t1"] = Full({"t1": TopicSnapshot(whole.head, fewer)}, whole.head.point)
    assert KeptTopics(2**30).keep(arrived, FIRST) == 7, "one of the pages is missing"


def test_topics_that_are_not_wanted_any_more_are_forgotten(store: Store) -> None:
    kept = KeptTopics(2**30)
    answer = store.read_sync(FIRST)
    kept.keep({topic: topic_of(answer, topic) for topic in TOPICS}, FIRST)
    wants = {"t0": Want(), "t1": Want(Point(1, 1)), "t2": Want(known=Point(1, 1))}
    assert kept.shorter(SyncQuestion(wants)) == SyncQuestion(
        {**wants, "t0": Want(topic_of(answer, "t0").head)}, refresh=True
    )
    assert len(kept) == 1
    kept.clear()
    assert kept.shorter(SyncQuestion(wants)) == SyncQuestion(wants)


def test_relay_behind_a_kept_topic_is_asked_for_its_objects(store: Store) -> None:
    answer = store.read_sync(FIRST)
    kept = KeptTopics(2**30)
    full = topic_of(answer, "t0")
    head = full.topics["t0"].head

    def kept_and_answered(part: Delta | Incomplete | Full) -> SyncAnswer | None:
        kept.keep({"t0": full}, FIRST)
        found = kept.completed(SyncAnswer(head.point, {"t0": part}, ages={"t0": AnswerAge(1.0, 0.5)}))
        assert found is None or found.ages == {"t0": AnswerAge(1.0, 0.5)}, "the age of the last answer"
        assert not kept
        return found

    same = kept_and_answered(Delta([], head.point, {"t0": head}))
    assert same is not None
    assert same.chains == {"t0": full}
    behind = Point(head.point.position - 1, 7)
    assert kept_and_answered(Delta([], behind)) is None
    assert kept_and_answered(Delta([], behind, {"t0": Head(behind, 1, 1)})) is None
    assert kept_and_answered(Incomplete()) is None
    assert kept_and_answered(full) is None, "a source that answers with objects what asks for links"
    fill(store, Random(4), ("t0",), 1)
    fill(store, Random(5), ("t0",), 1)
    delta = store.read_sync({"t0": Want(head.point)}).chains["t0"]
    assert isinstance(delta, Delta)
    assert len(delta.links) == 2
    assert kept_and_answered(msgspec.structs.replace(delta, links=delta.links[1:])) is None
    assert kept_and_answered(delta) is not None


def test_topic_that_a_relay_does_not_have_now_stays_kept(store: Store) -> None:
    answer = store.read_sync(FIRST)
    kept = KeptTopics(2**30)
    kept.keep({topic: topic_of(answer, topic) for topic in TOPICS[:2]}, FIRST)
    point = topic_of(answer, "t0").head
    head = topic_of(answer, "t0").topics["t0"].head
    found = kept.completed(SyncAnswer(point, {"t0": Delta([], point, {"t0": head})}, ages={}))
    assert found is not None
    assert found.chains.keys() == {"t0"}
    assert len(kept) == 1
