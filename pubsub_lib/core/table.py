"""Tables with a type: handles for type checkers, and the tables of a replica or a store."""

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from pubsub_lib.arguments import wrong
from pubsub_lib.core.limits import check_name
from pubsub_lib.errors import ConfigError, InvalidValueError

T = TypeVar("T")


class Table(msgspec.Struct, Generic[T], frozen=True):
    """A table and the type of its values: ``ports = Table("lport", Port)``.

    Declared once for a replica or a store (``tables=[ports]``), it can be used wherever a table's name can; type
    checkers then know the type of the value. ``type`` is a msgspec Struct, or any other type that msgspec can decode.
    Raises InvalidValueError for an invalid name, ConfigError for a type that msgspec cannot decode.
    """

    name: str
    type: type[T]

    def __post_init__(self) -> None:
        check_name("table", self.name)
        _check_type(self.name, self.type)


Declared = Mapping[str, type[Any]] | Iterable[Table[Any]]
"""How tables are declared: by handles, or by names with types."""


class TableTypes:
    """The declared tables. None declared: every table holds any JSON. Some declared: only those exist.

    Immutable; any thread; no call blocks.
    """

    def __init__(self, declared: Declared | None = None) -> None:
        """Raises InvalidValueError for an invalid name, ConfigError for a type that msgspec cannot decode, or for a
        table that is declared twice.
        """
        self.types = _types(declared or ())

    def name(self, table: str | Table[Any]) -> str:
        """The name of a table. Raises InvalidValueError for an invalid name, for a table that is not declared although
        others are, and for a handle that was not declared.
        """
        if isinstance(table, Table):
            if self.types.get(table.name) != table.type:
                raise InvalidValueError(
                    f"the table {table.name!r} is not declared with the type {type_name(table.type)} here; put its "
                    "handle into tables=[…]"
                )
            return table.name
        check_name("table", table)
        if self.types and table not in self.types:
            names = ", ".join(sorted(self.types))
            raise InvalidValueError(f"the table {table!r} is not declared; the declared tables are {names}")
        return table


def _types(declared: Declared) -> dict[str, type[Any]]:
    if isinstance(declared, Mapping):
        for name, kind in declared.items():
            check_name("table", name)
            _check_type(name, kind)
        return dict(declared)
    if not isinstance(declared, Iterable):
        raise wrong("tables", declared, "a list of pubsub_lib.Table, or a mapping of names to types", ConfigError)
    types: dict[str, type[Any]] = {}
    for handle in declared:
        if not isinstance(handle, Table):
            raise ConfigError(
                f"tables must be handles, as Table('lport', Port), or a mapping of names to types; not {handle!r:.80}"
            )
        if handle.name in types:
            raise ConfigError(f"the table {handle.name!r} is declared twice; declare it once")
        types[handle.name] = handle.type
    return types


def _check_type(name: str, kind: type[Any]) -> None:
    try:
        msgspec.json.Decoder(kind)
    except TypeError as error:
        raise ConfigError(f"the type {kind!r} of the table {name!r} cannot be decoded: {error}") from error


def type_name(kind: type[Any]) -> str:
    """The type as text; a union, for example, has no name."""
    return getattr(kind, "__name__", repr(kind))
