"""Reading the changelog from the head on: each link once, in commit order; after a changed history the reader jumps."""

from collections.abc import Collection, Sequence

import pytest

from pubsub_lib.core.handoffs import LinkName
from pubsub_lib.core.model import ALL, Heads, Link, Point
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.service import changelog_reader as module
from pubsub_lib.service.changelog_reader import ChangelogReader
from tests.unit.service.links import History


class Log:
    """A store's changelog."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.connects = True
        self.down = False
        self.reads = 0
        self.bounds = 0, 0
        self.lies: list[Point] = []
        self.undone: set[Point] = set()

    def read_heads(self, topics: Collection[str]) -> Heads:
        return Heads(self.history.head, {})

    def read_links(self, after: Point | None, maximum: int, max_bytes: int) -> tuple[list[Link], Point, bool]:
        if self.down:
            raise StoreUnavailable("out")
        self.reads += 1
        self.bounds = maximum, max_bytes
        connects = self.connects and after not in self.lies
        return list(self.history.after(after))[:maximum] if connects else [], self.history.head, connects

    def holds_each(self, asked: Sequence[LinkName]) -> list[bool | None]:
        there = {(topic, link.point) for link in self.history.links for topic in (link.topic, ALL)}
        return [name in there and name[1] not in self.undone for name in asked]


class Out:
    """Records the links that the service would send."""

    def __init__(self) -> None:
        self.shown: list[Link] = []
        self.asked: list[tuple[float, Collection[str], bool]] = []
        self.next = float("inf")
        self.sent: dict[Point, Point] = {}
        self.undone = 0
        self.late: list[LinkName] = []
        self.judged: list[tuple[list[LinkName], list[bool | None]]] = []

    def passed(self, after: Point) -> Point:
        return self.sent.get(after, after)

    def history_changed(self) -> None:
        self.undone += 1

    def overdue(self, now: float) -> list[LinkName]:
        return self.late

    def judge(self, names: Sequence[LinkName], held: Sequence[bool | None], now: float) -> None:
        self.judged.append(([*names], [*held]))

    def in_changelog(self, links: Sequence[Link], now: float) -> None:
        self.shown += links

    def due(self, now: float, live: Collection[str], holds_orphans: bool) -> None:
        self.asked.append((now, live, holds_orphans))

    def next_time(self) -> float:
        return self.next


@pytest.fixture
def history() -> History:
    history = History()
    history.commit()
    return history


def follow(history: History) -> tuple[ChangelogReader, Log, Out]:
    log, out = Log(history), Out()
    return ChangelogReader(log, out, 1.0, lambda now: ({"api-1"}, True)), log, out


def test_reader_starts_at_the_head_and_passes_later_links(history: History) -> None:
    reader, _, out = follow(history)
    assert reader.step(0.0) == 1.0
    later = [history.commit(), history.commit()]
    reader.step(1.0)
    reader.step(2.0)
    assert out.shown == later
    assert out.asked[-1] == (2.0, {"api-1"}, True)


def test_adjusted_interval_is_that_of_the_next_step(history: History) -> None:
    reader, _, _ = follow(history)
    reader.adjust(0.25)
    assert reader.step(1.0) == 1.25


def test_reader_step_is_immediate_while_links_remain_and_early_for_a_grace(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LINKS", 2)
    reader, _, out = follow(history)
    reader.step(0.0)
    later = [history.commit() for _ in range(5)]
    assert [reader.step(5.0) for _ in range(3)] == [5.0, 5.0, 6.0]
    assert out.shown == later
    out.next = 6.3
    assert reader.step(6.0) == 6.3
    out.next = 2.0
    assert reader.step(7.0) == 7.0


def test_each_reading_is_bounded_in_links_and_bytes(history: History) -> None:
    reader, log, _ = follow(history)
    reader.step(0.0)
    history.commit()
    reader.step(1.0)
    assert log.bounds == (module.MAX_LINKS, module.MAX_BYTES)


def test_reader_jumps_to_the_head_of_another_history(history: History) -> None:
    reader, log, out = follow(history)
    reader.step(0.0)
    log.connects = False
    history.commit()
    reader.step(1.0)
    log.connects = True
    last = history.commit()
    reader.step(2.0)
    assert reader.jumps == out.undone == 1
    assert out.shown[-1] == last


def test_reader_reads_no_links_that_were_all_sent(history: History) -> None:
    reader, log, out = follow(history)
    reader.step(0.0)
    start = history.head
    history.commit()
    out.sent[start] = history.head
    assert reader.step(1.0) == 2.0
    assert log.reads == 0
    reader.step(2.0)
    start = history.head
    out.sent[start] = history.commit().point
    other = history.commit()
    reader.step(3.0)
    assert out.shown == [other]
    assert log.reads == 2
    assert reader.jumps == 0


def test_reader_skips_no_links_after_an_outage(history: History) -> None:
    reader, log, out = follow(history)
    reader.step(0.0)
    link = history.commit()
    log.down = True
    with pytest.raises(StoreUnavailable):
        reader.step(1.0)
    log.down = False
    reader.step(2.0)
    assert out.shown == [link]


def test_reader_skips_no_links_after_a_point_that_was_never_committed(history: History) -> None:
    reader, log, out = follow(history)
    reader.step(0.0)
    begin, lie = history.head, Point(77, 77)
    out.sent[begin] = lie
    log.lies.append(lie)
    link = history.commit()
    reader.step(1.0)
    assert out.shown == [link]
    assert (reader.jumps, out.undone) == (0, 0)


def test_reader_looks_up_what_the_changelog_did_not_show(history: History) -> None:
    reader, log, out = follow(history)
    reader.step(0.0)
    assert out.judged == []
    true = history.commit()
    out.late = [(true.topic, true.point), (true.topic, Point(77, 77)), ("other", true.point)]
    reader.step(1.0)
    assert out.judged == [(out.late, [True, False, False])]
    log.undone.add(history.head)  # the reader's own point
    reader.step(2.0)
    assert len(out.judged) == 1
    assert out.undone == 1
