"""The simulator's store gives the same answers as the real one, on each database: links, heads and syncs.

Nonces and times always differ: nonces are named by their order of appearance, times are left out.
"""

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from pubsub_lib.core.model import (
    ALL,
    ZERO,
    Delta,
    Full,
    Heads,
    Incomplete,
    Link,
    Point,
    SyncAnswer,
    TopicSnapshot,
    Want,
)
from pubsub_lib.errors import ConditionFailed
from pubsub_lib.store import Store
from simulator.store import ModelStore, Verb
from tests.scale import scaled

TOPICS = ("t0", "t1", "T1", "t1 ")
KEYS = ("a", "A", "b", "b ")
ROUNDS = scaled(15)


class Names:
    """Names for nonces, so that two stores can be compared."""

    def __init__(self) -> None:
        self._names: dict[int, int] = {0: 0}

    def point(self, point: Point) -> tuple[int, int]:
        return point.position, self._names.setdefault(point.nonce, len(self._names))

    def link(self, link: Link) -> Any:
        changes = [(at.table, at.key, at.action, at.version, at.value) for at in link.changes]
        points = self.point(link.prev), self.point(link.tx_prev), self.point(link.point)
        return link.topic, *points, changes, link.count, link.digest, link.tx_links, link.origin

    def links(self, links: Any) -> Any:
        # Within a transaction the order of topics has no meaning.
        return [self.link(link) for link in sorted(links, key=lambda link: (link.point.position, link.topic))]

    def heads(self, heads: Heads) -> Any:
        named = {topic: (self.point(at.point), at.count, at.digest) for topic, at in sorted(heads.topics.items())}
        return self.point(heads.store), named

    def snapshot(self, snapshot: TopicSnapshot) -> Any:
        head = snapshot.head
        return self.point(head.point), head.count, head.digest, sorted(map(msgspec.structs.astuple, snapshot.records))

    def answer(self, answer: SyncAnswer) -> Any:
        return self.point(answer.store), {chain: self._part(part) for chain, part in sorted(answer.chains.items())}

    def _part(self, part: Delta | Incomplete | Full) -> Any:
        if isinstance(part, Delta):
            heads = {name: (self.point(each.point), each.count) for name, each in sorted(part.heads.items())}
            return "delta", self.links(part.links), self.point(part.head), heads
        if isinstance(part, Full):
            topics = {topic: self.snapshot(at) for topic, at in sorted(part.topics.items())}
            recorded = part.recorded and (self.point(part.recorded.point), part.recorded.count)
            return "full", topics, self.point(part.head), part.contains_known, recorded
        return "incomplete"


