"""The journal of the store: every object with its version, and the retained changelog."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from pubsub_lib.audit.ingest.store_journal import StoreSide, journal_of_store
from pubsub_lib.errors import JournalError, StoreBusy
from pubsub_lib.journal import Journal
from pubsub_lib.journal.reading import find, read
from pubsub_lib.journal.rows import Row, value_hash
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store, StoreSettings
from tests.unit.journal.builders import files_that_end_at


def rows(folder: Path) -> list[Row]:
    return [row for path in find([folder]).append for row in read(path)]


def test_objects_and_changelog(sqlite_url: str, tmp_path: Path) -> None:
    with Store(sqlite_url) as store:
        for key, topic in (("a", "ta"), ("b", "tb"), ("c", "tb")):
            with store.transaction() as tx:
                tx.set("lport", key, {"n": key}, topic=topic)
        with store.transaction() as tx:
            tx.set("lport", "a", {"n": 4}, topic="ta")
            tx.delete("lport", "b")
            tx.delete("lport", "c")
        store.trim(keep_links=3)
        assert journal_of_store(store, tmp_path / "j")
        kept = list(store.inspect.every_link())
        (stored,) = store.objects()
    found = rows(tmp_path / "j")
    head = kept[-1].point.position
    objects = [(row.topic, row.position, each) for row in found if row.kind == "object" for each in row.changes]
    ((topic, position, each),) = objects
    assert (topic, position, each.key, each.version) == ("ta", head, "a", stored.version)
    assert each.hash == value_hash(b'{"n":4}')
    assert [(row.topic, row.count) for row in found if row.kind == "listing"] == [("ta", 1), ("tb", 0)]
    committed = [row for row in found if row.outcome == "committed"]
    assert [(row.topic, row.position, row.prev_position) for row in committed] == [
        (link.topic, link.point.position, link.prev.position) for link in kept
    ]
    (limits,) = [row for row in found if row.kind == "changelog"]
    assert (limits.prev_position, limits.position) == (kept[0].tx_prev.position, head)
    assert limits.prev_position > 0
    assert (limits.peer, limits.cause) == ("database", kept[-1].origin)
    assert abs(limits.wall - limits.count - kept[-1].written_at * 1e6) < 30_000_000, "the time of the newest commit"


def test_empty_store_gives_an_empty_journal(sqlite_url: str, tmp_path: Path) -> None:
    with Store(sqlite_url) as store:
        assert not journal_of_store(store, tmp_path / "j")
    assert [row.kind for row in rows(tmp_path / "j")] == ["open", "close"]


def test_size_is_expected_from_the_number_of_objects(sqlite_url: str, tmp_path: Path) -> None:
    with Store(sqlite_url) as store:
        for topic in ("ta", "tb"):
            with store.transaction() as tx:
                for number in range(500):
                    tx.set("lport", f"{topic}-{number}", {"n": number}, topic=topic)
    with StoreSide(sqlite_url) as side:
        expected = side.expected_size()
        assert side.write(tmp_path / "j") == tmp_path / "j"
        assert side.lacking == ""
    # The journal also has the changelog, here of the same changes.
    assert expected / 2 < sum(path.stat().st_size for path in (tmp_path / "j").iterdir()) < 3 * expected


def test_journal_that_cannot_be_written_raises(sqlite_url: str, tmp_path: Path) -> None:
    with Store(sqlite_url) as store:
        with store.transaction() as tx:
            tx.set("lport", "a", {"n": "x" * 5000})
        with files_that_end_at(400), pytest.raises(JournalError, match=r"cannot be written to .*; free disk space"):
            journal_of_store(store, tmp_path / "j")


@pytest.mark.postgresql
def test_slow_disk_does_not_end_the_snapshot(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects are written between two statements of one transaction."""
    with Store(postgres_url) as store, store.transaction() as tx:
        tx.set("lport", "a", 1, topic="t")
    impatient = Settings(store_url=postgres_url, store=StoreSettings(idle_in_transaction_timeout=0.05))
    listing = Journal.listing

    def slowly(*arguments: Any) -> None:
        time.sleep(0.2)  # of a transaction that the settings allow to be idle for 0.05 s
        listing(*arguments)

    monkeypatch.setattr(Journal, "listing", slowly)
    with StoreSide(impatient) as side:
        side.write(tmp_path / "j")
    assert is_of_one_moment(rows(tmp_path / "j"))


def is_of_one_moment(found: list[Row]) -> bool:
    """Whether the objects and the changelog of a single topic fit each other."""
    links = [row for row in found if row.outcome == "committed"]
    (limits,) = [row for row in found if row.kind == "changelog"]
    (listing,) = [row for row in found if row.kind == "listing"]
    points = [limits.prev_position, *(link.position for link in links)]
    return (
        [link.prev_position for link in links] == points[:-1]
        and limits.position == listing.position == links[-1].position
        and listing.count == links[-1].count
    )


@pytest.mark.quick_variants("postgresql")
@pytest.mark.parametrize("change", ["commit", "trim"])
def test_journal_is_of_one_moment_of_a_store_that_is_written(database_url: str, tmp_path: Path, change: str) -> None:
    """The store is changed before each statement of the reading, once for each of them."""
    settings = StoreSettings(page_size=3)
    with Store(database_url, settings=settings) as store, Store(database_url, settings=settings) as other:
        values = itertools.count()

        def commit() -> None:
            value = next(values)
            with other.transaction() as tx:
                tx.set("lport", f"k{value % 7}", value, topic="t")

        def changed() -> None:
            if change == "commit":
                commit()
            else:
                other.trim(keep_links=2)

        for number in itertools.count():
            for _ in range(8):
                commit()
            with before_statement(number, changed) as reached:
                assert journal_of_store(store, tmp_path / str(number))
            assert is_of_one_moment(rows(tmp_path / str(number))), number
            if not reached():
                break
            store.trim(keep_links=0)
    assert number > 5


@contextmanager
def before_statement(number: int, change: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call ``change`` once before the statement of this number; the yielded function shows whether it was called."""
    left = number

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            change()

    event.listen(Engine, "before_cursor_execute", count)
    try:
        yield lambda: left < 0
    finally:
        event.remove(Engine, "before_cursor_execute", count)


def test_reading_that_is_repeated_leaves_one_journal(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, failures = Journal.note, [StoreBusy("the reading was cancelled")]

    def fails_once(*given: Any, **named: Any) -> None:
        if failures:
            raise failures.pop()
        note(*given, **named)

    monkeypatch.setattr(Journal, "note", fails_once)
    with Store(sqlite_url) as store:
        with store.transaction() as tx:
            tx.set("lport", "a", 1)
        assert journal_of_store(store, tmp_path / "j")
    assert len(list((tmp_path / "j").iterdir())) == 1
    assert [row.kind for row in rows(tmp_path / "j")] == ["open", "object", "listing", "data", "changelog", "close"]
