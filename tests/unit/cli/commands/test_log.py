"""``pubsub-db log``."""

import json
import select
import shlex
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from pubsub_lib import Settings, Store, StoreSettings
from pubsub_lib.cli.commands.log import more
from pubsub_lib.store.inspection import behind
from tests.e2e.warm_start import Running
from tests.unit.cli.world import World
from tests.unit.store.test_changelog import backup, restore


def write(world: World, count: int, topic: str = "a") -> list[int]:
    """Write ``count`` transactions of two changes each. Returns the positions after them."""
    positions = []
    with world.open() as store:
        for number in range(count):
            at = store.read_heads([]).store.position  # equal values would write nothing
            with store.transaction(origin="api-1") as tx:
                tx.set("t", f"k{number}", at, topic=topic)
                tx.set("t", "all", [topic, at], topic="z")
            assert tx.commit is not None
            positions.append(tx.commit.point.position)
    return positions


def test_newest_changes_are_sorted_by_position(world: World) -> None:
    last = write(world, 3)[-1]
    found = world.run("log", "--limit", 4, "-f", "json").json
    assert [each["position"] for each in found] == [last - 3, last - 2, last - 1, last]
    assert [(each["topic"], each["key"]) for each in found[-2:]] == [("a", "k2"), ("z", "all")]
    assert {each["transaction"] for each in found[-2:]} == {last}
    assert {each["origin"] for each in found} == {"api-1"}
    shown = world.run("log", "--limit", 1, "-c", "position", "-c", "key")
    assert shown.code == 0
    assert shown.out.splitlines()[3].replace(" ", "") == f"|{last}|all|"


def test_since_a_position_page_by_page(world: World) -> None:
    first = write(world, 1)[-1]
    positions = write(world, 3)
    output = world.run("log", "--since", first, "--limit", 5, "-f", "json")
    assert [each["position"] for each in output.json] == list(range(first + 1, first + 6))
    assert f"there are more changes: pubsub-db log --since {first + 5}" in output.err
    rest = world.run("log", "--since", first + 5, "-f", "json")
    assert [each["position"] for each in rest.json] == [positions[-1]]
    assert rest.err == ""


def spread(world: World, topics: Iterable[str]) -> list[int]:
    """Write one transaction with a change on each of these topics. Returns the positions of the changes."""
    with world.open() as store:
        before = store.read_heads([]).store.position
        with store.transaction() as tx:
            for topic in topics:
                tx.set("spread", topic, before, topic=topic)
        assert tx.commit is not None
    return list(range(before + 1, tx.commit.point.position + 1))


def followed_advice(world: World, *arguments: object) -> tuple[list[int], int]:
    """The positions of all pages, whose advice is followed; and the number of pages."""
    found: list[int] = []
    words, pages = ["log", *map(str, arguments)], 0
    while True:
        output = world.run(*words, "-f", "json")
        found += [each["position"] for each in output.json]
        pages += 1
        if not output.err:
            return found, pages
        words = shlex.split(output.err.removeprefix("pubsub-db: there are more changes: pubsub-db "))


@pytest.mark.quick_variants(3)
@pytest.mark.parametrize(("limit", "pages"), [(1, 6), (2, 3), (3, 2), (4, 2), (100, 1)])
def test_pages_have_every_change_of_transactions_with_many_topics(limit: int, pages: int, fresh: World) -> None:
    # The links of a transaction are sorted by topic, and its positions by the order in which the keys were named.
    positions = spread(fresh, ["c", "b", "a"]) + spread(fresh, ["b", "c", "a"])
    assert followed_advice(fresh, "--since", positions[0] - 1, "--limit", limit) == (positions, pages)


def test_pages_of_the_default_limit_within_one_transaction(fresh: World) -> None:
    positions = spread(fresh, [f"t{number:03}" for number in reversed(range(250))])
    assert followed_advice(fresh, "--since", positions[0] - 1) == (positions, 3)


