"""``pubsub-db diff``: the result from the changelog must equal the difference of two snapshots."""

import random

from pubsub_lib import Store
from pubsub_lib.cli.commands.diff import differences
from tests.unit.cli.world import World

State = dict[tuple[str, str], tuple[str, int, bytes]]


def state(store: Store) -> State:
    return {(each.table, each.key): (each.topic, each.version, each.value) for each in store.objects()}


def expected(before: State, after: State) -> list[tuple[str, str, str, str, str]]:
    found = []
    for table, key in sorted(before.keys() | after.keys()):
        old, new = before.get((table, key)), after.get((table, key))
        if old is None and new is not None:
            found.append(("created", table, key, "", new[0]))
        elif new is None and old is not None:
            found.append(("deleted", table, key, old[0], ""))
        elif old is not None and new is not None and old[1] != new[1]:
            # An object that was deleted and created again in between counts as changed or moved.
            found.append(("changed" if old[0] == new[0] else "moved", table, key, old[0], new[0]))
    return found


def test_diff_equals_the_difference_of_two_snapshots(sqlite_url: str, rng: random.Random) -> None:
    with Store(sqlite_url) as store:
        states: dict[int, State] = {0: {}}
        for number in range(60):
            with store.transaction() as tx:
                for key in rng.sample("abcdef", rng.randint(1, 3)):
                    if rng.random() < 0.3:
                        tx.delete("t", key, missing_ok=True)
                    else:
                        tx.set("t", key, number, topic=rng.choice(["x", "y"]))
            states[store.read_heads([]).store.position] = state(store)
        for _ in range(60):
            first, second = sorted(rng.choices(list(states), k=2))
            found = differences(store, first, second, None)
            shown = [(each.change, each.table, each.key, each.old_topic, each.topic) for each in found]
            assert shown == expected(states[first], states[second]), (first, second)
            for each in found:
                if each.topic:
                    assert (each.topic, each.version, each.value) == states[second][each.table, each.key]


def test_between_two_positions(world: World) -> None:
    with world.open() as store:
        with store.transaction() as tx:
            tx.set("t", "stays", 1, topic="a")
            tx.set("t", "moves", 1, topic="a")
            tx.set("t", "goes", 1, topic="b")
        first = store.read_heads([]).store.position
        with store.transaction() as tx:
            tx.set("t", "moves", 2, topic="b")
            tx.delete("t", "goes")
            tx.create("t", "comes", {"x": 1}, topic="a")
        second = store.read_heads([]).store.position
    rows = [tuple(each.values()) for each in world.run("diff", first, second, "-f", "json").json]
    assert [(*row[:5], row[6]) for row in rows] == [
        ("created", "t", "comes", "", "a", {"x": 1}),
        ("deleted", "t", "goes", "b", "", None),
        ("moved", "t", "moves", "a", "b", 2),
    ]
    mine = [
        (each["change"], each["key"]) for each in world.run("diff", first, second, "--topic", "a", "-f", "json").json
    ]
    assert mine == [("created", "comes"), ("deleted", "moves")]
    shown = world.run("diff", first, second, "-c", "change", "-c", "key")
    assert shown.code == 0
    assert shown.out.splitlines()[3].replace(" ", "") == "|created|comes|"


def test_no_difference(world: World) -> None:
    with world.open() as store:
        head = store.read_heads([]).store.position
    assert world.run("diff", head, head, "-f", "json").json == []
    output = world.run("diff", head, head)
    assert (output.code, output.out) == (0, "")
    assert f"nothing differs between the positions {head} and {head}" in output.err


def test_invalid_and_trimmed_positions_are_rejected(fresh: World) -> None:
    with fresh.open() as store:
        for value in range(4):
            with store.transaction() as tx:
                tx.set("t", "k", value)
        store.trim(keep_links=2)
    fresh.run("diff", 3, 2).failed(2, "between 3 and 2", "the store's head, 4")
    fresh.run("diff", 0, 5).failed(2, "the store's head, 4")
    fresh.run("diff", 1, 4).failed(1, "trimmed up to position 2")
    assert [each["version"] for each in fresh.run("diff", 2, 4, "-f", "json").json] == [4]
    assert fresh.run("diff", 1, 1, "-f", "json").json == []
    output = fresh.run("diff", "one", 4)
    assert output.code == 2
    assert "invalid int value: 'one'" in output.err
