"""From effects to links: numbering, chaining, counts and digests (rules S1 and S2), without a database."""

from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core import digest
from pubsub_lib.core.model import EMPTY, Head, Point
from pubsub_lib.store.links import assemble
from pubsub_lib.store.rows import join
from pubsub_lib.store.verbs import Effect, Stored

TOPICS = st.sampled_from(["one", "two", "three"])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Stored], list[Effect]]:
    """Current objects, and the effects of a transaction on some of them."""
    stored: dict[str, Stored] = {}
    effects: list[Effect] = []
    for i in range(draw(st.integers(1, 8))):
        key, before = f"k{i}", None
        if draw(st.booleans()):
            fp = digest.fingerprint("t", key, i + 1, b"0")
            before = stored[key] = Stored("t", key, draw(TOPICS), i + 1, b"0", fp)
        match draw(st.sampled_from(["none", "set", "delete"])):
            case "set":
                effects.append(Effect("t", key, before, draw(TOPICS), b"1"))
            case "delete" if before is not None:
                effects.append(Effect("t", key, before, before.topic, None))
    return stored, effects


def heads(objects: dict[str, Stored], point: Point) -> dict[str, Head]:
    found: dict[str, Head] = {}
    for each in objects.values():
        head = found.get(each.topic, Head(point, 0, 0))
        found[each.topic] = Head(point, head.count + 1, digest.add(head.digest, each.fingerprint))
    return found


@given(worlds())
def test_assemble_chains_links_from_old_heads_to_new_heads(world: tuple[dict[str, Stored], list[Effect]]) -> None:
    stored, effects = world
    before, tx_prev = heads(stored, Point(20, 7)), Point(20, 7)
    point = Point(20 + sum(effect.changes for effect in effects), 8)
    links, rows = assemble(effects, tx_prev, point, before, "me", 1.5)
    versions = sorted(change.version for link in links for change in link.changes)
    assert versions == list(range(21, point.position + 1))
    after = dict(stored)
    for row in rows.created + rows.changed:
        fp = join(row["fp_lo"], row["fp_hi"])
        assert fp == digest.fingerprint("t", row["object_key"], row["version"], row["value"])
        after[row["object_key"]] = Stored("t", row["object_key"], row["topic"], row["version"], row["value"], fp)
    for _, key in rows.removed:
        del after[key]
    expected = heads(after, point)
    for link in links:
        head = expected.get(link.topic, Head(point, 0, 0))
        assert (link.count, link.digest) == (head.count, head.digest)
        assert link.prev == before.get(link.topic, EMPTY).point
        assert (link.point, link.tx_prev, link.tx_links, link.origin) == (point, tx_prev, len(links), "me")
    untouched = set(before) - {link.topic for link in links}
    assert all(expected[topic].digest == before[topic].digest for topic in untouched)


def test_assemble_of_a_move_deletes_before_it_creates() -> None:
    moved = Effect("t", "k", Stored("t", "k", "old", 3, b"1", 9), "new", b"1")
    links, _ = assemble([moved], Point(3, 1), Point(5, 2), {"old": Head(Point(3, 1), 1, 9)}, "", 0.0)
    assert [(link.topic, link.changes[0].action, link.changes[0].version) for link in links] == [
        ("old", "delete", 4),
        ("new", "create", 5),
    ]