@pytest.mark.quick_variants(2)
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_pages_since_a_position_within_a_transaction(limit: int, fresh: World) -> None:
    positions = spread(fresh, ["d", "c", "b", "a"]) + spread(fresh, ["b", "a"])
    for at, position in enumerate(positions[:4]):
        assert followed_advice(fresh, "--since", position, "--limit", limit)[0] == positions[at + 1 :]


def test_advice_names_the_options_that_choose_the_changes(fresh: World) -> None:
    first = write(fresh, 1)[-1]
    positions = write(fresh, 3, "-it's")
    found = followed_advice(fresh, "--since", first, "--topic=-it's", "--limit", 1, "--values")
    assert found == ([each - 1 for each in positions], 3)
    output = fresh.run("log", "--since", first, "--topic=-it's", "--limit", 1, "--values")
    assert output.err.endswith(f"log --since {positions[0] - 1} '--topic=-it'\"'\"'s' --limit 1 --values\n")


def test_newest_changes_of_transactions_with_many_topics(fresh: World) -> None:
    positions = spread(fresh, ["b", "a", "c"]) + spread(fresh, ["c", "b", "a"])
    for limit in range(1, 7):
        found = fresh.run("log", "--limit", limit, "-f", "json").json
        assert [each["position"] for each in found] == positions[-limit:]


def test_newest_change_is_the_create_after_a_move(fresh: World) -> None:
    with fresh.open() as store:
        for topic in ("z", "a"):
            with store.transaction() as tx:
                tx.set("t", "k", topic, topic=topic)
    (found,) = fresh.run("log", "--limit", 1, "-f", "json").json
    assert (found["action"], found["topic"]) == ("create", "a")


def test_follow_shows_a_transaction_that_is_longer_than_a_page_in_order(fresh: World) -> None:
    positions = spread(fresh, ["d", "c", "b", "a"]) + spread(fresh, ["b", "c", "a"])
    with Store(Settings(store_url=fresh.url, store=StoreSettings(page_size=2))) as store:
        at, links = more(store, behind(0), None, lambda *_: None)
        assert sorted(change.version for link in links for change in link.changes) == positions[:4]
        at, links = more(store, at, None, lambda *_: None)
        assert sorted(change.version for link in links for change in link.changes) == positions[4:]
        assert more(store, at, None, lambda *_: None) == (at, [])


def test_one_topic_with_values(world: World) -> None:
    first = write(world, 1)[-1]
    second = write(world, 2, "b")[0]
    found = world.run("log", "--since", first, "--topic", "z", "--values", "-f", "json").json
    assert [each["value"] for each in found] == [["b", first], ["b", second]]
    csv = world.run("log", "--since", first, "--topic", "b", "--values", "-f", "csv", "-c", "key", "-c", "value")
    assert csv.out.splitlines() == ['"key","value"', f'"k0","{first}"', f'"k1","{second}"']


def test_empty_changelog(fresh: World) -> None:
    assert fresh.run("log", "-f", "json").json == []
    output = fresh.run("log")
    assert (output.code, output.out, output.err) == (0, "", "pubsub-db: the changelog has no such changes\n")


def test_log_warns_of_trimmed_changes(fresh: World) -> None:
    write(fresh, 3)
    with fresh.open() as store:
        store.trim(keep_links=2)
    output = fresh.run("log", "--since", 1, "-f", "json")
    assert [each["position"] for each in output.json] == [5, 6]
    assert "trimmed up to position 4" in output.err


def test_invalid_numbers_are_rejected(small: World) -> None:
    small.run("log", "--limit", 0).failed(2, "--limit from 1")
    small.run("log", "--since", -1).failed(2, "--since from 0")


