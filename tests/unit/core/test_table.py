"""Handles of tables, and declared tables."""

from typing import Any

import msgspec
import pytest

from pubsub_lib.core.table import Declared, Table, TableTypes
from pubsub_lib.errors import ConfigError, InvalidValueError


class Port(msgspec.Struct):
    switch: str


class Other(msgspec.Struct):
    switch: str


PORTS = Table("lport", Port)


@pytest.mark.parametrize("declared", [[PORTS], (PORTS,), {"lport": Port}])
def test_declared_table_is_found_by_name_and_by_handle(declared: Declared) -> None:
    types = TableTypes(declared)
    assert types.types == {"lport": Port}
    assert types.name("lport") == types.name(PORTS) == types.name(Table("lport", Port)) == "lport"


@pytest.mark.parametrize("declared", [None, {}, []])
def test_without_declared_tables_every_name_is_valid_and_no_handle(declared: Declared | None) -> None:
    types = TableTypes(declared)
    assert types.name("whatever") == "whatever"
    with pytest.raises(
        InvalidValueError, match=r"'lport' is not declared with the type Port here; put its handle into"
    ):
        types.name(PORTS)


def test_undeclared_table_is_refused_when_others_are_declared() -> None:
    types = TableTypes([PORTS, Table("switch", dict)])
    with pytest.raises(InvalidValueError, match="'lprot' is not declared; the declared tables are lport, switch"):
        types.name("lprot")
    with pytest.raises(InvalidValueError, match="the table 'lport' is not declared with the type Other here"):
        types.name(Table("lport", Other))


@pytest.mark.parametrize("name", ["", "a\0b", 7])
def test_invalid_table_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidValueError, match="table"):
        Table(name, Port)
    with pytest.raises(InvalidValueError, match="table"):
        TableTypes({name: Port})
    with pytest.raises(InvalidValueError, match="table"):
        TableTypes().name(name)


def test_undecodable_type_is_refused() -> None:
    kind: Any = "Port"
    with pytest.raises(ConfigError, match="'lport' cannot be decoded"):
        Table("lport", kind)
    with pytest.raises(ConfigError, match="'lport' cannot be decoded"):
        TableTypes({"lport": kind})


def test_table_must_be_declared_once_and_by_a_handle() -> None:
    with pytest.raises(ConfigError, match="'lport' is declared twice"):
        TableTypes([PORTS, Table("lport", Other)])
    names: Any = ["lport"]
    with pytest.raises(ConfigError, match=r"tables must be handles.*not 'lport'"):
        TableTypes(names)
