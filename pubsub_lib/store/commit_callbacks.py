"""The callbacks that are called with the links of each transaction after its COMMIT (``Store.on_commit``)."""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pubsub_lib.arguments import check_function
from pubsub_lib.core.model import Link
from pubsub_lib.errors import HandoffRejectedError
from pubsub_lib.logs import fields, logger
from pubsub_lib.store.links import Commit

OnCommit = Callable[[Sequence[Link]], None]

_log = logger(__name__)


class _Listed(NamedTuple):
    """A callback with its options."""

    callback: OnCommit
    after_fork: bool
    unless_published: bool


class CommitCallbacks:
    """The callbacks of one store. Any thread may add, remove and notify."""

    def __init__(self) -> None:
        self._listed: list[_Listed] = []
        self._lock = threading.Lock()
        self.publish = False
        """Whether a callback is only for transactions that the publisher service does not publish."""
        self.errors = 0
        """How often a callback raised."""

    def add(self, callback: OnCommit, after_fork: bool, unless_published: bool = False) -> Callable[[], None]:
        """Call ``callback`` from now on; returns a function that removes it. ``after_fork``: also in a forked child.
        ``unless_published``: not for transactions that the publisher service publishes. Raises InvalidValueError.
        """
        check_function("callback", callback, "one argument, the links")
        listed = _Listed(callback, after_fork, unless_published)
        with self._lock:
            self._set([*self._listed, listed])

        def unsubscribe() -> None:
            with self._lock:
                self._set([other for other in self._listed if other is not listed])

        return unsubscribe

    def after_fork(self) -> None:
        """In a forked child: take another lock, and drop the callbacks without ``after_fork``.

        A publisher's thread and sockets do not exist in the child; but a worker opens its own again.
        """
        self._lock = threading.Lock()
        self._set([listed for listed in self._listed if listed.after_fork])

    def _set(self, listed: list[_Listed]) -> None:
        self._listed = listed
        self.publish = any(each.unless_published for each in listed)

    def notify(self, links: Sequence[Link], published: bool = False) -> HandoffRejectedError | None:
        """Call the callbacks; returns the error to raise to the writer, if any. ``published``: by the service."""
        refused: HandoffRejectedError | None = None
        for each in self._listed:
            if published and each.unless_published:
                continue
            try:
                each.callback(links)
            except HandoffRejectedError as error:
                refused = error
                with self._lock:
                    self.errors += 1
            except Exception:  # noqa: BLE001 - a user's code must not undo or hide a commit
                with self._lock:
                    self.errors += 1
                _log.exception(
                    "a callback of on_commit raised an exception; the transaction at %s is committed",
                    links[0].point,
                    extra=fields(position=links[0].point.position),
                )
        return refused

    def notify_or_raise(self, commit: Commit) -> None:
        """Call the callbacks with the links of a commit. Raises HandoffRejectedError after all were called."""
        refused = self.notify(commit.links, commit.published)
        if refused is not None:
            raise refused

    def notify_without_error(self, links: Sequence[Link]) -> None:
        """The same for a program's own session, with a warning in place of the error. SQLAlchemy would take an
        exception raised there for a failed commit.
        """
        refused = self.notify(links)
        if refused is not None:
            _log.warning(
                "the transaction at %s is committed, but %s",
                links[0].point,
                refused,
                extra=fields(position=links[0].point.position),
            )
