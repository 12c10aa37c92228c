"""The results of an audit by day."""

from typing import Any

import msgspec
import pyarrow as pa

from pubsub_lib.audit.lake.tables import SCHEMAS
from pubsub_lib.audit.settings import AuditSettings
from tests.unit.audit.lake.additions import (
    FIRST,
    LATE,
    LOST,
    OK,
    SECOND_DAY,
    THIRD,
    WINDOW,
    addition,
    at,
    audited,
    run,
)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return list(table.to_pylist())


def test_windows_are_in_the_day_in_which_they_begin() -> None:
    one = addition([audited("01 10:00", "03 01:00")], {"01 23:59": {OK: 2}, "02 00:00": {LOST: 1, LATE: 1}})
    days, outside = one.by_day()
    assert (list(days), outside) == ([FIRST, SECOND_DAY, THIRD], 0)
    assert [(each["window"], each["exit_code"]) for each in rows(days[FIRST]["window"])] == [(at("01 23:59"), 0)]
    assert [each["exit_code"] for each in rows(days[SECOND_DAY]["window"])] == [1 + 8]
    assert [each["delivered"] for each in rows(days[FIRST]["balance"])] == [2]
    assert rows(days[THIRD]["window"]) == []
    spans = [[(each["begin"], each["end"]) for each in rows(tables["coverage"])] for tables in days.values()]
    assert spans == [[(at("01 10:00"), at("02 00:00"))], [(at("02 00:00"), at("03 00:00"))],
                     [(at("03 00:00"), at("03 01:00"))]]  # fmt: skip
    for tables in days.values():
        assert {name: table.schema for name, table in tables.items()} == SCHEMAS


def test_findings_without_a_time_are_in_the_last_day_of_their_domain() -> None:
    domains = [audited("01 10:00", "02 10:00"), audited("01 10:00", "03 00:00", domain="net")]
    one = addition(domains, {"01 10:00": {OK: 1}}, findings={("state", "zombie"): 2})
    days, _ = one.by_day()
    assert list(days) == [FIRST, SECOND_DAY]  # the end of net is the begin of a day, which is not audited
    assert [each["verdict"] for each in rows(days[FIRST]["verdict"])] == ["ok"]
    assert [(each["verdict"], each["window"]) for each in rows(days[SECOND_DAY]["verdict"])] == [("zombie", None)]
    assert [each["key"] for each in rows(days[SECOND_DAY]["anomaly"])] == ["p1"]
    assert [each["findings"] for each in rows(days[SECOND_DAY]["coverage"])] == [True, True]


def test_windows_after_the_last_closed_one_are_open() -> None:
    until = audited("01 10:00", "01 11:00", closed_until=at("01 10:30") + WINDOW)
    days, _ = addition([until], {"01 10:30": {OK: 1}, "01 10:31": {OK: 1}}).by_day()
    assert [each["closed"] for each in rows(days[FIRST]["window"])] == [True, False]


def test_strict_audit_counts_reordered_messages() -> None:
    one = addition([audited("01 10:00", "01 11:00")], {"01 10:00": {("reordered", "", "", "message"): 1}})
    assert rows(one.by_day()[0][FIRST]["window"])[0]["exit_code"] == 0
    strict = msgspec.structs.replace(one, settings=AuditSettings(strict=True))
    assert rows(strict.by_day()[0][FIRST]["window"])[0]["exit_code"] == 16


def test_coverage_names_the_runs_of_the_day_only() -> None:
    runs = run("a", "01 10:00", "01 12:00"), run("b", "01 11:00", "02 10:00")
    days, _ = addition([audited("01 10:00", "02 10:00", *runs)], {}).by_day()
    names = [[each["run"] for each in rows(tables["coverage"])[0]["runs"]] for tables in days.values()]
    assert names == [["a", "b"], ["b"]]


def test_wrong_clocks_make_no_endless_list_of_days() -> None:
    wrong = msgspec.structs.replace(audited("01 10:00", "02 10:00"), begin=0)
    days, _ = addition([wrong], {"01 10:00": {OK: 1}}).by_day()
    assert list(days) == [FIRST, SECOND_DAY]
    one = addition([audited("01 10:00", "01 11:00")], {"01 10:00": {OK: 1}})
    far = {name: table.set_column(1, "window", pa.array([2**62] * len(table), pa.int64())) for name, table in
           one.tables.items()}  # fmt: skip
    days, outside = msgspec.structs.replace(one, tables=far).by_day()
    assert (list(days), outside) == ([FIRST], 1)


def test_days_before_the_idle_time_count_as_audited_only_with_a_window() -> None:
    begin = audited("01 10:00", "05 10:00", idle_since=at("04 10:00"))
    days, _ = addition([begin, audited("05 09:00", "05 10:00", domain="net")], {"02 10:00": {OK: 1}}).by_day()
    assert [(str(day)[-2:], tables["coverage"]["domain"].to_pylist()) for day, tables in days.items()] == [
        ("02", [""]), ("04", [""]), ("05", ["", "net"])
    ]  # fmt: skip
    (row,) = rows(days[SECOND_DAY]["coverage"])
    assert (row["begin"], row["end"]) == (at("02 00:00"), at("03 00:00"))
    far = msgspec.structs.replace(begin, idle_since=2**62)
    assert [str(day)[-2:] for day in addition([far], {"02 10:00": {OK: 1}}).by_day()[0]] == ["02", "05"]


def test_domain_is_not_audited_on_the_days_of_another_one() -> None:
    spans = [audited("01 10:00", "05 10:00", domain=domain, idle_since=at("05 00:00")) for domain in ("", "net")]
    days, _ = addition(spans, {"02 10:00": {OK: 1}}, domain="net").by_day()
    assert days[SECOND_DAY]["coverage"]["domain"].to_pylist() == ["net"]
