"""The links that a service publishes because no worker handed them over (rule S10)."""

from collections.abc import Collection

import msgspec
import pytest

from pubsub_lib.core import unpublished_links as module
from pubsub_lib.core.model import Link
from pubsub_lib.core.reorder_buffer import size_of
from pubsub_lib.core.unpublished_links import MAX_BYTES, UnpublishedLinks
from tests.unit.core.builders import History

GRACE, KEEP = 1.0, 10.0


def of(origin: str, link: Link) -> Link:
    return msgspec.structs.replace(link, origin=origin)


def links(*origins: str) -> list[Link]:
    history = History()
    return [of(origin, history.one()) for origin in origins]


class Settling(UnpublishedLinks):
    """All links that are due are published at once."""

    def due(self, now: float, live: Collection[str], holds_orphans: bool) -> list[Link]:
        found = super().due(now, live, holds_orphans)
        self.settle(found)
        return found


def unpublished() -> UnpublishedLinks:
    return Settling("me", GRACE, KEEP)


def test_handed_over_link_is_published_once() -> None:
    one = unpublished()
    given = links("me", "me")
    assert one.handed_over(given) == given
    assert one.handed_over(given) == []
    one.in_changelog(given, 0.0)
    assert one.due(99.0, {"me"}, holds_orphans=True) == []


def test_own_links_not_handed_over_are_published_after_the_grace_in_commit_order() -> None:
    one = unpublished()
    given = links("me", "me")
    one.in_changelog(given, 5.0)
    assert one.next_time() == 5.0 + GRACE
    assert one.due(5.0 + GRACE - 0.01, {"me"}, holds_orphans=False) == []
    assert one.due(5.0 + GRACE, {"me"}, holds_orphans=False) == given
    assert one.handed_over(given) == [], "links that a late worker hands over were published already"
    assert one.due(99.0, {"me"}, holds_orphans=False) == []


def test_reader_passes_transactions_whose_links_were_all_published() -> None:
    one, history = unpublished(), History()
    start = history.point
    first, second = history.commit(("a", "1", "x")), history.commit(("a", "1", "y"), ("b", "2", "y"))
    third, fourth = history.commit(("b", "2", "z")), history.commit(("a", "1", "z"))
    assert one.passed(start) == start
    one.handed_over(first + second[:1] + fourth)
    assert one.passed(start) == first[0].point
    one.handed_over(second[1:])
    assert one.passed(first[0].point) == second[0].point
    one.in_changelog(third, 0.0)
    assert one.passed(second[0].point) == second[0].point
    one.due(GRACE, set(), holds_orphans=True)
    assert one.passed(second[0].point) == fourth[0].point == history.point


def test_reader_passes_no_transaction_that_a_worker_handed_over() -> None:
    one, history = unpublished(), History()
    start = history.point
    given = history.commit(("a", "1", "x"))
    assert one.handed_over(given, compared=True) == given
    assert one.passed(start) == start


def test_link_that_was_not_believed_is_due_when_the_changelog_shows_it() -> None:
    one = unpublished()
    given = links("other", "me", "me", "me")
    one.expect(given[:2])
    one.in_changelog(given, 0.0)
    assert one.due(0.0, {"other"}, holds_orphans=False) == given[:2], "whatever its origin"
    assert one.due(GRACE, {"other"}, holds_orphans=False) == given[2:]
    assert not one._expected


def test_links_are_unknown_until_the_changelog_shows_them_or_they_are_published() -> None:
    one = unpublished()
    given = links("me", "me", "me")
    assert one.unknown(given) == given
    one.expect(given[:1])
    assert one.unknown(given) == given
    one.in_changelog(given[:1], 0.0)
    one.handed_over(given[1:2])
    assert one.unknown(given) == given[2:]
    assert [one.shown(link) for link in given] == [given[0], None, None]


@pytest.mark.parametrize(
    ("origin", "live", "holds", "expected"),
    [
        ("other", {"me", "other"}, True, False),
        ("other", {"me"}, True, True),
        ("other", {"me"}, False, False),
        ("", {"me"}, True, True),
        ("", {"me"}, False, False),
        ("me", set(), False, True),
    ],
)
def test_holder_of_the_lease_publishes_orphans(origin: str, live: set[str], holds: bool, expected: bool) -> None:
    one = unpublished()
    given = links(origin)
    one.in_changelog(given, 0.0)
    assert one.due(GRACE, live, holds_orphans=holds) == (given if expected else [])


def test_link_of_a_live_service_is_published_when_that_service_dies() -> None:
    one = unpublished()
    given = links("other")
    one.in_changelog(given, 0.0)
    assert one.due(GRACE, {"other"}, holds_orphans=True) == []
    assert one.due(KEEP - 1.0, set(), holds_orphans=True) == given


