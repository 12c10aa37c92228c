"""The intervals that decide an item are those of the definitions, also when clocks were set between syncs."""

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_lib.audit.rules.base_tables import FOREVER, SYNCS
from pubsub_lib.audit.rules.deciding_intervals import histories, with_intervals
from pubsub_lib.audit.settings import AuditSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORIES, ITEMS = 60, 20
TIMES, POSITIONS, RUNS = 12, 8, 4
SETTINGS = AuditSettings(window=10, grace=2, bound=1, silence=10)
GAP = "struct<lo:bigint,lo_wall:bigint,hi:bigint,hi_wall:bigint>"
INTERVALS = (
    "domain string, run string, topic string, name string, polls boolean, host string, first_wall bigint,"
    f"last_wall bigint, over boolean, gaps array<{GAP}>, begin bigint, end bigint, opened bigint, drop_wall bigint,"
    f"until bigint, succeeded bigint, last_sign bigint, syncs {SYNCS}"
)
FIRST = "struct<run:string,number:bigint>"
ASKED = (
    f"item bigint, domain string, topic string, polls boolean, name string, p bigint, position bigint, first {FIRST},"
    "publisher_host string, skew bigint, written bigint, undone boolean"
)
SKEWS = "domain string, replica_host string, publisher_host string, since bigint, until bigint, skew bigint"
Fields = dict[str, Any]


def some_intervals(rng: random.Random, name: str) -> list[Fields]:
    """Intervals of a replica, of everything or of a topic. Their times and positions are in no order."""
    found = []
    for number in range(rng.randrange(1, RUNS)):
        run, first_wall = f"{name}-{number}", rng.randrange(3)
        for begin in rng.sample(range(20), rng.randrange(1, 4)):
            opened = rng.randrange(TIMES)
            syncs: list[Fields] = [
                {
                    "number": begin + place,
                    "position": rng.randrange(POSITIONS),
                    "wall": rng.randrange(TIMES),
                    "began": rng.randrange(TIMES),
                    "since": rng.choice((0, 0, rng.randrange(POSITIONS))),
                    "full": rng.random() < 0.5,
                }
                for place in range(rng.randrange(5))
            ]
            if rng.random() < 0.2:  # as that of a continued part
                base = {"number": begin, "position": begin, "wall": opened, "began": None, "since": FOREVER}
                syncs.insert(0, {**base, "full": False})
            lo = rng.randrange(20)
            gaps = [{"lo": lo, "lo_wall": 0, "hi": lo + 2, "hi_wall": 0}] if rng.random() < 0.2 else []
            over, dropped = rng.random() < 0.5, rng.random() < 0.3
            end = begin + rng.randrange(1, 5) if dropped else FOREVER
            found.append({
                "domain": "d", "run": run, "topic": rng.choice(("", "t")), "name": name, "polls": False, "host": "h",
                "first_wall": first_wall, "last_wall": rng.randrange(TIMES), "over": over, "gaps": gaps, "begin": begin,
                "end": end, "opened": opened, "drop_wall": rng.randrange(TIMES) if dropped else None, "until": end,
                "succeeded": rng.choice((None, rng.randrange(TIMES))), "last_sign": begin, "syncs": syncs,
            })  # fmt: skip
    return found


def some_items(rng: random.Random, name: str, intervals: Sequence[Fields]) -> list[Fields]:
    return [
        {
            "item": number, "domain": "d", "topic": "t", "polls": False, "name": name,
            "p": rng.randrange(-SETTINGS.reach, TIMES), "position": rng.randrange(1, POSITIONS),
            "first": {"run": rng.choice(intervals)["run"], "number": rng.randrange(25)} if rng.random() < 0.5 else None,
            "publisher_host": "", "skew": 0, "written": rng.choice((0, rng.randrange(TIMES))),
            "undone": rng.random() < 0.3,
        }
        for number in range(ITEMS)
    ]  # fmt: skip


