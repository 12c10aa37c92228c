"""``pubsub-db clean``."""

from collections.abc import Sequence

import pytest

from pubsub_lib import Store
from pubsub_lib.cli import bulk_delete
from pubsub_lib.errors import OutcomeUnknown, StoreUnavailable
from tests.unit.cli.world import World, fill


def test_everything(world: World) -> None:
    with world.open() as store:
        fill(store)
    before = world.head
    assert world.run("clean", "--yes", "-f", "json").json == {
        "deleted": 3, "transactions": 1, "position": before + 3,
    }  # fmt: skip
    assert world.contents() == {}


def test_clean_by_table_and_topic(world: World) -> None:
    with world.open() as store:
        fill(store)
    shown = world.run("clean", "--yes", "--table", "lport", "--topic", "tenant-1")
    assert shown.code == 0
    assert "| deleted      | 1 " in shown.out
    assert world.run("clean", "--yes", "--topic", "tenant-1", "-f", "json").json["deleted"] == 1
    assert list(world.contents()) == [("lport", "p2")]
    assert world.run("clean", "--yes", "--table", "lport", "-f", "json").json["deleted"] == 1


def test_nothing_to_delete(world: World) -> None:
    output = world.run("clean", "--yes", "-f", "json")
    assert output.json == {"deleted": 0, "transactions": 0, "position": None}


def test_a_failure_names_what_was_deleted_before(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with small.open() as store:
        fill(store)
    before, delete, calls = small.head, bulk_delete._delete, []

    def fail_at_second(store: Store, part: Sequence[bulk_delete._Seen], removed: bulk_delete.Removed) -> None:
        calls.append(part)
        if len(calls) % 2 == 0:
            raise StoreUnavailable("the database is down")
        delete(store, part, removed)

    monkeypatch.setattr(bulk_delete, "BATCH", 2)
    monkeypatch.setattr(bulk_delete, "_delete", fail_at_second)
    output = small.run("clean", "--yes")
    assert (output.code, output.out) == (4, "")
    assert output.err.splitlines() == [
        f"pubsub-db: 2 objects are deleted, up to position {before + 2}; run the command again to delete the others",
        "pubsub-db: the database is down",
    ]
    assert len(small.contents()) == 1
    calls.append([])
    assert small.run("clean", "--yes").err.splitlines()[0] == "pubsub-db: no object was deleted"


@pytest.mark.parametrize("error", [OutcomeUnknown("no answer", 7), KeyboardInterrupt()])
def test_a_failure_after_a_commit_claims_no_exact_number(
    error: BaseException, small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small.open() as store:
        fill(store)
    delete = bulk_delete._delete

    def lose(store: Store, part: Sequence[bulk_delete._Seen], removed: bulk_delete.Removed) -> None:
        delete(store, part, bulk_delete.Removed())
        raise error

    monkeypatch.setattr(bulk_delete, "_delete", lose)
    assert small.run("clean", "--yes").err.splitlines()[0] == (
        "pubsub-db: at least 0 objects are deleted, and perhaps those of one more transaction"
    )


def test_confirmation_names_the_number_of_objects(small: World) -> None:
    with small.open() as store:
        fill(store)
    for arguments, words in [
        ((), "all 3 objects of all tables"),
        (("--table", "lport"), "all objects of the table 'lport' (2)"),
        (("--topic", "tenant-1"), "all objects on the topic 'tenant-1' (2)"),
        (("--table", "lport", "--topic", "tenant-1"), "of the table 'lport' on the topic 'tenant-1' (1)"),
        (("--table", "lport", "--topic", "t"), "of the table 'lport' on the topic 't' (0)"),
    ]:
        small.run("clean", *arguments).failed(2, words)
    assert len(small.contents()) == 3


def test_invalid_table_name_is_rejected(small: World) -> None:
    small.run("clean", "--table", "").failed(2, "the table is empty")
