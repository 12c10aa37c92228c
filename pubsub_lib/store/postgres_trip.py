"""Round trips to PostgreSQL: the statements of one are sent together, and their answers are read together.

psycopg's own pipeline sends each statement alone. A client that stops between two of them, for example because its
machine is suspended, leaves the server in the middle of a pipeline. The server ends the transaction of an idle client
(``idle_in_transaction_session_timeout``) only after a Sync, so all locks of that transaction would stay, and the lock
of the counter blocks all writers. Therefore libpq collects the messages of a trip up to its Sync and sends them by one
system call.

libpq sends its buffer earlier after each message with which the buffer reaches 8 KiB. A trip with such a message takes
several sends. All parameters are converted before the first one, so that they follow each other at once.
"""

import re
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Final

from psycopg import Connection
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import InternalError, OperationalError, error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

from pubsub_lib.store.prepared import Call, Prepared, Rows

_PLACEHOLDER: Final = re.compile(r"%(?:%|\((\w+)\)s)")
_DONE: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
_SYNC: Final = ExecStatus.PIPELINE_SYNC
_BINARY, _TEXT = PyFormat.BINARY, PyFormat.TEXT
_NOTE: Final = "postgres_trips"

_Message = tuple[Callable[..., None], tuple[Any, ...]]
"""A function of libpq that adds one statement to the trip, and its arguments."""


class Trips:
    """The trips of one connection, in pipeline mode between :meth:`begin` and :meth:`end`. Belongs to one thread.

    Statements are prepared in the server at their first use, if psycopg prepares none on this connection
    (``prepare_threshold`` is None): after a rollback psycopg deallocates its own ones, and by that also others.
    """

    def __init__(self, driver: "Connection[Any]") -> None:
        self._driver = driver
        self._pgconn = driver.pgconn
        self._adapter = Transformer(driver)
        self._known: dict[str, _Statement] = {}

    def begin(self) -> None:
        """Enter the pipeline mode, without a message to the server. Until :meth:`end` only trips use the connection."""
        self._pgconn.enter_pipeline_mode()

    def end(self) -> None:
        """Leave the pipeline mode, without a message to the server."""
        if self._pgconn.status == ConnStatus.OK:
            self._pgconn.exit_pipeline_mode()

    def run(self, calls: Sequence[Call]) -> list[Rows]:
        """Execute statements in one trip, which ends with a Sync; the rows of each. Can be interrupted while it waits.

        Raises psycopg's errors, of several the first. Then the connection must not be used again.
        """
        messages: list[_Message] = []
        last: list[int] = []
        for call in calls:
            self._add(call, messages)
            last.append(len(messages) - 1)
        for send, arguments in messages:
            send(*arguments)
        self._pgconn.pipeline_sync()
        results: list[PGresult] = []
        try:
            self._driver.wait(_answers(self._pgconn, results))
        except OperationalError as error:
            self._check(results, error)  # the server names its reason before it closes the connection
            raise
        self._check(results)
        if len(results) != len(messages):
            raise InternalError(f"PostgreSQL gave {len(results)} results for {len(messages)} messages")
        return [self._rows(call.statement, results[at]) for call, at in zip(calls, last, strict=True)]

    def _add(self, call: Call, messages: list[_Message]) -> None:
        """Add the messages of one statement: perhaps its preparation, then one for each of its values."""
        statement, many = call
        prepares = self._driver.prepare_threshold is None
        known = self._known.get(statement.text)
        if known is None:
            known = self._known[statement.text] = _Statement(statement.text, len(self._known))
            if prepares:
                messages.append((self._pgconn.send_prepare, (known.name, known.text)))
        for values in many:
            given = statement.bound(values) if statement.binds else values
            row = [given[name] for name in known.parameters]
            # The server derives the types of parameters from the statement. Text fits each type of number, and binary
            # only its size.
            as_bytes = [_BINARY if type(value) is bytes else _TEXT for value in row]
            buffers = self._adapter.dump_sequence(row, as_bytes)
            formats = self._adapter.formats
            if prepares:
                messages.append((self._pgconn.send_query_prepared, (known.name, buffers, formats, Format.BINARY)))
            else:
                messages.append((self._pgconn.send_query_params, (known.text, buffers, None, formats, Format.BINARY)))

    def _check(self, results: Sequence[PGresult], cause: Exception | None = None) -> None:
        """Raise the error of the first result that is one."""
        for each in results:
            if each.status not in _DONE:
                encoding = self._driver.info.encoding
                if each.error_field(DiagnosticField.SQLSTATE):
                    raise error_from_result(each, encoding) from cause
                raise OperationalError(each.get_error_message(encoding)) from cause  # of libpq itself

    def _rows(self, statement: Prepared, result: PGresult) -> Rows:
        if not statement.returns:
            return ()
        self._adapter.set_pgresult(result)
        found = self._adapter.load_rows(0, result.ntuples, tuple)
        return statement.converted(found) if statement.converts else found


class _Statement:
    """A statement as libpq takes it, with $1, $2 … for its named parameters."""

    def __init__(self, text: str, number: int) -> None:
        numbers: dict[str, int] = {}

        def numbered(found: re.Match[str]) -> str:
            name = found[1]
            return "%" if name is None else f"${numbers.setdefault(name, len(numbers) + 1)}"

        self.text = _PLACEHOLDER.sub(numbered, text).encode()
        self.parameters = tuple(numbers)
        """The names of its parameters, in order."""
        self.name = b"pubsub_%d" % number
        """Its name in the server."""


def trips_of(driver: "Connection[Any]", notes: MutableMapping[Any, Any]) -> Trips:
    """The trips of a connection, kept in the ``notes`` that live as long as the connection."""
    kept = notes.get(_NOTE)
    if kept is None:
        kept = notes[_NOTE] = Trips(driver)
    assert isinstance(kept, Trips)
    return kept


def _answers(pgconn: PGconn, results: list[PGresult]) -> PQGen[None]:
    """Send what the socket did not take at once, and add the results up to the Sync. A generator of psycopg's kind: it
    yields what to wait for, and gets what is ready (nothing after psycopg's interval, in which it looks for signals).
    """
    while pgconn.flush():
        while not (ready := (yield Wait.RW)):
            pass
        if ready & Ready.R:  # the server may send only after its answers were read
            pgconn.consume_input()
    ended = False
    while True:
        while pgconn.is_busy():
            while not (yield Wait.R):
                pass
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is not None and result.status == _SYNC:
            return
        if result is not None:
            results.append(result)
        elif ended:  # None follows each result; without another one nothing more is expected
            raise OperationalError(f"the connection ended within a trip: {pgconn.get_error_message()}")
        ended = result is None
