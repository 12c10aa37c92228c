"""Links for tests of the service: one chain of a store, with given topics and origins."""

from collections.abc import Sequence

from pubsub_lib.core.model import ZERO, Change, Link, Point


class History:
    """Commits, one change each, in the order of the calls."""

    def __init__(self) -> None:
        self.head = ZERO
        self._heads: dict[str, Point] = {}
        self.links: list[Link] = []

    def commit(self, topic: str = "t", origin: str = "api-1", value: bytes = b"1") -> Link:
        position = self.head.position + 1
        point = Point(position, position + 1000)
        change = Change("table", f"k{position}", "set", position, value)
        link = Link(topic, self._heads.get(topic, ZERO), point, [change], 1, 0, self.head, 1, origin)
        self._heads[topic] = self.head = point
        self.links.append(link)
        return link

    def after(self, point: Point | None) -> Sequence[Link]:
        return [link for link in self.links if point is None or link.point.position > point.position]
