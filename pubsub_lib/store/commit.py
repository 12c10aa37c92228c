"""One transaction from its begin to a known end: retried when it is certainly not committed, never when it may be.

After a connection was lost during COMMIT, the transaction's point is looked up in the store (rule S5): the transaction
is committed, or it is not, or, when this stays unknown within the bounds of the retries, OutcomeUnknown is raised.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import TypeVar

import msgspec
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import OutcomeUnknown, PubSubError, StoreBusy, StoreUnavailable
from pubsub_lib.failpoints import armed, hit
from pubsub_lib.store import error_mapping, retry, writer
from pubsub_lib.store.before_write import WriteHooks
from pubsub_lib.store.group_commit import Attempt, GroupCommit
from pubsub_lib.store.links import Commit
from pubsub_lib.store.own_transaction import OwnTransaction
from pubsub_lib.store.settings import StoreSettings
from pubsub_lib.store.verbs import Encode
from pubsub_lib.store.writer import Outcome, Review, Work

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


def _failed(error: PubSubError, outcomes: Sequence[Outcome], doubt: bool) -> list[Attempt]:
    """The attempts of works whose transaction failed. Each thread gets an error object of its own."""
    if len(outcomes) == 1:
        return [Attempt(error=error, doubt=outcomes[0].commit if doubt else None)]
    attempts = []
    for each in outcomes:
        own = copy(error)
        own.__cause__ = error
        attempts.append(Attempt(error=own, shared=True, doubt=each.commit if doubt else None))
    return attempts


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
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._limits = limits
        self._encode = encode
        self._hooks = hooks
        self._groups = GroupCommit(self._execute_group)

    def after_fork(self) -> None:
        """In a forked child: another thread of the parent may have been committing."""
        self._groups = GroupCommit(self._execute_group)

    def run(self, work: Work) -> Commit | None:
        """Commit; None when nothing changed. Raises ConditionFailed and InvalidValueError (nothing written), StoreBusy,
        StoreUnavailable, StoreFull, StoreReadOnly (nothing written), OutcomeUnknown."""
        if not work.operations:
            return None
        call = _Call(work)
        try:
            return retry.attempt(self._settings, lambda: self._once(call))
        except PubSubError as error:
            if call.doubt is not None:
                raise OutcomeUnknown(
                    "the connection was lost during COMMIT and it is unknown whether the transaction is committed; "
                    f"call committed({work.nonce}) later ({error})",
                    work.nonce,
                ) from error
            raise

    def _once(self, call: _Call) -> Commit | None:
        if call.doubt is not None:
            if self._ask(call.doubt):
                return call.doubt
            call.doubt = None
        attempt = self._executed(call)
        call.doubt, call.alone = attempt.doubt, attempt.shared or isinstance(attempt.error, StoreBusy)
        if attempt.error is not None:
            raise attempt.error
        if attempt.commit is not None and armed:
            hit("writer.after_commit")
        return attempt.commit

    def _executed(self, call: _Call) -> Attempt:
        # Hooks run on the thread that made the transaction, and may use the store.
        if self._hooks.hooks or call.alone or self._groups.leading:
            return self._executed_alone(call.work)
        attempt = self._groups.run(call.work)
        if attempt.shared and not isinstance(attempt.error, StoreBusy | StoreUnavailable):  # these two are tried again
            return self._executed_alone(call.work)
        return attempt

    def _executed_alone(self, work: Work) -> Attempt:
        attempts: list[Attempt] = []
        self._execute([work], attempts, self._hooks.review)
        return attempts[0]

    def _execute_group(self, works: Sequence[Work], attempts: list[Attempt]) -> None:
        self._execute(works, attempts, list)

    def _execute(self, works: Sequence[Work], attempts: list[Attempt], review: Review) -> None:
        """Execute these works in one transaction; ``attempts`` gets the result of each, also when this raises."""
        outcomes = [Outcome()] * len(works)
        doubt = False
        try:
            with error_mapping.translated("writing a transaction"), OwnTransaction(self._engine()) as transaction:
                outcomes = writer.write_together(transaction, works, self._encode, self._limits, review)
                if any(each.commit for each in outcomes):
                    doubt = True
                    try:
                        transaction.commit()
                    except SQLAlchemyError as error:
                        if error_mapping.is_refused(error):
                            doubt = False
                            raise
                        # For any other error: look up the transaction before it is tried again.
                        raise StoreUnavailable(f"COMMIT ended without an answer ({error})") from error
                else:
                    transaction.rollback()
            attempts[:] = [Attempt(each.commit, each.error) for each in outcomes]
        except PubSubError as error:
            attempts[:] = _failed(error, outcomes, doubt)
        except BaseException:
            interrupted = StoreUnavailable("the thread that executed the transaction was interrupted")
            attempts[:] = _failed(interrupted, outcomes, doubt)
            raise

    def _ask(self, commit: Commit) -> bool:
        with error_mapping.translated("looking up a transaction"), self._engine().connect() as connection:
            answer = writer.is_in(connection, commit.point)
        if answer is None:
            raise StoreBusy("the changelog was trimmed past the transaction that is looked up")
        return answer
