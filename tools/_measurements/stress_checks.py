"""The checks after ``tools/bench stress``: all data of the database against the journals of its processes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pubsub_lib.core import digest
from pubsub_lib.core.model import ZERO, Link, Point
from pubsub_lib.store import Store


def check(store: Store, folder: Path) -> tuple[list[str], dict[str, Any]]:
    """A sentence for each failed check, and the figures."""
    wrong: list[str] = []
    links = list(everything(store))
    if not links:
        wrong.append("no transaction was written")
    figures: dict[str, Any] = {"links": len(links), "position": store.read_heads([]).store.position}
    check_chains(links, wrong)
    check_objects(store, links, wrong)
    acknowledged: dict[int, int] = {}
    for path in folder.glob("writer-*.jsonl"):
        *lines, last = path.read_text(encoding="utf-8").splitlines()
        for line in lines:
            position, nonce = json.loads(line)
            if nonce in acknowledged:
                wrong.append(f"nonce {nonce} was acknowledged twice")
            acknowledged[nonce] = position
        for name, count in json.loads(last).items():
            figures[name] = figures.get(name, 0) + count
    stored = {link.point.nonce: link.point.position for link in links}
    if stored != acknowledged:
        wrong.append(f"{len(stored)} transactions are stored, {len(acknowledged)} were acknowledged, or they differ")
    followed = [json.loads(line) for line in (folder / "followed.jsonl").read_text(encoding="utf-8").splitlines()]
    if followed != [[link.point.position, link.point.nonce, link.topic] for link in links]:
        wrong.append(f"the follower read {len(followed)} links of {len(links)}, or other links")
    return wrong, figures


def everything(store: Store) -> Iterator[Link]:
    """The whole changelog in commit order."""
    known = ZERO
    while True:
        links, _, complete = store.read_links(known, 1000)
        if not complete:
            raise AssertionError(f"the changelog does not connect to {known}")
        if not links:
            return
        yield from links
        known = links[-1].point


def check_chains(links: list[Link], wrong: list[str]) -> None:
    """Check positions without gaps, one chain over all transactions, one per topic, and growing versions."""
    position, tx, previous = 0, ZERO, ZERO
    heads: dict[str, Point] = {}
    versions: dict[str, int] = {}
    by_transaction: dict[Point, list[Link]] = {}
    for link in links:
        by_transaction.setdefault(link.point, []).append(link)
        if heads.get(link.topic, ZERO) != link.prev:
            wrong.append(f"the chain of {link.topic} is broken at {link.point}")
        heads[link.topic] = link.point
    for point, group in by_transaction.items():
        tx, previous = point, tx
        if any(link.tx_prev != previous or link.tx_links != len(group) for link in group):
            wrong.append(f"the transactions' chain is broken at {point}")
        numbers = sorted(change.version for link in group for change in link.changes)
        if numbers != list(range(position + 1, point.position + 1)):
            wrong.append(f"positions {numbers} follow {position} at {point}")
        position = point.position
        for change in sorted((change for link in group for change in link.changes), key=lambda each: each.version):
            if change.version <= versions.get(change.key, 0):
                wrong.append(f"the version of {change.key} decreased to {change.version}")
            versions[change.key] = change.version


def check_objects(store: Store, links: list[Link], wrong: list[str]) -> None:
    """Check that heads equal a recount and the last links, and objects equal the replayed changelog."""
    replayed: dict[tuple[str, str], tuple[int, bytes]] = {}
    last: dict[str, Link] = {}
    for link in links:
        last[link.topic] = link
        for change in link.changes:
            if change.value is None:
                replayed.pop((link.topic, change.key), None)
            else:
                replayed[link.topic, change.key] = (change.version, change.value)
    objects = {(each.topic, each.key): (each.version, each.value) for each in store.objects()}
    if objects != replayed:
        wrong.append(f"{len(objects)} objects, {len(replayed)} when replayed, or they differ")
    for topic, head in store.topics().items():
        if store.recount(topic) != head:
            wrong.append(f"the head of {topic} is {head}, a recount gives {store.recount(topic)}")
        if (last[topic].point, last[topic].count, last[topic].digest) != (head.point, head.count, head.digest):
            wrong.append(f"the head of {topic} differs from its last link")
        buckets = 0
        for each in store.bucket_digests(topic).values():
            buckets = digest.add(buckets, each)
        if buckets != head.digest:
            wrong.append(f"the buckets of {topic} do not add up to its digest")