def expected(item: Fields, intervals: Sequence[Fields]) -> Fields | None:
    """By the definitions: the intervals of a replica that were open at the horizon, with their syncs until then."""
    horizon, position = item["p"] + SETTINGS.reach, item["position"]
    committed = min(item["p"], item["written"] or item["p"])
    every = sorted(intervals, key=order)
    there = [
        {**each, "in_time": [sync for sync in each["syncs"] if sync["wall"] <= horizon]}
        for each in every
        if each["opened"] <= horizon
    ]
    if not there:
        return None
    based = [each for each in there if each["in_time"]]
    below = [
        each
        for each in based
        if proved(each["in_time"][0]) < position
        or replaced(item, each["in_time"][0], each["syncs"])
        or doubtful(item, each)
    ]
    in_time = [
        each
        for each in below
        if each["in_time"][0]["since"] == FOREVER
        or each["in_time"][0]["began"] <= committed + SETTINGS.grace
        or doubtful(item, each)
    ]
    asked = in_time or below
    first = item["first"] or {"run": None, "number": 0}
    received = [each for each in there if each["run"] == first["run"] and each["begin"] < first["number"]]
    ends = [each["last_wall"] if each["over"] else FOREVER for each in there]
    ends = [end if each["drop_wall"] is None else each["drop_wall"] for each, end in zip(there, ends, strict=True)]
    return {
        "asked": seen(asked[-1], item) if asked else None,
        "of_receipt": seen(received[-1], item) if received else None,
        "returned": returned(item, [each for each in every if order(each) > order(asked[-1])]) if asked else None,
        "covered_later": bool(asked) and covered_later(item, asked[-1], based),
        "back": is_back(item, there, asked[-1]) if asked else False,
        "doubtful": bool(asked) and doubtful(item, asked[-1]) and proved(asked[-1]["in_time"][0]) >= position,
        "based": bool(based),
        "ended": None if based else all(end <= horizon for end in ends),
    }


def proved(sync: Fields) -> int:
    """Up to where a first sync shows that the replica has the commits: a delta only as far as it knew them before."""
    whole = sync["full"] or sync["since"] == FOREVER
    return int(sync["position"] if whole else min(sync["since"], sync["position"]))


def order(interval: Fields) -> tuple[int, str, int]:
    return interval["first_wall"], interval["run"], interval["begin"]


def returned(item: Fields, later: Sequence[Fields]) -> tuple[int, int] | None:
    """Wall and begin of the earliest first sync, at any time, of those that have the item."""
    since = min(item["p"], item["written"] or item["p"]) - SETTINGS.grace
    firsts = [each["syncs"][0] for each in later if each["syncs"] and each["syncs"][0]["since"] != FOREVER]
    having = [sync for sync in firsts if proved(sync) >= item["position"] and sync["wall"] >= since]
    return min(((sync["wall"], sync["began"]) for sync in having), default=None)


def covered_later(item: Fields, asked: Fields, based: Sequence[Fields]) -> bool:
    """Whether the first sync of an interval after that in question has the item."""
    later = [each for each in based if order(each) > order(asked)]
    since = min(item["p"], item["written"] or item["p"]) - SETTINGS.grace
    firsts = [each["in_time"][0] for each in later if each["in_time"][0]["since"] != FOREVER]
    return any(proved(sync) >= item["position"] and sync["wall"] >= since for sync in firsts)


def doubtful(item: Fields, interval: Fields) -> bool:
    """Whether the record of an earlier sync than that of the base may be lost, and the item came after it."""
    base = interval["in_time"][0]
    lost = any(gap["hi"] > interval["begin"] and gap["lo"] < base["number"] for gap in interval["gaps"])
    committed = min(item["p"], item["written"] or item["p"])
    return base["since"] != FOREVER and lost and committed >= interval["opened"] - SETTINGS.grace


