"""Each link is sent once, from a worker or the changelog; links that the driver rejects are counted and not retried."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.handoffs import AFTER, SECONDS
from pubsub_lib.core.model import Link, Point
from pubsub_lib.core.unpublished_links import MAX_DUE, UnpublishedLinks
from pubsub_lib.errors import TransportError
from pubsub_lib.service.outgoing import Outgoing
from tests.unit.core.builders import envelope
from tests.unit.service.links import History


class Sent:
    """A publisher that records links, or raises."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.refuses = False
        self.room = 1000

    def publish(self, links: Sequence[Link], sent: list[Envelope]) -> None:
        for link in links:
            if self.refuses or len(self.links) >= self.room:
                raise TransportError("the wire is cut")
            self.links.append(link)
            sent.append(envelope(link))


class Notes:
    """A journal that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[tuple[Any, ...]] = []

    def note(self, kind: str, *, topic: str, service: str, uuid: str, point: Point, cause: str) -> None:
        self.notes.append((kind, topic, uuid, point, cause))


def outgoing() -> tuple[Outgoing, Sent]:
    sent = Sent()
    journal: Any = Notes()
    return Outgoing("api-1", UnpublishedLinks("api-1", grace=1.0, keep=60.0), sent, journal), sent


def test_handed_over_link_is_not_sent_again_from_the_changelog() -> None:
    out, sent = outgoing()
    link = History().commit()
    out.handed_over([link])
    out.in_changelog([link], 10.0)
    out.due(20.0, {"api-1"}, True)
    assert sent.links == [link]
    assert out.counters() == {"handed": 1, "repeated": 0, "followed": 0, "took_over": 0, "unsent": 0}


def test_link_from_the_changelog_is_sent_after_the_grace_and_not_again() -> None:
    out, sent = outgoing()
    link = History().commit()
    out.in_changelog([link], 10.0)
    assert out.next_time() == 11.0
    out.due(10.9, {"api-1"}, False)
    assert sent.links == []
    out.due(11.0, {"api-1"}, False)
    out.handed_over([link])
    assert sent.links == [link]
    assert out.counters()["followed"] == out.counters()["repeated"] == 1


def test_orphans_are_sent_only_under_the_lease_and_without_live_service() -> None:
    out, sent = outgoing()
    history = History()
    gone, none, live = history.commit(origin="api-9"), history.commit(origin=""), history.commit(origin="api-2")
    out.in_changelog([gone, none, live], 0.0)
    out.due(5.0, {"api-1", "api-2"}, False)
    assert sent.links == []
    out.due(5.0, {"api-1", "api-2"}, True)
    assert sent.links == [gone, none]
    assert out.counters()["took_over"] == 2


def test_rejected_links_are_counted_as_unsent() -> None:
    out, sent = outgoing()
    history = History()
    sent.refuses = True
    out.handed_over([history.commit(), history.commit()])
    sent.refuses = False
    last = history.commit()
    out.handed_over([last])
    assert sent.links == [last]
    assert out.counters()["unsent"] == 2


def test_only_links_that_were_not_sent_are_counted_as_unsent(caplog: pytest.LogCaptureFixture) -> None:
    out, sent = outgoing()
    history = History()
    sent.room = 7
    out.handed_over([history.commit() for _ in range(10)])
    assert (out.counters()["handed"], out.counters()["unsent"]) == (10, 3)
    (record,) = caplog.records
    assert record.getMessage() == ("3 links could not be sent; replicas will read them from the store: the wire is cut")
    assert (record.pubsub_links, record.pubsub_position) == (3, 10)  # type: ignore[attr-defined]


class Slow(Sent):
    """A publisher whose time is over after some links of each call."""

    def __init__(self, at_once: int) -> None:
        super().__init__()
        self.room = 100_000
        self.at_once = at_once
        self.calls = 0

    def publish(self, links: Sequence[Link], sent: list[Envelope]) -> None:
        self.calls += 1
        super().publish(links[: self.at_once], sent)
        if len(links) > self.at_once:
            raise TransportError("sending a commit took longer than 0.5 s")


def slow(at_once: int) -> tuple[Outgoing, Slow]:
    sent = Slow(at_once)
    return Outgoing("api-1", UnpublishedLinks("api-1", grace=1.0, keep=60.0), sent), sent


def test_large_take_over_is_continued_until_all_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    out, sent = slow(130)
    history = History()
    orphans = [history.commit(origin="api-9") for _ in range(5000)]
    out.in_changelog(orphans, 0.0)
    now = 70.0  # also when the links are older than other links may become
    while out.next_time() <= now:
        out.due(now, {"api-1"}, True)
        now += 0.5
    assert sent.links == orphans
    assert out.next_time() == float("inf")
    assert out.counters() == {"handed": 0, "repeated": 0, "followed": 0, "took_over": 5000, "unsent": 0}
    assert caplog.records == []


def test_portions_are_of_a_bounded_number_of_links() -> None:
    out, sent = slow(100_000)
    history = History()
    orphans = [history.commit(origin="api-9") for _ in range(2 * MAX_DUE + 1)]
    out.in_changelog(orphans, 0.0)
    for number in (1, 2, 3):
        assert out.next_time() <= 1.0
        out.due(1.0, {"api-1"}, True)
        assert sent.links == orphans[: number * MAX_DUE]
    assert (sent.calls, out.next_time()) == (3, float("inf"))


def test_links_that_wait_for_their_portion_are_taken_from_a_worker() -> None:
    out, sent = slow(2)
    history = History()
    own = [history.commit() for _ in range(4)]
    out.in_changelog(own, 0.0)
    out.due(1.0, {"api-1"}, False)
    out.handed_over(own[2:])
    assert sent.links == own
    out.due(1.0, {"api-1"}, False)
    assert sent.links == own
    assert (out.counters()["followed"], out.counters()["handed"], out.counters()["unsent"]) == (2, 2, 0)


def test_portion_of_which_nothing_is_sent_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """Else one link that cannot be sent would be tried for ever, and no other one would be sent."""
    out, sent = outgoing()
    history = History()
    own = [history.commit() for _ in range(10)]
    out.in_changelog(own, 0.0)
    sent.room = 7
    out.due(1.0, {"api-1"}, False)
    assert (sent.links, caplog.records, out.counters()["unsent"]) == (own[:7], [], 0)
    assert out.next_time() <= 1.0
    out.due(1.0, {"api-1"}, False)
    assert (out.counters()["followed"], out.counters()["unsent"]) == (10, 3)
    assert [record.getMessage() for record in caplog.records] == [
        "3 links could not be sent; replicas will read them from the store: the wire is cut"
    ]
    sent.room = 1000
    assert out.next_time() == float("inf")
    out.due(2.0, {"api-1"}, False)
    out.handed_over(own)
    assert sent.links == own[:7], "as links of workers"


def test_link_that_raises_anything_does_not_keep_others_from_being_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    out, sent = outgoing()
    history = History()
    out.in_changelog([history.commit()], 0.0)

    def fail(_links: Sequence[Link], _sent: list[Envelope]) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(sent, "publish", fail)
        with pytest.raises(MemoryError):
            out.due(1.0, {"api-1"}, False)
    other = history.commit()
    out.in_changelog([other], 1.0)
    out.due(2.0, {"api-1"}, False)
    assert sent.links == [other]


WORKER = ("api-1", "a" * 32)


def test_worker_that_hands_over_what_was_never_committed_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    out, sent = outgoing()
    history, lies = History(), History()
    lie = lies.commit(topic="planted")
    out.handed_over([lie], WORKER)
    assert out.overdue(0.0) == []
    assert out.overdue(AFTER) == [("planted", lie.point)]
    out.judge([("planted", lie.point)], [False], AFTER)
    assert out._journal.notes == [("contradicted", "planted", WORKER[1], lie.point, "quarantined")]  # type: ignore[union-attr]
    assert out.worker_counters() == {"contradicted": 1, "quarantined": 0, "doubted": 0}
    assert out.excluded_workers == [WORKER]
    (record,) = caplog.records
    assert WORKER[1] in record.getMessage()
    assert "the topic 'planted' at position 1" in record.getMessage()
    true = history.commit()
    out.handed_over([true], WORKER)
    assert sent.links == [lie]
    assert out.worker_counters()["quarantined"] == 1
    out.in_changelog([true], AFTER)
    out.due(AFTER + 1.0, {"api-1"}, False)
    assert sent.links == [lie, true], "what it committed is published from the changelog"
    out.overdue(2 * AFTER + SECONDS)
    again = history.commit()
    out.handed_over([again], WORKER)
    assert sent.links[-1] == again


def test_after_a_lie_links_of_new_workers_wait_for_the_changelog() -> None:
    """A program can take a new UUID for each lie."""
    out, sent = outgoing()
    history, lies = History(), History()
    known, new = ("api-1", "d" * 32), ("api-1", "e" * 32)
    first = history.commit()
    out.handed_over([first], known)
    out.in_changelog([first], 0.0)
    for number in range(3):
        lie = lies.commit(topic="planted")
        out.handed_over([lie], ("api-1", f"{number:032x}"))
        names = [*out.overdue(2 * number * AFTER), *out.overdue((2 * number + 1) * AFTER)]
        assert names == [("planted", lie.point)]
        out.judge(names, [False], (2 * number + 1) * AFTER)
    assert sent.links == [first, lies.links[0]]
    assert out.worker_counters() == {"contradicted": 3, "quarantined": 0, "doubted": 2}
    quick = history.commit()
    out.handed_over([quick], known)
    assert sent.links[-1] == quick, "the changelog has shown a link of this worker"
    links = [history.commit(), history.commit(origin="api-2")]
    out.handed_over(links, new)
    assert sent.links[-1] == quick
    out.in_changelog(links, 40.0)
    out.due(40.0, {"api-1", "api-2"}, False)
    assert sent.links[-2:] == links, "without the grace"
    late = history.commit()
    out.handed_over([late], new)
    assert sent.links[-1] == late
    assert out.counters()["unsent"] == 0


def altered(link: Link) -> Link:
    return msgspec.structs.replace(link, changes=[msgspec.structs.replace(link.changes[0], value=b'"mallory"')])


def test_worker_that_alters_a_link_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    out, _ = outgoing()
    history = History()
    start, link = history.head, history.commit()
    out.handed_over([altered(link)], WORKER)
    assert out.passed(start) == start, "it is read, to be compared"
    out.in_changelog([link], 1.0)
    assert out.excluded_workers == [WORKER]
    assert out._journal.notes == [("contradicted", "t", WORKER[1], link.point, "quarantined")]  # type: ignore[union-attr]
    (record,) = caplog.records
    assert "differs from the one in the database" in record.getMessage()


def test_altered_link_is_not_sent_after_the_changelog_showed_the_true_one() -> None:
    out, sent = outgoing()
    history = History()
    links = [history.commit(), history.commit()]
    out.in_changelog(links[:1], 0.0)
    out.handed_over([altered(links[0]), links[1]], WORKER)
    assert sent.links == links[:1]
    assert out.excluded_workers == [WORKER]
    out.in_changelog(links[1:], 0.1)
    out.due(0.1, {"api-1"}, False)
    assert sent.links == links


def test_link_of_a_topic_that_the_transaction_did_not_touch_is_looked_up() -> None:
    out, _ = outgoing()
    history = History()
    true = history.commit()
    out.handed_over([msgspec.structs.replace(true, topic="planted"), true], WORKER)
    out.in_changelog([true], 0.0)
    assert [*out.overdue(0.0), *out.overdue(AFTER)] == [("planted", true.point)]


def test_links_that_the_changelog_showed_are_not_looked_up() -> None:
    out, _ = outgoing()
    history = History()
    out.handed_over([history.commit(), history.commit()], WORKER)
    out.in_changelog(history.links, 0.0)
    assert [*out.overdue(0.0), *out.overdue(AFTER)] == []


def test_links_that_the_service_committed_are_not_looked_up() -> None:
    """A group commit of the host."""
    out, _ = outgoing()
    history = History()
    start = history.head
    out.handed_over([history.commit()])
    assert out.passed(start) == history.head
    assert [*out.overdue(0.0), *out.overdue(AFTER)] == []


def test_changed_history_accuses_no_worker() -> None:
    out, _ = outgoing()
    out.handed_over([History().commit()], WORKER)
    out.history_changed()
    assert [*out.overdue(0.0), *out.overdue(AFTER)] == []