def test_follow_prints_a_line_for_each_new_change(world: World) -> None:
    first = write(world, 1)[-1]
    process = world.process("log", "--follow", "--since", first - 1, "-f", "json")
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["position"] == first
        # The command has caught up: later changes are found by following.
        last = write(world, 2)[-1]
        found = [json.loads(process.stdout.readline()) for _ in range(4)]
        assert [each["position"] for each in found] == list(range(last - 3, last + 1))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (130, "", "")
    finally:
        process.kill()
        process.communicate()


def test_follow_starts_at_the_head_and_ends_when_the_pipe_is_closed(fresh: World) -> None:
    write(fresh, 3)
    process = fresh.process("log", "--follow", "--topic", "a", "-f", "value", "-c", "position")
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        while not select.select([process.stdout], [], [], 0.2)[0]:  # until a change is committed after its start
            last = write(fresh, 1)[-1]
        assert 6 < int(process.stdout.readline()) <= last
        process.stdout.close()
        while process.poll() is None:
            write(fresh, 1)
        assert process.returncode == 141
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


def test_follow_continues_at_the_position_of_a_restored_store(fresh: World) -> None:
    write(fresh, 2)
    warnings: list[tuple[str, int]] = []
    with fresh.open() as store:
        at, links = more(store, behind(100), None, lambda *warning: warnings.append(warning))
        assert (at, links) == (behind(4), [])
        assert [position for _, position in warnings] == [4]
        write(fresh, 1)
        at, links = more(store, at, None, lambda *warning: warnings.append(warning))
        assert [link.point.position for link in links] == [6, 6]
        assert more(store, at, None, lambda *warning: warnings.append(warning)) == (at, [])
    assert len(warnings) == 1


def test_follow_shows_a_change_that_replaces_the_last_one_after_a_restore(fresh: World) -> None:
    spread(fresh, ["a"])
    rows = backup(fresh.url)
    spread(fresh, ["a"])
    warnings: list[int] = []
    with fresh.open() as store:
        at, links = more(store, behind(0), None, lambda _, position: warnings.append(position))
        assert [link.point.position for link in links] == [1, 2]
        restore(fresh.url, rows)
        at, links = more(store, at, None, lambda _, position: warnings.append(position))
        assert (links, warnings) == ([], [1])
        spread(fresh, ["a"])
        at, links = more(store, at, None, lambda _, position: warnings.append(position))
        assert [link.point.position for link in links] == [2]


@contextmanager
def following(world: World, since: int) -> "Iterator[Running]":
    """The positions after ``since``, one on a line."""
    process = world.process("log", "--follow", "--since", since, "-f", "value", "-c", "position")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_follow_shows_the_changes_of_a_restored_store_before_the_given_position(fresh: World) -> None:
    write(fresh, 2)
    rows = backup(fresh.url)
    write(fresh, 2)
    with following(fresh, 7) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "8\n"
        restore(fresh.url, rows)
        assert "the store was restored to position 4; the log continues there" in process.stderr.readline()
        write(fresh, 2)
        for position in range(5, 9):
            assert process.stdout.readline() == f"{position}\n"


def test_follow_from_a_position_that_the_store_has_not_reached(fresh: World) -> None:
    write(fresh, 2)
    with following(fresh, 1000) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == (
            "pubsub-db: position 1000 is beyond the newest position of the store, 4; the log continues there\n"
        )
        write(fresh, 1)
        assert [process.stdout.readline() for _ in range(2)] == ["5\n", "6\n"]
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")


@pytest.mark.parametrize("option", ["--since", "--limit"])
def test_numbers_beyond_64_bits_are_rejected(option: str, world: World) -> None:
    last = write(world, 1)[-1]
    for number in (2**63 - 1, 2**63, 10**23):
        world.run("log", option, number).failed(2, f"{option} from", str(number))
        world.run("log", option, number, "--follow").failed(2, f"{option} from", str(number))
    found = world.run("log", option, 2**63 - 2, "-f", "json").json
    assert bool(found) is (option == "--limit")
    both = world.run("log", "--since", last - 1, "--limit", 2**63 - 2, "-f", "json").json
    assert [each["position"] for each in both] == [last]
