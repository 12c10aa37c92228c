"""All logs of a relay share one bound: the links that were logged first are forgotten, of whatever topic."""

import random
from collections.abc import Sequence

import pytest

from pubsub_lib.core.log_space import LogSpace
from pubsub_lib.core.model import ZERO, Link
from pubsub_lib.core.reorder_buffer import size_of
from pubsub_lib.core.topic_log import LINK_OVERHEAD, TopicLog
from tests.unit.core.builders import History


def size(links: Sequence[Link]) -> int:
    return sum(LINK_OVERHEAD + size_of(link) for link in links)


def test_links_that_were_logged_first_are_forgotten_of_whatever_topic() -> None:
    """A topic with few links keeps them for as long as a busy one."""
    history, space = History(), LogSpace()
    quiet, busy = TopicLog(ZERO, space), TopicLog(ZERO, space)
    first = history.one("quiet")
    quiet.add(first, 1.0)
    links = history.some(10, "busy")
    for link in links[:5]:
        busy.add(link, 1.0)
    last = history.one("quiet")
    quiet.add(last, 1.0)
    space._max_bytes = size([*links[5:], last])
    for link in links[5:]:
        busy.add(link, 1.0)
    assert (len(quiet), len(busy)) == (1, 5)
    assert quiet.after(first.point) == ([last], 1.0)
    assert busy.after(links[4].point) == (links[5:], 1.0)


@pytest.mark.parametrize("seed", range(20))
def test_bound_holds_whatever_happens_to_the_logs(seed: int) -> None:
    rng = random.Random(seed)
    topics = [f"t{number}" for number in range(rng.randint(1, 8))]
    history, space = History(seed), LogSpace(rng.choice([500, 5_000, 20_000]))
    logs = {topic: TopicLog(ZERO, space) for topic in topics}
    sent: dict[str, list[Link]] = {topic: [] for topic in topics}
    for _ in range(400):
        topic = rng.choice(topics)
        log, before = logs[topic], sent[topic]
        if before and rng.random() < 0.05:
            log.restart(before[-1].point)
            log.prepend(before[-rng.randint(1, 4) :], 1.0)
        link = history.one(topic)
        log.add(link, 1.0)
        before.append(link)
        kept = {each: sent[each][len(sent[each]) - len(logs[each]) :] for each in topics}
        assert space.used == sum(size(links) for links in kept.values()) <= space._max_bytes
        for each, links in kept.items():
            assert logs[each].head == (sent[each][-1].point if sent[each] else ZERO)
            assert logs[each].after(logs[each]._base) == (links, 1.0 if links else float("inf"))
        assert len(space._oldest) == len(space._listed) <= len(topics)


def test_link_larger_than_the_space_is_not_kept() -> None:
    links = History().some(3)
    log = TopicLog(ZERO, LogSpace(10))
    for link in links:
        log.add(link, 1.0)
    assert (len(log), log.head) == (0, links[-1].point)
