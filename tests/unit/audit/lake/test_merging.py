"""Which of two results of a window counts."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from pubsub_lib.audit.lake.addition import Addition
from pubsub_lib.audit.lake.merging import Outcome, merged
from pubsub_lib.audit.lake.tables import LIMIT, SCHEMAS, Tables
from tests.unit.audit.lake.additions import FIRST, LOST, OK, UNKNOWN, WINDOW, Result, addition, at, audited, run

TEN, NOON = "01 10:00", "01 12:00"


def add(*some: Addition) -> tuple[Tables, Outcome]:
    """The first of November after these additions, and the outcome of the last."""
    tables: Tables = {name: schema.empty_table() for name, schema in SCHEMAS.items()}
    outcome = Outcome()
    for each in some:
        tables, outcome = merged(tables, each.by_day()[0][FIRST], WINDOW)
    return tables, outcome


def verdicts(tables: Tables) -> dict[Any, int]:
    return {(each["window"], each["verdict"]): each["count"] for each in tables["verdict"].to_pylist()}


def audits(tables: Tables) -> list[str]:
    return sorted(each["audit"] for each in tables["coverage"].to_pylist())


def one(audit: str, results: dict[Any, int], *windows: str, **more: Any) -> Addition:
    domain = more.pop("audited", None) or audited(TEN, NOON)
    return addition([domain], dict.fromkeys(windows or (TEN,), results), audit=audit, **more)


def test_later_result_replaces_the_earlier_one() -> None:
    tables, outcome = add(one("a", {OK: 5, LOST: 1}, TEN, NOON), one("b", {OK: 6}, TEN, NOON))
    assert verdicts(tables) == {(at(TEN), "ok"): 6, (at(NOON), "ok"): 6}
    assert outcome == Outcome(added=2, replaced=2)
    assert audits(tables) == ["b"]
    assert tables["anomaly"].num_rows == 0
    assert tables["balance"]["expected"].to_pylist() == [6, 6]


def test_windows_that_the_later_audit_does_not_have_stay() -> None:
    tables, outcome = add(one("a", {LOST: 1}, TEN, "01 10:01"), one("b", {OK: 2}, "01 10:01", NOON))
    assert verdicts(tables) == {(at(TEN), "lost"): 1, (at("01 10:01"), "ok"): 2, (at(NOON), "ok"): 2}
    assert outcome == Outcome(added=2, replaced=1)
    assert audits(tables) == ["a", "b"]


def test_domains_are_apart() -> None:
    net = audited(TEN, NOON, run("cd"), domain="net")
    tables, outcome = add(one("a", {LOST: 1}), one("b", {OK: 2}, domain="net", audited=net))
    assert outcome == Outcome(added=1)
    assert tables["balance"]["domain"].to_pylist() == ["", "net"]


@pytest.mark.parametrize(
    ("runs", "kept"),
    [
        ([run("ab"), run("cd")], ""),
        ([run("ab")], "cd"),  # its journal was removed
        ([run("ab"), run("cd", first=7)], "cd"),  # the begin of its journal was removed
        ([run("ab"), run("cd"), run("ef")], ""),
    ],
)
def test_result_of_more_records_is_kept(runs: list[Any], kept: str) -> None:
    first = one("a", {OK: 5}, audited=audited(TEN, NOON, run("ab"), run("cd")))
    tables, outcome = add(first, one("b", {OK: 3}, audited=audited(TEN, NOON, *runs)))
    assert verdicts(tables) == {(at(TEN), "ok"): 5 if kept else 3}
    assert outcome == (Outcome(kept=1, lacking=kept) if kept else Outcome(added=1, replaced=1))
    assert audits(tables) == (["a", "b"] if kept else ["b"])


def test_run_that_ended_before_the_window_is_not_needed() -> None:
    early = run("cd", TEN, "01 11:00")
    first = one("a", {OK: 5}, TEN, NOON, audited=audited(TEN, NOON, run("ab"), early))
    tables, outcome = add(first, one("b", {OK: 3}, TEN, NOON))
    assert verdicts(tables) == {(at(TEN), "ok"): 5, (at(NOON), "ok"): 3}
    assert outcome == Outcome(added=1, replaced=1, kept=1, lacking="cd")
    assert audits(tables) == ["a", "b"]


def test_other_journals_of_the_same_time_are_not_mixed() -> None:
    tables, outcome = add(one("a", {LOST: 1}), one("b", {OK: 9}, audited=audited(TEN, NOON, run("xy"))))
    assert verdicts(tables) == {(at(TEN), "lost"): 1}
    assert outcome.foreign == {""}
    assert outcome.kept == 1


def test_open_window_is_replaced_and_replaces_no_closed_one() -> None:
    opened = audited(TEN, NOON, closed_until=at(TEN))
    more = audited(TEN, NOON, run("ab", first=9))
    tables, outcome = add(one("a", {OK: 1}, audited=opened), one("b", {OK: 2}, audited=more))
    assert (verdicts(tables), outcome) == ({(at(TEN), "ok"): 2}, Outcome(added=1, replaced=1))
    tables, outcome = add(one("a", {OK: 1}), one("b", {OK: 2}, audited=opened))
    assert (verdicts(tables), outcome) == ({(at(TEN), "ok"): 1}, Outcome(kept=1))


def test_findings_are_replaced_by_those_of_the_same_last_day() -> None:
    first = one("a", {OK: 1}, findings={("state", "zombie"): 2})
    tables, _ = add(first, one("b", {OK: 1}, findings={("state", "missing"): 1}))
    assert verdicts(tables) == {(at(TEN), "ok"): 1, (None, "missing"): 1}
    next_day = one("b", {OK: 1}, audited=audited(TEN, "02 10:00"))
    tables, _ = add(first, next_day)
    assert verdicts(tables) == {(at(TEN), "ok"): 1, (None, "zombie"): 2}
    follower = one("b", {OK: 1}, audited=audited(TEN, NOON, findings=False))
    tables, _ = add(first, follower)
    assert verdicts(tables) == {(at(TEN), "ok"): 1, (None, "zombie"): 2}


def without_store(audit: str, findings: dict[tuple[str, str], int]) -> Addition:
    return one(audit, {OK: 1}, audited=audited(TEN, NOON, store=False), findings=findings)


def test_audit_without_the_store_does_not_replace_what_one_with_it_found() -> None:
    first = one("a", {OK: 1}, findings={("state", "missing"): 3, ("state", "rot"): 1})
    tables, _ = add(first, without_store("b", {("state", "rot"): 2, ("publisher", "contradicted"): 1}))
    assert verdicts(tables) == {(at(TEN), "ok"): 1, (None, "missing"): 3, (None, "rot"): 2, (None, "contradicted"): 1}
    kinds = [row["verdict"] for row in tables["anomaly"].to_pylist()]
    assert sorted(kinds) == ["contradicted", "missing", "rot"]
    assert audits(tables) == ["a", "b"]
    tables, _ = add(first, without_store("b", {}), without_store("c", {}))
    assert verdicts(tables)[None, "missing"] == 3
    tables, _ = add(first, without_store("b", {}), one("c", {OK: 1}))
    assert verdicts(tables) == {(at(TEN), "ok"): 1}
    assert audits(tables) == ["c"]


def test_window_of_an_audit_with_the_store_is_kept() -> None:
    unpublished = ("lost", "", "writer", "")
    first = one("a", {OK: 5, unpublished: 1})
    later = one("b", {OK: 5}, audited=audited(TEN, NOON, store=False))
    tables, outcome = add(first, later)
    assert verdicts(tables) == {(at(TEN), "ok"): 5, (at(TEN), "lost"): 1}
    assert outcome == Outcome(kept=1, no_store=True)
    assert audits(tables) == ["a", "b"]
    tables, outcome = add(first, later, one("c", {OK: 6}))
    assert (verdicts(tables), outcome) == ({(at(TEN), "ok"): 6}, Outcome(added=1, replaced=1))
    opened = one("a", {OK: 1}, audited=audited(TEN, NOON, closed_until=at(TEN)))
    assert add(opened, later)[1] == Outcome(added=1, replaced=1)
    without = one("w", {OK: 4}, audited=audited(TEN, NOON, store=False))
    assert add(without, later)[1] == Outcome(added=1, replaced=1)


def test_findings_of_more_records_are_kept() -> None:
    first = one("a", {OK: 1}, audited=audited(TEN, NOON, run("ab"), run("cd")), findings={("state", "missing"): 3})
    tables, _ = add(first, one("b", {OK: 1}, findings={("state", "missing"): 1, ("store", "chain_broken"): 1}))
    assert (verdicts(tables)[None, "missing"], verdicts(tables)[None, "chain_broken"]) == (3, 1)
    tables, _ = add(without_store("a", {("state", "rot"): 1}), one("b", {OK: 1}))
    assert verdicts(tables) == {(at(TEN), "ok"): 1}, "the later audit has more evidence"


def test_follower_that_goes_on_keeps_its_problems_and_extends_its_time() -> None:
    begin = audited(TEN, "01 11:00", incomplete=True, problems=["x is gone"], findings=False)
    tables, outcome = add(one("f", {OK: 1}, audited=begin), one("f", {OK: 2}, NOON, audited=audited("01 11:00", NOON)))
    (row,) = tables["coverage"].to_pylist()
    assert (row["begin"], row["end"], row["incomplete"], row["problems"]) == (at(TEN), at(NOON), True, ["x is gone"])
    assert verdicts(tables) == {(at(TEN), "ok"): 1, (at(NOON), "ok"): 2}
    assert outcome == Outcome(added=1)


def test_idle_time_of_an_earlier_audit_stays_until_it_is_audited_again() -> None:
    idle = addition([audited("01 00:00", "01 09:00")], {}, audit="a")
    tables, _ = add(idle, one("b", {OK: 1}))
    assert audits(tables) == ["a", "b"]
    tables, _ = add(idle, one("b", {OK: 1}, audited=audited("01 00:00", NOON)))
    assert audits(tables) == ["b"]


def many(audit: str, window: str, results: dict[Result, int], domain: str = "") -> Addition:
    """An addition with an anomaly of its own for each delivery of a window, the last one first."""
    rows = [
        {"domain": domain, "window": at(window), "of": "delivery", "verdict": kind[0], "p": at(window) + number}
        for kind, count in results.items()
        for number in reversed(range(count))
    ]
    found = one(audit, results, window, domain=domain, audited=audited(TEN, NOON, domain=domain))
    return msgspec.structs.replace(
        found, tables={**found.tables, "anomaly": pa.Table.from_pylist(rows, schema=SCHEMAS["anomaly"])}
    )


def places(tables: Tables, domain: str = "", verdict: str = "lost") -> list[tuple[int, int]]:
    """Window and number of these anomalies."""
    return [
        (each["window"], each["p"] - each["window"])
        for each in tables["anomaly"].to_pylist()
        if (each["domain"], each["verdict"]) == (domain, verdict)
    ]


def test_day_keeps_the_first_anomalies_of_a_kind_and_domain() -> None:
    first, later = many("a", NOON, {LOST: LIMIT, UNKNOWN: 9}), many("a", TEN, {LOST: LIMIT - 400})
    tables, _ = add(first, many("net", TEN, {LOST: 7}, domain="net"), later)
    of_ten = [(at(TEN), number) for number in range(LIMIT - 400)]
    of_noon = [(at(NOON), number) for number in range(400)]
    assert places(tables) == of_ten + of_noon
    assert places(tables, verdict="unknown") == [(at(NOON), number) for number in range(9)]
    assert places(tables, "net") == [(at(TEN), number) for number in range(7)]
    assert verdicts(tables)[at(NOON), "lost"] == LIMIT, "counts are exact"
    assert add(later, first)[0]["anomaly"].select(["domain", "window", "p"]) == (
        add(first, later)[0]["anomaly"].select(["domain", "window", "p"])
    )


def test_replaced_window_gets_other_anomalies_also_beyond_the_limit() -> None:
    tables, _ = add(many("a", NOON, {LOST: LIMIT}), many("a", TEN, {LOST: LIMIT}), many("b", TEN, {LOST: 3}))
    assert places(tables) == [(at(TEN), number) for number in range(3)]
    tables, _ = add(many("a", TEN, {LOST: LIMIT}), many("a", NOON, {LOST: LIMIT}), many("b", NOON, {LOST: 3}))
    assert places(tables) == [(at(TEN), number) for number in range(LIMIT)]
