"""Statements that are built and compiled once for a dialect.

SQLAlchemy builds, keys and compiles a statement again at each execution, which took most of a transaction's processor
time. Here a statement is its text and its parameters' conversions; an execution binds values and calls the driver. It
still goes through the SQLAlchemy connection, with its events and errors, so a user's own session may execute it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ClauseElement, Connection, Dialect, Select
from sqlalchemy.sql.compiler import SQLCompiler

Convert = Callable[[Any], Any]
NOTHING: Mapping[str, Any] = {}


class Prepared:
    """One statement with named parameters; those without a given value keep the statement's own."""

    def __init__(self, statement: ClauseElement, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        self._text = str(compiled)
        found = {
            name: each.type.dialect_impl(dialect).bind_processor(dialect) for each, name in compiled.bind_names.items()
        }
        own = compiled.params
        names = compiled.positiontup
        self._by_position = names is not None
        self._order: Sequence[tuple[str, Convert | None, Any]] = [
            (name, found[name], own[name]) for name in (names if names is not None else found)
        ]
        self._results: Sequence[tuple[int, Convert]] = ()
        if isinstance(statement, Select):
            processors = [
                each.type.dialect_impl(dialect).result_processor(dialect, None) for each in statement.selected_columns
            ]
            self._results = [(at, each) for at, each in enumerate(processors) if each is not None]

    def rows(self, connection: Connection, values: Mapping[str, Any] = NOTHING) -> Sequence[Sequence[Any]]:
        """Execute the statement; all its rows, in the order of its columns. Raises SQLAlchemy's errors."""
        got: Sequence[Any] = connection.exec_driver_sql(self._text, self._bound(values)).all()
        if not self._results:
            return got
        converted = []
        for row in got:
            columns = list(row)
            for at, convert in self._results:
                columns[at] = convert(columns[at])
            converted.append(columns)
        return converted

    def run(self, connection: Connection, many: Sequence[Mapping[str, Any]]) -> None:
        """Execute the statement for each of these values. Raises SQLAlchemy's errors."""
        bound = [self._bound(values) for values in many]
        connection.exec_driver_sql(self._text, bound if len(bound) > 1 else bound[0])

    def _bound(self, values: Mapping[str, Any]) -> Any:
        if self._by_position:
            return tuple(
                values.get(name, own) if convert is None else convert(values.get(name, own))
                for name, convert, own in self._order
            )
        return {
            name: values.get(name, own) if convert is None else convert(values.get(name, own))
            for name, convert, own in self._order
        }
