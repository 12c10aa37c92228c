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


def test_no_conflict_without_other_services() -> None:
    namesakes = NameConflicts("api-1", "new")
    for number in range(5):
        namesakes.seen([entry("new", number)], "new")
    assert (namesakes.older, namesakes.younger) == (None, None)


def test_killed_services_entry_is_not_a_conflict() -> None:
    """Nor when its last renewal arrived after our first reading; and never by how long a reading takes."""
    for holder in ("other", "new", None):
        assert judged(holder, 5, 5, 5, 5, 5).older is None
        assert judged(holder, 5, 5, 5, 5, 5).younger is None
        assert judged(holder, 5, 7, 7, 7, 7).older is None


def test_older_service_that_holds_the_name_stays() -> None:
    assert judged("other", 5, 6).older is None
    namesakes = judged("other", 5, 6, 7)
    assert namesakes.older is not None
    assert (namesakes.older.uuid, namesakes.younger) == ("other", None)


def test_younger_service_is_reported_until_it_has_stopped() -> None:
    namesakes = judged("new", 5, 6)
    assert namesakes.older is None
    assert namesakes.younger is not None
    assert namesakes.younger.uuid == "other"
    namesakes.seen([entry("new", 9)], "new")
    assert namesakes.younger is None


def test_no_service_stops_while_none_holds_the_name() -> None:
    assert judged(None, 5, 6, 7, 8).older is None
    assert judged("of a third", 5, 6, 7, 8).older is None


def test_services_with_other_names_are_ignored() -> None:
    namesakes = judged("other", 5, 6, 7, 8, service="api-2")
    assert (namesakes.older, namesakes.younger) == (None, None)


def test_lease_name_is_valid_and_unique_for_the_longest_names() -> None:
    longest = "x" * MAX_NAME_BYTES
    assert len(lease_of(longest)) <= MAX_NAME_BYTES
    assert lease_of(longest) != lease_of(longest[1:])
