"""Typed tables: the type of each table's values, checked before a write and decoded on reading."""

from collections.abc import Callable
from typing import Any

import msgspec

from pubsub_lib.core import values
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.table import Declared, Table, TableTypes, type_name
from pubsub_lib.errors import InvalidValueError


class Tables:
    """The declared tables. None declared: every table holds any JSON. Some declared: only those exist.

    A declared type is a msgspec Struct, or anything that msgspec can convert to (``dict`` for any JSON object).
    Immutable; any thread.
    """

    def __init__(self, declared: Declared, limits: Limits) -> None:
        """Raises as :class:`.TableTypes`."""
        declared_types = TableTypes(declared)
        self.check: Callable[[str | Table[Any]], str] = declared_types.name
        """The table's name. Raises InvalidValueError for a bad name, for a table that is not declared where some are,
        and for a handle that is not declared."""
        self._types = declared_types.types
        self._limits = limits

    def is_typed(self, table: str) -> bool:
        """Whether the table has a declared type."""
        return table in self._types

    def encode(self, table: str, value: object) -> bytes:
        """Canonical JSON of a struct, or of plain data that matches the table's type (its defaults are filled in).

        Raises InvalidValueError.
        """
        kind = self._types.get(table)
        if kind is None:
            return values.encode(_plain(table, value) if isinstance(value, msgspec.Struct) else value, self._limits)
        try:
            typed = msgspec.convert(_plain(table, value), kind)
        except msgspec.ValidationError as error:
            named = type_name(kind)
            raise InvalidValueError(f"a value of the table {table!r} does not fit {named}: {error}") from error
        return values.encode(_plain(table, typed), self._limits)

    def encode_patch(self, table: str, patch: object) -> bytes:
        """Canonical JSON of an update's members; the merged value is checked against the table's type.

        Raises InvalidValueError.
        """
        plain = _plain(table, patch) if table in self._types or isinstance(patch, msgspec.Struct) else patch
        if not isinstance(plain, dict):
            raise InvalidValueError(f"update of the table {table!r} merges members; give a mapping, not {patch!r:.80}")
        return values.encode(plain, self._limits)

    def decode(self, table: str, data: bytes) -> Any:
        """The value as the table's type, or as plain data. Raises InvalidValueError when it does not match the type."""
        kind = self._types.get(table)
        if kind is None:
            return values.decode(data)
        try:
            return msgspec.json.decode(data, type=kind)
        except values.DECODE_ERRORS as error:
            raise InvalidValueError(
                f"a stored value of the table {table!r} does not fit {type_name(kind)}: {error}"
            ) from error


def _plain(table: str, value: object) -> Any:
    try:
        return msgspec.to_builtins(value, builtin_types=())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(f"a value of the table {table!r} cannot be encoded as JSON: {error}") from error
