"""The store of a follower, read again and again: its changelog keeps what the store trims."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pubsub_lib.audit.stream.followed_store import FollowedStore, StoreRead
from pubsub_lib.errors import ConfigError, StoreError
from pubsub_lib.journal import Journal, JournalSettings
from pubsub_lib.journal.reading import read
from pubsub_lib.journal.rows import Row
from pubsub_lib.store import Store


def write(store: Store, *keys: str, topic: str = "t") -> None:
    for key in keys:
        with store.transaction() as tx:
            tx.set("lport", key, {"n": key}, topic=topic)


def positions(rows: Sequence[Row]) -> list[int]:
    return sorted(row.position for row in rows if row.outcome == "committed")


def rows_of(found: StoreRead) -> list[Row]:
    rows = sorted(read(found.path), key=lambda row: row.number)
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    assert len({(row.run, row.side, row.name, row.host) for row in rows}) == 1
    return rows


def changelog(rows: Sequence[Row]) -> tuple[int, int]:
    (limits,) = [row for row in rows if row.kind == "changelog"]
    return limits.prev_position, limits.position


def test_links_that_were_trimmed_are_kept(sqlite_url: str, tmp_path: Path) -> None:
    with Store(sqlite_url) as store:
        write(store, "a", "b", "c")
        followed = FollowedStore(sqlite_url, tmp_path)
        first = rows_of(followed.read())
        assert (positions(first), changelog(first)) == ([1, 2, 3], (0, 3))
        store.trim(keep_links=2)
        write(store, "d", topic="u")
        later = rows_of(followed.read())
        assert (positions(later), changelog(later)) == ([1, 2, 3, 4], (0, 4))
        assert [row.count for row in later if row.kind == "listing"] == [3, 1]
        assert len([row for row in later if row.kind == "object"]) == 4
        store.trim(keep_links=1)
        restarted = rows_of(FollowedStore(sqlite_url, tmp_path).read())
        assert (positions(restarted), changelog(restarted)) == ([1, 2, 3, 4], (0, 4))
        kept = {row.position: row for row in restarted if row.outcome == "committed"}
        assert {each.key for row in kept.values() for each in row.changes} == {"a", "b", "c", "d"}
    assert len(list((tmp_path / "store").iterdir())) == 1, "earlier readings are removed"


def test_large_store_has_several_files(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = functools.partial(JournalSettings, roll_bytes=300)
    monkeypatch.setattr("pubsub_lib.audit.ingest.store_journal.JournalSettings", small)
    listing = Journal.listing

    def listed(self: Journal, *of_topic: Any) -> None:
        listing(self, *of_topic)
        self._run().maintain()  # its thread does that after some seconds

    monkeypatch.setattr(Journal, "listing", listed)
    with Store(sqlite_url) as store:
        for number in range(20):
            write(store, *(f"{number}-{each}" for each in range(3)), topic=f"t{number}")
        found = FollowedStore(sqlite_url, tmp_path).read()
    rows = rows_of(found)
    assert (positions(rows), changelog(rows)) == (list(range(1, 61)), (0, 60))
    assert len([row for row in rows if row.kind == "object"]) == 60


def test_changelog_that_was_trimmed_to_nothing_is_kept(sqlite_url: str, tmp_path: Path) -> None:
    with Store(sqlite_url) as store:
        write(store, "a", "b")
        followed = FollowedStore(sqlite_url, tmp_path)
        followed.read()
        store.trim(keep_links=0)
        later = rows_of(followed.read())
        assert (positions(later), changelog(later)) == ([1, 2], (0, 2))


def test_links_that_do_not_lead_to_the_changelog_are_left_out(sqlite_url: str, tmp_path: Path) -> None:
    """Links between them were never read: the topic's chain would look broken."""
    with Store(sqlite_url) as store:
        write(store, "a", "b")
        followed = FollowedStore(sqlite_url, tmp_path)
        followed.read()
        write(store, "c", "d", "e")
        store.trim(keep_links=2)
        later = rows_of(followed.read())
    assert (positions(later), changelog(later)) == ([4, 5], (3, 5))


def test_another_history_is_not_joined(tmp_path: Path) -> None:
    """A database of the same name that was made again, and trimmed past the position that was read."""
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")]
    for url in urls:
        with Store(url) as store:
            write(store, "a", "b", "c")
    FollowedStore(urls[0], tmp_path).read()
    with Store(urls[1]) as store:
        store.trim(keep_links=1)
    later = rows_of(FollowedStore(urls[1], tmp_path).read())
    assert (positions(later), changelog(later)) == ([3], (2, 3))


def test_empty_store_is_a_problem_and_its_journal_has_no_links(sqlite_url: str, tmp_path: Path) -> None:
    with Store(sqlite_url):
        followed = FollowedStore(sqlite_url, tmp_path)
        found = followed.read()
    assert "has neither objects nor a changelog" in found.lacking
    assert [row.kind for row in rows_of(found)] == ["open", "close"]


def test_store_that_cannot_be_opened_raises(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        FollowedStore("gopher://x", tmp_path)
    with pytest.raises(StoreError):
        FollowedStore(f"sqlite:///{tmp_path}/gone.db", tmp_path)
    assert not (tmp_path / "store").exists()
