"""What a model of the store has at a point of a topic that is to be judged (rule 14)."""

from collections.abc import Iterable

from pubsub_lib.core.model import Head, Link, Point, Recorded


def recorded(topic: str, point: Point, held: bool | None, head: Head, links: Iterable[Link]) -> Recorded | None:
    """``held``: whether the topic's history contains the point; None: it was trimmed. ``links``: the kept ones."""
    if held is None:
        return None
    if not held:
        return Recorded(point, held=False)
    link = next((each for each in links if each.topic == topic and each.point == point), None)
    if link is not None:
        return Recorded(point, True, link.count, link.digest)
    return Recorded(point, True, head.count, head.digest) if head.point == point else None
