"""Who lives under our name, and which of them holds it."""

from pubsub_lib.core.model import MAX_NAME_BYTES
from pubsub_lib.service.name_conflicts import NameConflicts, lease_of
from pubsub_lib.store.directory import Service


def entry(uuid: str, until: int, service: str = "api-1") -> Service:
    return Service(service, uuid, f"tcp://{uuid}", 1.0, until)


def judged(holder: str | None, *ends: int, uuid: str = "other", service: str = "api-1") -> NameConflicts:
    """What service "new" thinks after readings in which this entry's lease ended so, one after the other."""
    namesakes = NameConflicts("api-1", "new")
    for number, until in enumerate(ends):
        namesakes.seen([entry("new", number), entry(uuid, until, service)], holder)
    return namesakes


def test_alone_there_is_nobody() -> None:
    namesakes = NameConflicts("api-1", "new")
    for number in range(5):
        namesakes.seen([entry("new", number)], "new")
    assert (namesakes.older, namesakes.younger) == (None, None)


def test_the_entry_of_one_that_was_killed_is_not_taken_for_alive() -> None:
    """Nor when its last renewal arrived after our first reading; and never by how long a reading takes."""
    for holder in ("other", "new", None):
        assert judged(holder, 5, 5, 5, 5, 5).older is None
        assert judged(holder, 5, 5, 5, 5, 5).younger is None
        assert judged(holder, 5, 7, 7, 7, 7).older is None


def test_one_that_holds_the_name_and_renews_is_the_one_that_stays() -> None:
    assert judged("other", 5, 6).older is None
    namesakes = judged("other", 5, 6, 7)
    assert namesakes.older is not None
    assert (namesakes.older.uuid, namesakes.younger) == ("other", None)


def test_one_that_does_not_hold_the_name_should_go_until_it_has_gone() -> None:
    namesakes = judged("new", 5, 6)
    assert namesakes.older is None
    assert namesakes.younger is not None
    assert namesakes.younger.uuid == "other"
    namesakes.seen([entry("new", 9)], "new")
    assert namesakes.younger is None


def test_while_nobody_holds_the_name_nobody_goes() -> None:
    assert judged(None, 5, 6, 7, 8).older is None
    assert judged("of a third", 5, 6, 7, 8).older is None


def test_others_names_are_no_matter() -> None:
    namesakes = judged("other", 5, 6, 7, 8, service="api-2")
    assert (namesakes.older, namesakes.younger) == (None, None)


def test_the_longest_name_has_a_lease_and_no_two_share_one() -> None:
    longest = "x" * MAX_NAME_BYTES
    assert len(lease_of(longest)) <= MAX_NAME_BYTES
    assert lease_of(longest) != lease_of(longest[1:])