def test_link_of_a_live_service_is_forgotten_after_keep() -> None:
    one = unpublished()
    one.in_changelog(links("other"), 0.0)
    assert one.due(KEEP, {"other"}, holds_orphans=True) == []
    assert one.due(KEEP + 1.0, set(), holds_orphans=True) == []


@pytest.mark.parametrize("origin", ["me", "dead"])
def test_grace_longer_than_keep_still_publishes_links(origin: str) -> None:
    one = Settling("me", 60.0, KEEP)
    given = links(origin)
    one.in_changelog(given, 0.0)
    for now in (KEEP, 3 * KEEP, 59.0):
        assert one.due(now, {"me"}, holds_orphans=True) == []
    assert one.due(61.0, {"me"}, holds_orphans=True) == given


def test_next_time_ignores_waiting_links_of_other_services() -> None:
    one = unpublished()
    given = links("other", "me")
    one.in_changelog(given[:1], 0.0)
    one.due(GRACE, {"other"}, holds_orphans=False)
    assert one.next_time() == float("inf")
    one.in_changelog(given[1:], 3.0)
    assert one.next_time() == 3.0 + GRACE
    assert one.due(3.0 + GRACE, {"other"}, holds_orphans=False) == given[1:]
    assert one.next_time() == float("inf")


def test_memory_is_bounded_and_forgetting_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 3)
    one = unpublished()
    given = links(*["me"] * 5)
    one.in_changelog(given, 0.0)
    assert one.due(GRACE, set(), holds_orphans=False) == given[2:]
    assert one.handed_over(given[:2]) == given[:2], "forgotten links are published, perhaps again"
    assert len(one._published) == len(one._following) == 3
    for seed in range(5):
        one.handed_over(History(seed).commit(("a", "1", "x"), ("b", "1", "x"))[:1])
        one.expect(History(seed).some(1))
    assert len(one._parts) == len(one._expected) == 3


def test_links_of_other_services_are_bounded_in_bytes() -> None:
    one, history = unpublished(), History()
    change = msgspec.structs.replace(history.one().changes[0], value=bytes(256 * 1024))
    given = [msgspec.structs.replace(of("other", each), changes=[change]) for each in history.some(300)]
    one.in_changelog(given, 0.0)
    held = [seen.link for seen in one._pending.values()]
    assert sum(map(size_of, held)) <= MAX_BYTES < sum(map(size_of, held)) + 300_000
    assert held == given[-len(held) :]


def test_size_of_what_waits_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    one, history = unpublished(), History()
    given = [of(origin, history.one()) for origin in ("me", "other", "me", "other", "late")]
    size = size_of(given[0])
    one.in_changelog(given[:4], 0.0)
    one.in_changelog(given[:2], 0.0)
    assert one._bytes == 4 * size
    one.handed_over(given[:1])
    assert one._bytes == 3 * size
    one.due(GRACE, {"other"}, holds_orphans=False)
    assert one._bytes == 2 * size
    one.due(KEEP, {"other"}, holds_orphans=False)
    assert one._bytes == 0
    monkeypatch.setattr(module, "MAX_BYTES", 2 * size)
    one.in_changelog(given, KEEP)
    assert (len(one._pending), one._bytes) == (2, 2 * size)


def test_one_link_waits_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a service with a larger ``max_transaction_bytes`` would never publish such a link itself."""
    monkeypatch.setattr(module, "MAX_BYTES", 10)
    one = unpublished()
    given = links("me", "me")
    one.in_changelog(given, 0.0)
    assert one.due(GRACE, set(), holds_orphans=False) == given[1:]


def test_link_is_due_until_it_is_settled() -> None:
    one = UnpublishedLinks("me", GRACE, KEEP)
    given = links("me", "me", "other")
    one.in_changelog(given, 0.0)
    assert one.due(GRACE, {"other"}, holds_orphans=False) == given[:2]
    assert one.next_time() == GRACE
    one.settle(given[:1])
    assert one.next_time() == GRACE
    assert one.due(2 * KEEP, {"other"}, holds_orphans=False) == given[1:2], "it is not forgotten meanwhile"
    one.settle(given[1:2])
    assert one.next_time() == float("inf")
    assert (one.due(2 * KEEP, set(), holds_orphans=True), one._bytes) == ([], 0), "the other one is forgotten"


def test_further_links_are_due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DUE", 2)
    one = unpublished()
    given = links(*["me"] * 5)
    one.in_changelog(given, 0.0)
    due = []
    while one.next_time() <= GRACE:
        due.append(one.due(GRACE, set(), holds_orphans=False))
    assert due == [given[:2], given[2:4], given[4:]]
