"""``pubsub-db ls``."""

import pytest

from tests.unit.cli.world import World, fill, imported

NOT_NEEDED = {
    "alembic", "mako", "pubsub_lib.audit", "pubsub_lib.loader", "pubsub_lib.publisher",
    "pubsub_lib.replica", "pubsub_lib.service", "rich", "sqlalchemy.dialects.mysql",
    "sqlalchemy.dialects.postgresql", "sqlalchemy.orm", "yaml", "zmq",
}  # fmt: skip
"""What a list of an SQLite database does not need."""


def test_keys_of_a_table(world: World) -> None:
    with world.open() as store:
        fill(store)
        versions = {each.key: each.version for each in store.objects()}
    assert world.run("ls", "lport", "-f", "json").json == [
        {"key": "p1", "topic": "tenant-1", "version": versions["p1"]},
        {"key": "p2", "topic": "tenant-2", "version": versions["p2"]},
    ]
    assert [each["key"] for each in world.run("ls", "lport", "--topic", "tenant-2", "-f", "json").json] == ["p2"]
    shown = world.run("ls", "lport")
    assert shown.code == 0
    assert [line.split("|")[1].strip() for line in shown.out.splitlines()[3:5]] == ["p1", "p2"]


def test_a_table_without_objects(world: World) -> None:
    assert world.run("ls", "nothing", "-f", "json").json == []
    shown = world.run("ls", "nothing")
    assert (shown.code, shown.out, shown.err) == (0, "", "pubsub-db: the table 'nothing' holds no objects\n")


def test_invalid_table_name_is_rejected(small: World) -> None:
    small.run("ls", "").failed(2, "the table is empty")


def keys(world: World, *arguments: object) -> list[str]:
    """The listed keys."""
    return [each["key"] for each in world.run("ls", *arguments, "-f", "json").json]


def test_ls_with_a_prefix_lists_keys_that_begin_with_it(world: World) -> None:
    names = ["a%", "a%b", "a_", "ab", "A%", "a%\U0010ffff", "b"]
    with world.open() as store, store.transaction() as tx:
        for each in names:
            tx.set("t", each, 1)
        tx.set("u", "a%c", 1)
    assert keys(world, "t", "--prefix", "a%") == ["a%", "a%b", "a%\U0010ffff"]
    assert keys(world, "t", "--prefix", "a") == ["a%", "a%b", "a%\U0010ffff", "a_", "ab"]
    assert keys(world, "t", "--prefix", "x") == []
    shown = world.run("ls", "t", "--prefix", "x")
    assert (shown.code, shown.out, shown.err) == (0, "", "pubsub-db: the table 't' holds no such objects\n")


def test_ls_with_a_limit_reports_that_there_are_more(world: World) -> None:
    with world.open() as store:
        fill(store)
    more = "pubsub-db: there are more objects than 1; give a larger --limit, or a longer --prefix\n"
    for form in ("json", "table", "value"):
        shown = world.run("ls", "lport", "--limit", 1, "-f", form)
        assert (shown.code, shown.err) == (0, more)
        assert ("p1" in shown.out, "p2" in shown.out) == (True, False)
    assert world.run("ls", "lport", "--limit", 2).err == ""
    assert world.run("ls", "lport", "--limit", 1, "--topic", "tenant-2").err == ""


def test_ls_with_values(world: World) -> None:
    with world.open() as store:
        fill(store)
    rows = world.run("ls", "lport", "--values", "-f", "json").json
    assert [each["value"] for each in rows] == [
        {"switch": "s1", "chassis": "host-7"},
        {"switch": "s1", "chassis": "höst-8"},
    ]
    assert list(rows[0]) == ["key", "topic", "version", "value"]
    assert "host-7" in world.run("ls", "lport", "--values").out


@pytest.mark.parametrize("limit", [0, -1, 2**31])
def test_ls_rejects_an_invalid_limit(limit: int, small: World) -> None:
    small.run("ls", "lport", "--limit", limit).failed(2, f"--limit {limit} is invalid")


def test_ls_rejects_an_invalid_prefix(small: World) -> None:
    small.run("ls", "lport", "--prefix", "x" * 2000).failed(2, "bytes; at most")


def test_ls_imports_no_publisher_and_no_other_database(small: World) -> None:
    with small.open() as store:
        fill(store)
    shown, modules = imported("--config-file", small.config, "ls", "lport", "-f", "value")
    assert shown.startswith("p1 tenant-1 ")
    assert modules & NOT_NEEDED == set()
    assert "sqlalchemy.dialects.sqlite" in modules  # the modules are seen at all


def test_help_of_ls_imports_no_database_and_no_configuration() -> None:
    shown, modules = imported("ls", "--help")
    assert "--prefix" in shown
    assert modules & (NOT_NEEDED | {"oslo_config", "pubsub_lib.settings", "pubsub_lib.store", "sqlalchemy"}) == set()
