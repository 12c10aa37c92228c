"""Who lives under our name, and who was there first."""

from collections.abc import Iterable

from pubsub_lib.service.namesakes import Namesakes
from pubsub_lib.store.directory import Service

LEASE = 6.0


class Directory:
    """Entries by UUID, with the time at which each lease ends."""

    def __init__(self) -> None:
        self.ends: dict[str, float] = {}
        self.names: dict[str, str] = {}

    def renew(self, uuid: str, now: float, name: str = "api-1", lease: float = LEASE) -> None:
        self.ends[uuid] = now + lease
        self.names[uuid] = name

    def entries(self, now: float) -> list[Service]:
        return [Service(self.names[uuid], uuid, f"tcp://{uuid}", end - now) for uuid, end in self.ends.items()]


def judged(directory: Directory, times: Iterable[float], renewing: tuple[str, ...]) -> Namesakes:
    """What service "new" thinks after looking at these times; ``renewing`` others renew right before each."""
    namesakes = Namesakes("api-1", "new", LEASE)
    for now in times:
        for uuid in renewing:
            directory.renew(uuid, now, directory.names.get(uuid, "api-1"))
        namesakes.seen(directory.entries(now), now)
        directory.renew("new", now)
    return namesakes


def test_alone_there_is_nobody() -> None:
    namesakes = judged(Directory(), (0, 2, 4, 6), ())
    assert (namesakes.older, namesakes.younger) == (None, None)


def test_the_entry_of_one_that_was_killed_is_not_taken_for_alive() -> None:
    directory = Directory()
    directory.renew("killed", 99.0)
    namesakes = judged(directory, (100, 102, 104, 106, 108), ())
    assert (namesakes.older, namesakes.younger) == (None, None)


def test_one_that_was_there_and_renews_is_older() -> None:
    directory = Directory()
    directory.renew("old", 99.0)
    assert judged(directory, (100,), ("old",)).older is None  # a second look is needed
    namesakes = judged(directory, (102, 104), ("old",))
    assert namesakes.older is not None
    assert (namesakes.older.uuid, namesakes.younger) == ("old", None)


def test_one_that_came_later_is_younger_until_it_goes() -> None:
    directory = Directory()
    namesakes = Namesakes("api-1", "old", LEASE)
    namesakes.seen(directory.entries(0), 0)
    for now in (2, 4):
        directory.renew("new", now)
        namesakes.seen(directory.entries(now), now)
    assert namesakes.older is None
    assert namesakes.younger is not None
    assert namesakes.younger.uuid == "new"
    directory.ends.pop("new")
    namesakes.seen(directory.entries(6), 6)
    assert namesakes.younger is None


def test_a_lease_of_another_length_shows_too() -> None:
    directory = Directory()
    directory.renew("old", 0, lease=0.3)
    namesakes = Namesakes("api-1", "new", LEASE)
    for now in range(0, 8, 2):
        directory.renew("old", now, lease=0.3)
        namesakes.seen(directory.entries(now), now)
    assert namesakes.older is not None


def test_others_names_are_no_matter() -> None:
    directory = Directory()
    directory.renew("other", 0, "api-2")
    namesakes = judged(directory, (0, 2, 4), ("other",))
    assert (namesakes.older, namesakes.younger) == (None, None)
