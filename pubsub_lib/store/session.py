"""Changes recorded in a program's own SQLAlchemy session: its tables and ours commit together.

The recorded verbs are executed in the session's ``before_commit``, after the session's own changes were flushed, so
that the counter is held for as short as possible. SQLAlchemy calls that event for savepoints too; only the outermost
COMMIT counts, and verbs recorded inside a savepoint that is rolled back are dropped.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Link
from pubsub_lib.errors import ConfigError, UsageError
from pubsub_lib.store import error_mapping, writer
from pubsub_lib.store.connection_executor import ConnectionExecutor, commits_each_statement, dialect_of
from pubsub_lib.store.links import Commit
from pubsub_lib.store.tables import Tables
from pubsub_lib.store.transaction import Read, Transaction, new_nonce
from pubsub_lib.store.verbs import Effect

AnySession = Session | scoped_session[Any]


class SessionRecorder(Transaction):
    """The verbs of :class:`Transaction` inside a user's session, transaction after transaction.

    ``commit`` is the last transaction's commit. ``nonce`` stays that of the last executed transaction until the session
    begins the next one, so that it can be looked up after a COMMIT without an answer. Belongs to the session's thread.
    Nothing is retried: an error of this library is raised from ``session.commit()``; the caller then rolls the
    transaction back and may run it again. ``get`` reads committed values and the verbs recorded here. After the
    recorder's ``before_commit`` listener has executed the verbs, and until the transaction ends, verbs and ``get``
    raise UsageError.
    """

    def __init__(
        self,
        session: AnySession,
        tables: Tables,
        read: Read,
        origin: str,
        limits: Limits,
        review: Callable[[Sequence[Effect]], Sequence[Effect]],
        dialect: str,
        bind: Mapping[str, Any] | None,
        on_commit: Callable[[Sequence[Link], bytes], None],
    ) -> None:
        super().__init__(tables, read, new_nonce(), origin)
        # Of a scoped_session itself, SQLAlchemy would call the listeners for all sessions of its factory.
        self._session = session = session() if isinstance(session, scoped_session) else session
        self._limits = limits
        self._review = review
        self._dialect = dialect
        self._bind = dict(bind or {})
        self._on_commit = on_commit
        self._savepoints: dict[SessionTransaction, int] = {}
        self._ending: SessionTransaction | None = None
        self._executed = False
        """Whether the verbs of this transaction were executed: a later one would not be committed with them."""
        self._is_committed = False
        self._sent = False
        """Whether ``nonce`` was sent to the database: the next transaction needs another one. Until then it stays, so
        that a program may read it before the session begins."""
        self._pending: Commit | None = None
        self._done = False
        """Whether the verbs of this transaction were written without an error, or had nothing to write."""
        self._listeners: list[tuple[str, Callable[..., None]]] = [
            ("before_commit", self._before_commit),
            ("after_commit", self._after_commit),
            ("after_rollback", self._after_rollback),
            ("after_transaction_create", self._transaction_began),
            ("after_transaction_end", self._transaction_ended),
        ]
        for name, listener in self._listeners:
            # First after a COMMIT: the exception of another listener must not keep the commit from being published.
            event.listen(session, name, listener, insert=name == "after_commit")

    def close(self) -> None:
        """Stop listening to the session and drop the recorded verbs. Idempotent."""
        if self._open:
            self._open = False
            self._forget()
            for name, listener in self._listeners:
                event.remove(self._session, name, listener)

    def _check_open(self) -> None:
        super()._check_open()
        if self._is_committed:
            raise UsageError(
                "this session's transaction is committed already, with the changes recorded before; record further "
                "ones in its next transaction, after session.commit() has returned"
            )
        if self._executed:
            raise UsageError(
                "this session's transaction is being committed, and its recorded changes were already executed; record "
                "before session.commit(), or in a before_commit listener added before store.session(session)"
            )
        if not self._session.in_transaction():
            # As session.add does: so that a rollback without anything else in the session drops our verbs, too.
            self._session.begin()

    def _before_commit(self, session: Session) -> None:
        savepoint = session.get_nested_transaction()
        # The second call for one savepoint: an outer transaction commits while the savepoint is open.
        over_savepoint = savepoint is not None and savepoint is self._ending
        if savepoint is None or over_savepoint:
            session.flush()  # a program may record its changes while they are flushed, too
        self._ending = savepoint
        self._executed = self._executed or savepoint is None
        if not self._operations or self._done:
            # Done: another listener stopped the commit after our verbs were executed, and it is tried again.
            return
        if over_savepoint:
            # That commit would end before our verbs are executed, so it must not begin.
            raise UsageError("a savepoint is still open inside a transaction that commits; end the savepoint first")
        if savepoint is not None:
            return
        if self._sent:
            # The counter may have moved, and would be committed without a link.
            raise UsageError(
                "an earlier commit of this session's transaction failed; call session.rollback() and run the "
                "transaction again"
            )
        try:
            connection = session.connection(bind_arguments=self._bind)
            self._check_connection(session, connection)
            executor, works = ConnectionExecutor(connection), [self._work()]
            self._sent = True
            (outcome,) = writer.write_together(executor, works, self._tables.encode, self._limits, self._review)
        except SQLAlchemyError as error:
            raise error_mapping.translate(error, "writing in a session") from error
        if outcome.error is not None:
            raise outcome.error  # not translated: a hook may raise an error of another database
        self._pending, self._done = outcome.commit, True

    def _check_connection(self, session: Session, connection: Connection) -> None:
        """Refuse another database, and a transaction that the session's COMMIT does not commit as a whole."""
        dialect = dialect_of(connection).name
        if dialect != self._dialect:
            raise ConfigError(
                f"the session is bound to {dialect}, the store to {self._dialect}; "
                "pass bind_arguments that lead to the store's database"
            )
        if commits_each_statement(connection):
            raise ConfigError(
                "the session's connection is in AUTOCOMMIT mode, so each statement would be committed alone; bind the "
                "session to an engine with another isolation level"
            )
        transaction = session.get_transaction()
        assert transaction is not None
        # SQLAlchemy has no public way to ask. It calls after_commit in any case.
        _, own, commits, _ = transaction._connections[connection]
        if not commits or own is not connection.get_transaction():
            raise UsageError(
                "the session has joined an outer transaction of its connection, and does not commit that transaction; "
                "bind the session to the engine, or begin no transaction on the connection"
            )

    def _after_commit(self, session: Session) -> None:
        if session.in_nested_transaction():
            return
        commit, self._pending = self._pending, None
        self._is_committed = True
        if self._operations:
            self.commit = commit
        self._forget()
        if commit is not None:
            self._on_commit(commit.links, commit.store_id)

    def _after_rollback(self, session: Session) -> None:
        savepoint = session.get_nested_transaction()
        if savepoint is not None:
            del self._operations[self._savepoints.get(savepoint, 0) :]
            return
        self._forget()

    def _transaction_began(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.nested:
            self._savepoints[transaction] = len(self._operations)
        elif transaction.parent is None and self._sent:
            self._sent, self.nonce = False, new_nonce()

    def _transaction_ended(self, session: Session, transaction: SessionTransaction) -> None:
        self._savepoints.pop(transaction, None)
        if transaction is self._ending:
            self._ending = None
        if transaction.parent is None:
            self._executed = self._is_committed = False
            self._forget()  # also by session.close(), which rolls back without after_rollback

    def _forget(self) -> None:
        self._operations = []
        self._reads = {}
        self._pending, self._done = None, False
