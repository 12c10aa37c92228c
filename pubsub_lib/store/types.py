"""Column types and SQL expressions that mean the same on every database."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import VARBINARY, BigInteger, Dialect, LargeBinary, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine


class Name(TypeDecorator[str]):
    """Text that is compared and sorted as bytes: no collation merges ``A`` and ``a``, or ``b`` and ``b ``.

    MariaDB's and MySQL's older collations pad text with spaces when they compare it, so there the column is VARBINARY;
    PostgreSQL's collation "C" and SQLite's BINARY compare bytes, and the text stays readable. ``size`` in bytes.
    """

    impl = Text
    cache_ok = True

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The native type."""
        if dialect.name == "mysql":
            return dialect.type_descriptor(VARBINARY(self.size))
        return dialect.type_descriptor(Text(collation="C") if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        """Convert text for the driver."""
        return value.encode() if value is not None and dialect.name == "mysql" else value

    def bind_processor(self, dialect: Dialect) -> Callable[[str | None], Any] | None:
        """None where drivers take text, as for results."""
        return super().bind_processor(dialect) if dialect.name == "mysql" else None

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], str | None] | None:
        """None where drivers return text by themselves: the processor would be called for every name of a full sync."""
        return super().result_processor(dialect, coltype) if dialect.name == "mysql" else None

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """Convert the driver's value to text."""
        return bytes(value).decode() if isinstance(value, bytes | bytearray) else value


class Blob(LargeBinary):
    """Bytes, verbatim, of any size that our limits allow (MySQL's plain BLOB ends at 64 KiB).

    The name of MySQL's type is written out here, because its module in SQLAlchemy imports all drivers of MySQL.
    """


@compiles(Blob, "mysql")
def _longblob(element: Blob, compiler: Any, **kw: Any) -> str:
    return "LONGBLOB"


def blob() -> TypeEngine[bytes]:
    """The type of a column of bytes."""
    return Blob()


class NowMicroseconds(ColumnElement[int]):
    """The database's own clock: microseconds since 1970 in UTC, as an integer, so that no time zone can interfere."""

    type = BigInteger()
    inherit_cache = True


@compiles(NowMicroseconds, "postgresql")
def _now_postgresql(element: NowMicroseconds, compiler: Any, **kw: Any) -> str:
    # Not now(): its value does not change within a transaction.
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


@compiles(NowMicroseconds, "mysql")
def _now_mysql(element: NowMicroseconds, compiler: Any, **kw: Any) -> str:
    return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"


@compiles(NowMicroseconds, "sqlite")
def _now_sqlite(element: NowMicroseconds, compiler: Any, **kw: Any) -> str:
    # The host's clock, in milliseconds: SQLite has no finer one.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"


class Holds(FunctionElement[bool]):
    """Whether a blob contains these bytes: ``Holds(column, b"...")``."""

    inherit_cache = True
    name = "holds"


@compiles(Holds)
def _instr(element: Holds, compiler: Any, **kw: Any) -> str:
    return f"instr({compiler.process(element.clauses, **kw)}) > 0"


@compiles(Holds, "postgresql")
def _position(element: Holds, compiler: Any, **kw: Any) -> str:
    blob, part = (compiler.process(each, **kw) for each in element.clauses)
    return f"position({part} in {blob}) > 0"
