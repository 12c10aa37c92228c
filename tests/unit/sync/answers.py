"""Random answers, with everything that an answer may have, and the wants that they answer."""

from collections.abc import Mapping
from random import Random

import msgspec

from pubsub_lib.core.model import (
    ALL,
    AnswerAge,
    Change,
    Delta,
    Full,
    Head,
    Incomplete,
    Link,
    Point,
    Record,
    Recorded,
    SyncAnswer,
    TopicSnapshot,
    Want,
)

INFINITE = float("inf")
STORE_ID = bytes(range(16))


def change(rng: Random, version: int) -> Change:
    """A change with a value of up to 2,000 bytes."""
    if rng.random() < 0.2:
        return Change("lport", f"p{rng.randrange(9)}", "delete", version, None)
    return Change(f"table-{rng.randrange(3)}", "kü" * rng.randint(1, 9), "set", version, b"1" * rng.randrange(2000))


def links(rng: Random, topic: str, after: Point, count: int) -> list[Link]:
    """A topic's links after a point, some of them larger than a page."""
    found = []
    for _ in range(count):
        changes = rng.choice((1, 2, 400))
        point = Point(after.position + changes, rng.getrandbits(63))
        body = [change(rng, after.position + 1 + number) for number in range(changes)]
        found.append(Link(topic, after, point, body, 7, rng.getrandbits(64), after, 1, "api-1", 1.5, "00-ab-cd-01"))
        after = point
    return found


def records(rng: Random, count: int) -> list[Record]:
    """Objects, table by table, as an answer has them."""
    return [
        Record(f"table-{number * 3 // count}", f"key-{number}", rng.randint(1, 2**40), b"2" * rng.randrange(3000))
        for number in range(count)
    ]


def head(rng: Random, point: Point) -> Head:
    """A head at this point."""
    return Head(point, rng.randrange(10**6), rng.getrandbits(64))


def random_answer(rng: Random, *, aged: bool) -> tuple[Mapping[str, Want], SyncAnswer]:
    """Wants for some topics, or for all, and an answer."""
    wants: dict[str, Want] = {}
    chains: dict[str, Delta | Incomplete | Full] = {}
    for name in [ALL] if rng.random() < 0.3 else [f"topic-{number}" for number in range(rng.randint(1, 5))]:
        wants[name], chains[name] = _part(rng, name)
    ages = None
    if aged:
        ages = {
            name: AnswerAge(rng.choice((-1.5, 0.0, INFINITE)), 0.25, rng.choice((3.0, INFINITE))) for name in chains
        }
        if rng.random() < 0.3:
            wants["missing"] = Want()
    return wants, SyncAnswer(Point(10**6, 5), chains, rng.choice((STORE_ID, b"")), ages)


def _part(rng: Random, name: str) -> tuple[Want, Delta | Incomplete | Full]:
    topics = [f"topic-{number}" for number in range(rng.randint(0, 4))] if name == ALL else [name]
    after = Point(rng.randrange(1000), rng.getrandbits(63))
    kind = rng.choice(("delta", "incomplete", "first", "again", "repair"))
    if kind == "incomplete":
        return Want(after), Incomplete()
    if kind == "delta":
        found = links(rng, rng.choice(topics or ["x"]), after, rng.randrange(4))
        point = found[-1].point if found else after
        return Want(after), Delta(found, point, {topic: head(rng, point) for topic in topics})
    point = Point(after.position + 1, 3)
    buckets = frozenset(rng.sample(range(256), 3)) if kind == "repair" else None
    snapshots = {
        topic: TopicSnapshot(
            head(rng, point),
            records(rng, rng.choice((0, 3, 300))),
            buckets,
            [change(rng, 4) for _ in range(rng.randrange(3))] if buckets is not None else (),
        )
        for topic in topics
    }
    want = {
        "first": Want(),
        "again": Want(known=after),
        "repair": Want(buckets={number: rng.getrandbits(64) for number in range(9)}, known=after),
    }[kind]
    if kind != "first" and topics and rng.random() < 0.5:
        want = msgspec.structs.replace(want, judged=(topics[0], after))
        recorded = Recorded(after, rng.random() < 0.5, rng.randrange(9), rng.getrandbits(64))
        return want, Full(snapshots, point, rng.choice((None, True, False)), recorded)
    return want, Full(snapshots, point, rng.choice((None, True, False)))


def plain(answer: SyncAnswer) -> SyncAnswer:
    """The answer with lists in place of other sequences, to compare."""
    chains = {
        name: Full(
            {
                topic: TopicSnapshot(each.head, list(each.records), each.buckets, list(each.changes))
                for topic, each in part.topics.items()
            },
            part.head,
            part.contains_known,
            part.recorded,
        )
        if isinstance(part, Full)
        else part
        for name, part in answer.chains.items()
    }
    return SyncAnswer(answer.store, chains, answer.store_id, answer.ages)