class Both:
    """The real store and its model, given the same verbs."""

    def __init__(self, url: str) -> None:
        self.real = Store(url, origin="s1")
        self.model = ModelStore(random.Random(1))
        self._real, self._model = Names(), Names()
        self.points: list[tuple[Point, Point]] = [(ZERO, ZERO)]

    def commit(self, verbs: list[Verb]) -> None:
        real, model = self._commit_real(verbs), self._commit_model(verbs)
        assert real == model
        self.points.append((self.real.read_heads(()).store, self.model.state.point))

    def _commit_real(self, verbs: list[Verb]) -> Any:
        try:
            with self.real.transaction() as tx:
                for verb in verbs:
                    if verb.kind == "delete":
                        tx.delete(verb.table, verb.key, version=verb.version, missing_ok=verb.missing_ok)
                    elif verb.kind == "create":
                        tx.create(verb.table, verb.key, _value(verb), topic=verb.topic)
                    else:
                        getattr(tx, verb.kind)(
                            verb.table, verb.key, _value(verb), topic=verb.topic, version=verb.version
                        )
        except ConditionFailed as error:
            return type(error).__name__
        return None if tx.commit is None else self._real.links(tx.commit.links)

    def _commit_model(self, verbs: list[Verb]) -> Any:
        try:
            commit = self.model.commit(verbs, "s1", 0.0)
        except ConditionFailed as error:
            return type(error).__name__
        return None if commit is None else self._model.links(commit.links)

    def compare(self, rng: random.Random) -> None:
        real, model = self.real, self.model
        some = rng.sample(TOPICS, 2)
        for topics in ((), (ALL,), some):
            assert self._real.heads(real.read_heads(topics)) == self._model.heads(model.read_heads(topics))
        for wants in (dict.fromkeys(some), {ALL: None}):
            real_after, model_after = rng.choice(self.points)
            asked: Mapping[str, Want] = dict.fromkeys(wants, Want())
            assert self._answer(asked, asked)
            assert self._answer(dict.fromkeys(wants, Want(real_after)), dict.fromkeys(wants, Want(model_after)))
        of_topic = real.read_heads(some).topics[some[0]].point, model.read_heads(some).topics[some[0]].point
        assert self._answer({some[0]: Want(of_topic[0])}, {some[0]: Want(of_topic[1])})
        buckets = Want(buckets={rng.randrange(256): 5})
        assert self._answer({some[0]: buckets}, {some[0]: buckets})
        real_after, model_after = rng.choice(self.points)
        for topic in (ALL, *some):
            assert self._answer({topic: Want(known=real_after)}, {topic: Want(known=model_after)})
        for topic in some:
            real_judged, model_judged = (topic, real_after), (topic, model_after)
            assert self._answer({topic: Want(judged=real_judged)}, {topic: Want(judged=model_judged)})
            assert self._answer({ALL: Want(judged=real_judged)}, {ALL: Want(judged=model_judged)})
        for topic in (ALL, *some):
            # Some of these are points of another topic, and some were trimmed; the last ones were never committed.
            strangers = [Point(real.read_heads(()).store.position + beyond, 5) for beyond in (-1, 0, 1)]
            mine = [point for point, _ in self.points] + [each for each in strangers if each.position > 0]
            theirs = [point for _, point in self.points] + [each for each in strangers if each.position > 0]
            assert real.holds(topic, mine) == model.holds(topic, theirs), topic
        real_after, model_after = rng.choice(self.points)
        links, head, complete = real.read_links(real_after, 1000)
        model_links, model_head, model_complete = model.read_links(model_after, 1000)
        assert (complete, self._real.point(head)) == (model_complete, self._model.point(model_head))
        if complete:
            assert self._real.links(links) == self._model.links(model_links)

    def _answer(self, real: Mapping[str, Want], model: Mapping[str, Want]) -> bool:
        given, expected = self._real.answer(self.real.read_sync(real)), self._model.answer(self.model.read_sync(model))
        assert given == expected
        return True


def _value(verb: Verb) -> Any:
    assert verb.value is not None
    return msgspec.json.decode(verb.value)


def _verb(rng: random.Random, both: Both) -> Verb:
    key = rng.choice(KEYS)
    stored = both.model.state.objects.get(("lport", key))
    version = None
    if rng.random() < 0.2:
        version = stored.version if stored is not None and rng.random() < 0.7 else rng.randrange(1, 50)
    kind = rng.choices(("set", "create", "update", "delete"), (5, 2, 2, 3))[0]
    if kind == "delete":
        return Verb("delete", "lport", key, version=version, missing_ok=rng.random() < 0.7 and version is None)
    value = msgspec.json.encode({f"m{rng.randrange(2)}": rng.randrange(3)}, order="sorted")
    topic = rng.choice((None, *TOPICS))
    return Verb(kind, "lport", key, value, topic, None if kind == "create" else version)


@pytest.mark.parametrize("trims", [False, True], ids=["kept", "trimmed"])
def test_model_store_gives_the_answers_of_the_real_store(database_url: str, rng: random.Random, trims: bool) -> None:
    both = Both(database_url)
    with both.real:
        for number in range(ROUNDS):
            both.commit([_verb(rng, both) for _ in range(rng.choice((1, 1, 2, 4)))])
            if trims and number % (ROUNDS // 3) == ROUNDS // 3 - 1:
                keep = rng.randrange(0, 8)
                both.real.trim(keep_links=keep)
                both.model.trim(keep)
            if number % 4 == 0:
                both.compare(rng)
        both.compare(rng)
