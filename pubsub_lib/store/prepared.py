"""Statements that are built and compiled once for a dialect.

SQLAlchemy builds, keys and compiles a statement again at each execution, which took most of a transaction's processor
time. Here a statement is its text, and the conversions of its parameters and of its rows.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import ClauseElement, Dialect, SelectBase, UpdateBase
from sqlalchemy.sql.compiler import SQLCompiler

from pubsub_lib.store.types import Name

Convert = Callable[[Any], Any]
NOTHING: Mapping[str, Any] = {}
Rows = Sequence[Sequence[Any]]


class Prepared:
    """One statement with named parameters; those without a given value keep the statement's own."""

    def __init__(self, statement: ClauseElement, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        self.text = str(compiled)
        """The SQL with the driver's placeholders."""
        self.returns = isinstance(statement, SelectBase) or (
            isinstance(statement, UpdateBase) and bool(statement.exported_columns)
        )
        """Whether it returns rows."""
        self._order = compiled.positiontup
        self._own = {name: value for name, value in compiled.params.items() if value is not None}
        # Drivers take numbers and bytes as they are.
        converts = {
            name: each.type.dialect_impl(dialect).bind_processor(dialect)
            for each, name in compiled.bind_names.items()
            if isinstance(each.type, Name)
        }
        self._converts = {name: convert for name, convert in converts.items() if convert is not None}
        self.binds = self._order is not None or bool(self._own or self._converts)
        """False: the driver takes the values as they are given."""
        plain = [] if self._order is None or self._own or self._converts else self._order
        self.columns = itemgetter(*plain) if len(plain) > 1 else None
        """Puts the values in order, where there are several and nothing else is to be done."""
        self.only = plain[0] if len(plain) == 1 else None
        """The name of the only parameter, whose value is taken as it is."""
        self.converts: Sequence[tuple[int, Convert]] = ()
        """The columns of its rows that the driver returns in another form. Without any, rows are not converted."""
        if isinstance(statement, SelectBase):
            processors = [
                each.type.dialect_impl(dialect).result_processor(dialect, None) for each in statement.selected_columns
            ]
            self.converts = [(at, each) for at, each in enumerate(processors) if each is not None]

    def bound(self, values: Mapping[str, Any]) -> Any:
        """The parameters as the driver takes them: a tuple or a mapping."""
        if self.columns is not None:
            return self.columns(values)
        if self._own:
            values = {**self._own, **values}
        if self._converts:
            values = {**values, **{name: convert(values[name]) for name, convert in self._converts.items()}}
        return values if self._order is None else tuple([values[name] for name in self._order])

    def converted(self, found: Rows) -> Rows:
        """Rows of the driver, with the values that the library uses."""
        if not self.converts:
            return found
        converted = []
        for row in found:
            columns = list(row)
            for at, convert in self.converts:
                columns[at] = convert(columns[at])
            converted.append(columns)
        return converted


class Call(NamedTuple):
    """A statement, executed once for each of ``many`` values; a statement that returns rows has one."""

    statement: Prepared
    many: Sequence[Mapping[str, Any]] = (NOTHING,)
