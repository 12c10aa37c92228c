"""Live services with this service's name, and the one that holds the name."""

from pubsub_lib.core.model import MAX_NAME_BYTES
from pubsub_lib.service.name_conflicts import NameConflicts, lease_of
from pubsub_lib.store.directory import Service


def entry(uuid: str, until: int, service: str = "api-1") -> Service:
    return Service(service, uuid, f"tcp://{uuid}", 1.0, until)


def judged(holder: str | None, *ends: int, uuid: str = "other", service: str = "api-1") -> NameConflicts:
    """The conflicts of service "new" after readings in which the entry's lease had these ends, one after the other."""
    conflicts = NameConflicts("api-1", "new")
    for number, until in enumerate(ends):
        conflicts.seen([entry("new", number), entry(uuid, until, service)], holder)
    return conflicts


def test_no_conflict_without_other_services() -> None:
    conflicts = NameConflicts("api-1", "new")
    for number in range(5):
        conflicts.seen([entry("new", number)], "new")
    assert (conflicts.older, conflicts.younger) == (None, None)


def test_killed_services_entry_is_not_a_conflict() -> None:
    """Also when its last renewal arrived after our first reading; the duration of a reading has no influence."""
    for holder in ("other", "new", None):
        assert judged(holder, 5, 5, 5, 5, 5).older is None
        assert judged(holder, 5, 5, 5, 5, 5).younger is None
        assert judged(holder, 5, 7, 7, 7, 7).older is None


def test_older_service_that_holds_the_name_stays() -> None:
    assert judged("other", 5, 6).older is None
    conflicts = judged("other", 5, 6, 7)
    assert conflicts.older is not None
    assert (conflicts.older.uuid, conflicts.younger) == ("other", None)


def test_younger_service_is_reported_until_it_has_stopped() -> None:
    conflicts = judged("new", 5, 6)
    assert conflicts.older is None
    assert conflicts.younger is not None
    assert conflicts.younger.uuid == "other"
    conflicts.seen([entry("new", 9)], "new")
    assert conflicts.younger is None


def test_no_service_stops_while_none_holds_the_name() -> None:
    assert judged(None, 5, 6, 7, 8).older is None
    assert judged("of a third", 5, 6, 7, 8).older is None


def test_services_with_other_names_are_ignored() -> None:
    conflicts = judged("other", 5, 6, 7, 8, service="api-2")
    assert (conflicts.older, conflicts.younger) == (None, None)


def test_lease_name_is_valid_and_unique_for_the_longest_names() -> None:
    longest = "x" * MAX_NAME_BYTES
    assert len(lease_of(longest)) <= MAX_NAME_BYTES
    assert lease_of(longest) != lease_of(longest[1:])