def is_back(item: Fields, there: Sequence[Fields], asked: Fields) -> bool:
    """Whether the replica came back in time after the interval in question, stayed, and read nothing."""
    p, bound = item["p"], SETTINGS.bound
    later = [each for each in there if order(each) > order(asked)]
    for each in later:
        end = each["drop_wall"] if each["drop_wall"] is not None else each["last_wall"] if each["over"] else FOREVER
        stays = end > p + SETTINGS.reach or end >= max(p, each["opened"]) + bound
        if stays and each["opened"] <= p + min(bound, 2 * SETTINGS.grace):
            return not any(other["in_time"] for other in later)
    return False


def replaced(item: Fields, sync: Fields, syncs: Sequence[Fields]) -> bool:
    """Whether a sync read another history, which a restore replaced before the item was committed."""
    committed = min(item["p"], item["written"] or item["p"])
    back = any(
        each["number"] > sync["number"]
        and each["position"] < item["position"]
        and each["wall"] <= item["p"] + SETTINGS.reach
        for each in syncs
    )
    return bool(sync["position"] >= item["position"] and sync["wall"] < committed - SETTINGS.grace and back)


def seen(interval: Fields, item: Fields) -> Fields:
    horizon, position, syncs = item["p"] + SETTINGS.reach, item["position"], interval["syncs"]
    covering = [each for each in syncs if each["since"] < position <= each["position"]]
    covering = [each for each in covering if not replaced(item, each, syncs)]
    in_time = [each for each in covering if each["wall"] <= horizon]
    later = sorted((each["wall"], each["began"]) for each in covering if each["wall"] > horizon)
    having = [each["wall"] for each in covering if each["wall"] > horizon and (each["full"] or item["undone"])]
    return {
        **{name: interval[name] for name in ("run", "begin", "end", "until", "opened", "drop_wall")},
        "succeeded": interval["succeeded"] if interval["drop_wall"] is None else None,
        "continued": bool(interval["syncs"]) and interval["syncs"][0]["since"] == FOREVER,
        "read": min((each["wall"] for each in in_time if each["full"] or item["undone"]), default=None),
        "began": in_time[0]["began"] if in_time else None,
        "belated": (min(having, default=None), later[0][1]) if later else None,
    }


@pytest.mark.long
def test_intervals_and_syncs_that_decide_an_item_are_those_of_the_definitions(
    little: "SparkSession", rng: random.Random
) -> None:
    intervals = {name: some_intervals(rng, name) for name in map(str, range(HISTORIES))}
    items = {name: some_items(rng, name, found) for name, found in intervals.items()}
    of_all = little.createDataFrame([row for found in intervals.values() for row in found], INTERVALS)
    topics = little.createDataFrame([("d", "t"), ("d", "other")], "domain string, topic string")
    rows = with_intervals(
        little.createDataFrame([row for found in items.values() for row in found], ASKED),
        histories(of_all, topics),
        of_all,
        little.createDataFrame([], SKEWS),
        SETTINGS,
    ).collect()
    assert len({(row["name"], row["item"]) for row in rows}) == len(rows)
    found = {(row["name"], row["item"]): row.asDict(recursive=True) for row in rows}
    kinds = set()
    for name, some in items.items():
        for item in some:
            right, row = expected(item, intervals[name]), found.get((name, item["item"]))
            assert (row is None) == (right is None)
            if right is None or row is None:
                continue
            assert {each: plain(row[each]) for each in right} == right, (item, intervals[name])
            kinds |= {each for each, value in right.items() if value}
            kinds |= {each for each, value in (right["asked"] or {}).items() if value}
            every = (each["syncs"] for each in intervals[name])
            kinds |= {"replaced" for syncs in every for sync in syncs if replaced(item, sync, syncs)}
    known = {"asked", "of_receipt", "returned", "based", "ended", "read", "belated", "continued", "replaced"}
    assert kinds >= known | {"covered_later", "back", "doubtful", "succeeded"}


def plain(value: Any) -> Any:
    """The columns of an interval that the definitions name, or the times of a sync."""
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"wall", "began"}:
        return value["wall"], value["began"]
    times = value["belated"]["wall"], value["belated"]["began"]
    shown = {name: each for name, each in value.items() if name != "ended"}
    return {**shown, "belated": None if times == (None, None) else times}
