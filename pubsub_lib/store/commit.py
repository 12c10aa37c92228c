"""One transaction from its begin to a known end: retried when it is certainly not committed, never when it may be.

After a connection was lost during COMMIT, the transaction's point is looked up in the store (rule S5): the transaction
is committed, or it is not, or, when this stays unknown within the bounds of the retries, OutcomeUnknown is raised.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import OutcomeUnknown, PubSubError, StoreBusy, StoreUnavailable
from pubsub_lib.failpoints import hit
from pubsub_lib.store import error_mapping, retry, writer
from pubsub_lib.store.executor import DriverExecutor
from pubsub_lib.store.links import Commit
from pubsub_lib.store.settings import StoreSettings
from pubsub_lib.store.verbs import Effect, Encode
from pubsub_lib.store.writer import Work

T = TypeVar("T")


def commit_or_drop(connection: Connection) -> None:
    """Commit; a connection whose COMMIT failed is not used again.

    SQLAlchemy would return the connection to its pool unchanged. The transaction may still be open there: the look-up
    whether it is committed would run inside that transaction, and would always find it.
    """
    try:
        connection.commit()
    except BaseException:
        connection.invalidate()
        raise


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


class Committer:
    """Executes recorded transactions. Any thread; blocks for at most about ``retry_max_seconds`` plus one statement."""

    def __init__(
        self,
        engine: Callable[[], Engine],
        settings: StoreSettings,
        limits: Limits,
        encode: Encode,
        review: Callable[[Sequence[Effect]], Sequence[Effect]],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._limits = limits
        self._encode = encode
        self._review = review

    def run(self, work: Work) -> Commit | None:
        """Commit; None when nothing changed. Raises ConditionFailed and InvalidValueError (nothing written), StoreBusy,
        StoreUnavailable, StoreFull, StoreReadOnly (nothing written), OutcomeUnknown."""
        if not work.operations:
            return None
        doubt: list[Commit] = []
        try:
            return retry.attempt(self._settings, lambda: self._once(work, doubt))
        except PubSubError as error:
            if doubt:
                raise OutcomeUnknown(
                    "the connection was lost during COMMIT and it is unknown whether the transaction is committed; "
                    f"call committed({work.nonce}) later ({error})",
                    work.nonce,
                ) from error
            raise

    def _once(self, work: Work, doubt: list[Commit]) -> Commit | None:
        """One attempt. ``doubt`` keeps the commit whose outcome is unknown from one attempt to the next."""
        if doubt:
            if self._ask(doubt[0]):
                return doubt.pop()
            doubt.clear()
        with error_mapping.translated("writing a transaction"), self._engine().connect() as connection:
            commit = writer.write(DriverExecutor(connection), work, self._encode, self._limits, self._review)
            if commit is None:
                connection.rollback()
                return None
            doubt.append(commit)
            try:
                commit_or_drop(connection)
            except SQLAlchemyError as error:
                if error_mapping.kind_of(error) in error_mapping.DEFINITE:
                    doubt.clear()
                    raise
                # For any other error: look up the transaction before it is tried again.
                raise StoreUnavailable(f"COMMIT ended without an answer ({error})") from error
            doubt.clear()
        hit("writer.after_commit")
        return commit

    def _ask(self, commit: Commit) -> bool:
        with error_mapping.translated("looking up a transaction"), self._engine().connect() as connection:
            answer = writer.is_in(connection, commit.point)
        if answer is None:
            raise StoreBusy("the changelog was trimmed past the transaction that is looked up")
        return answer
