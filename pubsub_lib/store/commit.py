"""One transaction from its begin to a known end: retried when it is certainly not committed, never when it may be.

An attempt is made by a group of this process, or by the host's publisher service (:mod:`.host_commit`).

After a connection was lost during COMMIT, the transaction's point is looked up in the store (rule S5): the transaction
is committed, or it is not, or, when this stays unknown within the bounds of the retries, OutcomeUnknown is raised.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
from sqlalchemy import Connection, Engine

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import OutcomeUnknown, PubSubError, StoreBusy, StoreUnavailable
from pubsub_lib.failpoints import armed, hit
from pubsub_lib.store import error_mapping, retry, writer
from pubsub_lib.store.before_write import WriteHooks
from pubsub_lib.store.group_commit import Announce, Attempt, Execution, GroupCommit
from pubsub_lib.store.host_commit import HostCommit
from pubsub_lib.store.links import Commit
from pubsub_lib.store.settings import StoreSettings
from pubsub_lib.store.verbs import Encode
from pubsub_lib.store.writer import Work

T = TypeVar("T")


def dropped_on_error(connection: Connection, fn: Callable[[Connection], T]) -> T:
    """Return ``fn(connection)``; a connection on which ``fn`` raised is not used again.

    A result that was read in part lives as long as the error's traceback. On SQLite it keeps its old snapshot open,
    and the next user of this pooled connection would read that snapshot.
    """
    try:
        return fn(connection)
    except BaseException:
        connection.invalidate()
        raise


class _Call(msgspec.Struct):
    """One call of :meth:`Committer.run` over its attempts."""

    work: Work
    doubt: Commit | None = None
    """The commit whose outcome is unknown after the last attempt."""
    alone: bool = False
    """Whether the next attempt shares no transaction."""


class Committer:
    """Executes recorded transactions. Any thread; blocks for the groups before its own, and for at most about
    ``retry_max_seconds`` plus one statement.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        settings: StoreSettings,
        limits: Limits,
        encode: Encode,
        hooks: WriteHooks,
        host: HostCommit | None = None,
    ) -> None:
        """``host``: commits in place of this process."""
        self._engine = engine
        self._settings = settings
        self._hooks = hooks
        self._host = host
        self._execution = Execution(engine, limits, encode)
        self._groups = GroupCommit(self._execution.together)

    def after_fork(self) -> None:
        """In a forked child: another thread of the parent may have been committing."""
        self._groups = GroupCommit(self._execution.together)
        if self._host is not None:
            self._host.after_fork()

    def close(self, *, here: bool) -> None:
        """Close the connections to the host's service, if they were made ``here`` and not before a fork. Idempotent."""
        if self._host is not None and here:
            self._host.close()

    def run_group(self, works: Sequence[Work], announce: Announce) -> list[Attempt]:
        """One attempt to commit works of other processes, of which no two name the same object, in one transaction.

        Raises only exceptions that are not of this library: then the transaction is in doubt if it was announced.
        """
        attempts: list[Attempt] = []
        self._execution.together(works, attempts, announce)
        return attempts

    def run(self, work: Work) -> Commit | None:
        """Commit; None when nothing changed. Raises ConditionFailed and InvalidValueError (nothing written), StoreBusy,
        StoreUnavailable, StoreFull, StoreReadOnly (nothing written), OutcomeUnknown."""
        if not work.operations:
            return None
        call, begun = _Call(work), time.monotonic()
        try:
            try:
                return self._once(call)
            except retry.TRANSIENT as error:
                return retry.again(self._settings, lambda: self._once(call), error, begun, *retry.TRANSIENT)
        except PubSubError as error:
            if call.doubt is not None:
                raise OutcomeUnknown(
                    "the connection was lost during COMMIT and it is unknown whether the transaction is committed; "
                    f"call committed({work.nonce}) later ({error})",
                    work.nonce,
                    call.doubt.point.position,
                ) from error
            raise

    def _once(self, call: _Call) -> Commit | None:
        if call.doubt is not None:
            if self._ask(call.doubt):
                return call.doubt
            call.doubt = None
        attempt = self._executed(call)
        call.doubt = attempt.doubt
        call.alone = attempt.shared or isinstance(attempt.error, StoreBusy | StoreUnavailable)
        if attempt.error is not None:
            raise attempt.error
        if attempt.commit is not None and armed:
            hit("writer.after_commit")
        return attempt.commit

    def _executed(self, call: _Call) -> Attempt:
        # Hooks run on the thread that made the transaction, and may use the store.
        if self._hooks.hooks or call.alone or self._groups.inside:
            return self._execution.alone(call.work, self._hooks.review)
        attempt = None if self._host is None else self._of_host(self._host, call.work)
        if attempt is None:
            attempt = self._groups.run(call.work)
        if attempt.shared and not isinstance(attempt.error, StoreBusy | StoreUnavailable):  # these two are tried again
            return self._execution.alone(call.work, self._hooks.review)
        return attempt

    def _of_host(self, host: HostCommit, work: Work) -> Attempt | None:
        with error_mapping.translated("writing a transaction"):
            self._engine()  # raises for a store that is closed, or without a schema
        return host.run(work)

    def _ask(self, commit: Commit) -> bool:
        with error_mapping.translated("looking up a transaction"), self._engine().connect() as connection:
            answer = writer.is_in(connection, commit.point)
        if answer is None:
            raise StoreBusy("the changelog was trimmed past the transaction that is looked up")
        return answer
