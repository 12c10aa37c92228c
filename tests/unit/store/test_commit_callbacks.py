"""Callbacks after a COMMIT: the order of the calls, their errors, and a forked child."""

import logging
from collections.abc import Sequence

import pytest

from pubsub_lib.core.model import Link
from pubsub_lib.errors import HandoffRejectedError
from pubsub_lib.store.commit_callbacks import CommitCallbacks
from tests.unit.core.builders import History

LINKS: Sequence[Link] = [History().one(value="1")]


def refuse(_links: Sequence[Link]) -> None:
    raise HandoffRejectedError("the buffer is full")


def test_callbacks_are_called_in_order_until_they_are_removed() -> None:
    callbacks, seen = CommitCallbacks(), list[str]()
    remove = callbacks.add(lambda _links: seen.append("a"), after_fork=False)
    callbacks.add(lambda _links: seen.append("b"), after_fork=False)
    callbacks.notify(LINKS)
    remove()
    remove()
    callbacks.notify(LINKS)
    assert seen == ["a", "b", "b"]


def test_published_transaction_is_left_to_the_service_by_callbacks_that_publish() -> None:
    callbacks, seen = CommitCallbacks(), list[str]()
    callbacks.add(lambda _links: seen.append("user"), after_fork=False)
    publish = [callbacks.publish]
    remove = callbacks.add(lambda _links: seen.append("worker"), after_fork=True, unless_published=True)
    publish.append(callbacks.publish)
    callbacks.notify(LINKS, published=True)
    callbacks.notify(LINKS)
    assert seen == ["user", "user", "worker"]
    callbacks.after_fork()
    publish.append(callbacks.publish)
    remove()
    assert [*publish, callbacks.publish] == [False, True, True, False]


def test_error_of_one_callback_is_counted_and_the_next_is_called(caplog: pytest.LogCaptureFixture) -> None:
    callbacks, seen = CommitCallbacks(), list[Sequence[Link]]()
    callbacks.add(lambda links: links[5], after_fork=False)  # type: ignore[arg-type]
    callbacks.add(refuse, after_fork=False)
    callbacks.add(seen.append, after_fork=False)
    refused = callbacks.notify(LINKS)
    assert isinstance(refused, HandoffRejectedError)
    assert (callbacks.errors, seen, len(caplog.records)) == (2, [LINKS], 1)


def test_session_gets_a_warning_in_place_of_the_error(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = CommitCallbacks()
    callbacks.add(refuse, after_fork=False)
    callbacks.notify_without_error(LINKS)
    assert [(each.levelno, "the buffer is full" in each.getMessage()) for each in caplog.records] == [
        (logging.WARNING, True)
    ]


def test_forked_child_keeps_callbacks_that_open_their_connections_again() -> None:
    callbacks, seen = CommitCallbacks(), list[str]()
    callbacks.add(lambda _links: seen.append("parent"), after_fork=False)
    callbacks.add(lambda _links: seen.append("both"), after_fork=True)
    callbacks._lock.acquire()  # as another thread of the parent leaves it
    callbacks.after_fork()
    callbacks.add(lambda _links: seen.append("child"), after_fork=False)
    callbacks.notify(LINKS)
    assert seen == ["both", "child"]
