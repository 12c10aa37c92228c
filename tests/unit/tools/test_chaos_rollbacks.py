"""Which repeated calls of a handler ``tools/chaos`` excuses: those that a notice of a changed history explains."""

from collections.abc import Sequence

import pytest
from _chaos.replica import Figures
from _chaos.rollbacks import Rollbacks

from pubsub_lib import Event
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.model import ALL, Point


def of(topic: str, version: int | None, value: bytes | None = b"1", *, key: str = "k", at: float = 0.0) -> Event:
    """A call: by a reading of the store, or for a message that was written ``at`` a time."""
    before = 4 if version is None else None
    return Event("item", key, topic, "set" if value else "delete", version, before, b"0", value, 9, at)


def notice(*topics: str) -> HistoryChange:
    return HistoryChange(dict.fromkeys(topics, (Point(9, 1), Point(8, 2))))


FIRST, MOVED, DELETED = of("old", 1, at=1.0), of("new", 3, at=1.0), of("new", 4, None, at=1.0)
AGAIN = of("old", 1)


@pytest.mark.parametrize(
    ("calls", "explained"),
    [
        ([FIRST, MOVED, DELETED, notice("new"), AGAIN], True),
        ([FIRST, MOVED, notice("new"), AGAIN], True),
        ([FIRST, MOVED, of("new", None, None), notice("new"), AGAIN], True),
        ([FIRST, MOVED, DELETED, notice(ALL), AGAIN], True),
        ([FIRST, MOVED, DELETED, notice("old"), AGAIN], True),
        ([FIRST, MOVED, DELETED, AGAIN], False),
        ([FIRST, MOVED, notice("new"), DELETED, AGAIN], False),
        ([FIRST, MOVED, DELETED, notice("other"), AGAIN], False),
        ([FIRST, MOVED, DELETED, notice("new"), FIRST], False),
        ([FIRST, notice("old"), AGAIN], False),
        ([FIRST, of("old", 2, None), notice("old"), AGAIN], False),
        ([FIRST, MOVED, DELETED, notice("new"), AGAIN, AGAIN], False),
        ([of("old", 5), of("new", 3, at=1.0), notice("new"), of("old", 5)], False),
    ],
    ids=[
        "deleted by a message", "not in the new topic", "deleted by a reading", "everything was read",
        "the delete was disproved", "no notice", "notice before the last call", "notice of another topic",
        "by a message", "same topic and version", "same topic", "again without another notice", "newer version",
    ],
)  # fmt: skip
def test_older_version_of_another_topic_after_a_notice_is_explained(
    calls: Sequence[Event | HistoryChange], explained: bool
) -> None:
    rollbacks, found = Rollbacks(), False
    for each in calls:
        if isinstance(each, Event):
            found = rollbacks.explains(each)
        else:
            rollbacks.history_changed(each)
    assert found is explained


def test_notice_explains_calls_for_several_objects() -> None:
    rollbacks = Rollbacks()
    for key in ("k1", "k2"):
        for topic, version in (("old", 1), ("new", 3)):
            assert not rollbacks.explains(of(topic, version, key=key, at=1.0))
    rollbacks.history_changed(notice("new"))
    assert [rollbacks.explains(of("old", 1, key=key)) for key in ("k1", "k2", "k3")] == [True, True, False]


def test_figures_of_a_replica_separate_explained_repetitions() -> None:
    figures = Figures()
    for event in (FIRST, MOVED, DELETED):
        figures(event)
    figures.history_changed(notice("new"))
    figures(AGAIN)
    assert (figures.message.calls, figures.message.twice, figures.message.undone) == (4, 0, 1)
    figures(AGAIN)
    assert (figures.message.calls, figures.message.twice, figures.message.undone) == (5, 1, 1)
