"""The changelog is trimmed in short transactions, one after the other; see also test_changelog."""

import pytest

from pubsub_lib.errors import InvalidValueError, UsageError
from pubsub_lib.store import Store, changelog
from tests.unit.store.conftest import Opener
from tests.unit.store.test_changelog import fill


@pytest.fixture
def store(open_store: Opener, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(changelog, "_BATCH", 2)
    return open_store()


def left(store: Store) -> int:
    return len(store.read_links(None, 100)[0])


def test_each_batch_is_removed_when_it_is_asked_for(store: Store) -> None:
    fill(store, 7)
    batches = store.trim_batches(keep_links=2)
    assert left(store) == 7
    assert (next(batches), left(store)) == (2, 5)
    fill(store, 1, first=7)
    assert list(batches) == [2, 1]
    assert left(store) == 3, "links that were written meanwhile are kept, too"


def test_invalid_bounds_raise_before_the_first_batch(store: Store) -> None:
    with pytest.raises(InvalidValueError, match="nothing below 0"):
        store.trim_batches(keep_links=-1)
    with pytest.raises(UsageError, match="keep_seconds must be a number of seconds"):
        store.trim_batches(keep_seconds="5")  # type: ignore[arg-type]
    assert list(store.trim_batches()) == []
