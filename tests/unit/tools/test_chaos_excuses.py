"""Which ends of processes and which results of the audit the planned faults of ``tools/chaos`` explain."""

import io
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from _chaos.__main__ import main
from _chaos.crew import Ended
from _chaos.excuses import Lies, Place, Unknown, unexplained_audit, unexplained_ends, unexplained_stops
from _chaos.messages import Failed, WorkerTask
from _chaos.plan import BROKER, DATABASE, Cast, Fault, Kind, Plan

from pubsub_lib.audit.report.summary import CORRUPT, DIVERGENCE, INCOMPLETE, LATE, LOSS, Count, Summary
from pubsub_lib.errors import StoreUnavailable

BEGAN = 1_000_000.0
CUT = (
    "/x/7c7a-000001.journal ends in the middle of a record: 5 records read, and the last 9 bytes were not; its writer "
    "was killed or its disk was full, or the file is an incomplete copy: then copy it again"
)
DAMAGED = "/x/7c7a-000001.journal was damaged after it was written: 5 records read, and the last 9 bytes were not"


def plan(*faults: Fault) -> Plan:
    return Plan(1, 600.0, Cast(server=True), faults)


def summary(exit_code: int = INCOMPLETE, **fields: Any) -> Summary:
    empty = Summary(exit_code, {}, [], [], [], [], [], [])
    return msgspec.structs.replace(empty, **fields)


def unexplained(of: Summary, unknown: list[Unknown], *faults: Fault, left_out: tuple[str, ...] = ()) -> list[str]:
    return unexplained_audit(of, unknown, plan(*faults), BEGAN, 0.0, left_out)


LINK, OTHER = ("topic-1", 7, 99), ("topic-1", 7, 98)
"""Topic, position and nonce of a link that a liar sent, and of another one."""
KILL = Fault(300.0, "kill", "replica-1", 2.0)
KILL_ELSEWHERE = Fault(590.0, "kill", "worker-4", 1.0)
FULL_DISK = Fault(300.0, "disk", "replica-1", 2.0)
NAMED = "unknown (gap): replica-1 at 1000301.000"


def test_audit_without_a_fault_needs_no_explanation() -> None:
    assert unexplained(summary(0), []) == []


@pytest.mark.parametrize(
    ("fault", "unknown", "explained"),
    [
        (KILL, Unknown("replica-1", "gap", BEGAN + 301.0), True),
        (KILL, Unknown("replica-1", "gap", BEGAN + 270.0), True),
        (KILL, Unknown("replica-1", "gap", BEGAN + 200.0), False),
        (KILL, Unknown("replica-1", "gap", BEGAN + 340.0), False),
        (KILL, Unknown("replica-2", "gap", BEGAN + 301.0), False),
        (KILL, Unknown("replica-1", "no sync", BEGAN + 301.0), False),
        (KILL, Unknown("replica-1", "gap of a publisher", BEGAN + 301.0), False),
        (Fault(300.0, "kill", "worker-2", 2.0), Unknown("replica-1", "gap of a publisher", BEGAN + 301.0), True),
        (Fault(300.0, "kill", "service-1", 2.0), Unknown("replica-1", "unrecorded", BEGAN + 301.0), True),
        (FULL_DISK, Unknown("replica-1", "gap", BEGAN + 301.0), True),
        (FULL_DISK, Unknown("replica-1", "gap", BEGAN + 200.0), False),
        (FULL_DISK, Unknown("replica-1", "gap", BEGAN + 340.0), False),
        (FULL_DISK, Unknown("replica-2", "gap", BEGAN + 301.0), False),
        (Fault(300.0, "pause", "replica-1", 2.0), Unknown("replica-1", "gap", BEGAN + 301.0), False),
    ],
)
def test_unknown_delivery_is_explained_by_a_fault_that_loses_records_there(
    fault: Fault, unknown: Unknown, explained: bool
) -> None:
    assert (unexplained(summary(problems=[CUT]), [unknown], fault, KILL_ELSEWHERE) == []) is explained


@pytest.mark.parametrize("kind", ["kill", "files", "clock"])
def test_a_kill_that_cut_no_journal_explains_no_unknown_delivery(kind: Kind) -> None:
    fault, unknown = Fault(300.0, kind, "replica-1", 2.0), [Unknown("replica-1", "gap", BEGAN + 301.0)]
    assert unexplained(summary(), unknown, fault) == [NAMED]
    assert unexplained(summary(problems=[CUT]), unknown, fault) == []


def test_fault_that_was_left_out_explains_nothing() -> None:
    unknown = [Unknown("replica-1", "gap", BEGAN + 301.0)]
    left = unexplained(summary(problems=[CUT]), unknown, KILL, KILL_ELSEWHERE, left_out=("kill",))
    assert left == [NAMED, "1 journals are cut by 0 kills and 0 full disks"]
    assert unexplained(summary(), unknown, FULL_DISK, left_out=("disk",)) == [NAMED]


def test_a_kill_explains_one_cut_journal_and_no_damaged_one() -> None:
    assert unexplained(summary(problems=[CUT]), [], KILL) == []
    assert unexplained(summary(problems=[CUT, CUT]), [], KILL) == ["2 journals are cut by 1 kills and 0 full disks"]
    assert unexplained(summary(problems=[CUT, DAMAGED]), [], KILL) == [DAMAGED]


def test_no_fault_explains_a_loss_or_a_late_change() -> None:
    lost = {"verdict": "lost", "name": "replica-1", "topic": "t", "blame": "", "trail": ["x"]}
    found = unexplained(summary(LOSS | INCOMPLETE, first=[lost, {"verdict": "late"}], problems=[CUT]), [], KILL)
    assert found == ["exit code 33", "verdict=lost name=replica-1 topic=t"]
    assert unexplained(summary(LATE), [], KILL) == ["exit code 8"]


def test_incomplete_evidence_of_another_kind_is_not_explained() -> None:
    assert unexplained(summary(silent=["writer service-1"]), [], KILL) == ["writer service-1 is silent"]
    assert unexplained(summary(open_domains=[""]), [], KILL) == [
        "the window of the first record of the domain is not closed"
    ]
    unlisted = Count("", "state", "unknown", "an older listing", "", 3)
    assert unexplained(summary(counts=[unlisted]), [], KILL) == ["3 of state unknown: an older listing"]
    assert unexplained(summary(), [], KILL) == ["evidence is incomplete, and the summary does not name the reason"]


def test_many_unknown_deliveries_are_not_named_one_by_one() -> None:
    unknown = [Unknown("replica-1", "no sync", BEGAN + number) for number in range(10)]
    found = unexplained(summary(), unknown)
    assert found[:3] == [f"unknown (no sync): replica-1 at 100000{number}.000" for number in range(3)]
    assert found[3:] == ["7 more deliveries are unknown"]


@pytest.mark.parametrize(
    ("ended", "explained"),
    [
        (Ended("worker-1", 11.0, 1, "the database is unavailable", "StoreUnavailable"), True),
        (Ended("replica-1", 11.0, 1, "another transaction holds the lock", "StoreBusy"), True),
        (Ended("worker-1", 11.0, 1, "AssertionError: the number always changes"), False),
        (Ended("worker-1", 11.0, 1, "the tables are newer", "SchemaError"), False),
        (Ended("worker-1", 11.0, 70, "the number always changes", "AssertionError"), False),
        (Ended("service-1", 40.0, 4, "the database is unavailable"), True),
        (Ended("service-1", 50.0, 4, "the database is unavailable"), False),
        (Ended("service-1", 9.0, 4, "the database is unavailable"), False),
        (Ended("service-1", 11.0, 70, "internal error"), False),
        (Ended("service-1", 11.0, -6, "Too many open files"), False),
        (Ended("worker-2", 101.0, 1, "the database is unavailable", "StoreUnavailable"), True),
        (Ended("worker-1", 101.0, 1, "the database is unavailable", "StoreUnavailable"), False),
    ],
)
def test_process_may_end_only_while_it_cannot_use_the_database(ended: Ended, explained: bool) -> None:
    faults = plan(Fault(10.0, "kill", DATABASE, 2.0), Fault(100.0, "cut_database", "worker-2", 2.0))
    assert unexplained_ends([ended], faults, 0.0) == ([] if explained else [ended])


@pytest.mark.parametrize(
    ("error", "status", "failed"),
    [
        (StoreUnavailable("no server"), 1, Failed("worker-1: no server", "StoreUnavailable")),
        (PermissionError("no folder"), 1, Failed("worker-1: no folder", "PermissionError")),
        (AssertionError("no commit"), 70, Failed("worker-1: AssertionError: no commit", "AssertionError")),
        (KeyError("done"), 70, Failed("worker-1: KeyError: 'done'", "KeyError")),
    ],
)
def test_process_reports_the_type_of_its_error_and_a_fault_of_the_program_has_its_own_status(
    error: Exception, status: int, failed: Failed, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []

    def fail(*_: object) -> None:
        raise error

    task = WorkerTask("worker-1", "file", (), 1, 1, 1.0, "")
    monkeypatch.setattr("sys.stdin", io.StringIO(msgspec.json.encode(task).decode() + "\n"))
    monkeypatch.setattr("_chaos.__main__.signal.signal", lambda *_: None)
    monkeypatch.setattr("_chaos.__main__.send", sent.append)
    monkeypatch.setattr("_chaos.__main__.worker.run", fail)
    assert (main(), sent) == (status, [failed])


@pytest.mark.parametrize(
    ("ended", "explained"),
    [
        (Ended("service-1", 11.0, 3, "the NATS server is unavailable"), True),
        (Ended("service-1", 60.0, 3, "the NATS server is unavailable"), False),
        (Ended("service-1", 11.0, 4, "the database is unavailable"), False),
        (Ended("worker-1", 11.0, 3, "no worker connects to it"), False),
        (Ended("service-2", 101.0, 3, "the NATS server is unavailable"), True),
        (Ended("service-1", 101.0, 3, "the NATS server is unavailable"), False),
    ],
)
def test_service_may_end_only_while_it_cannot_use_the_broker(ended: Ended, explained: bool) -> None:
    faults = (Fault(10.0, "kill", BROKER, 2.0), Fault(100.0, "cut", "service-2", 2.0))
    brokered = Plan(1, 600.0, Cast(driver="nats"), faults)
    assert unexplained_ends([ended], brokered, 0.0) == ([] if explained else [ended])
    if ended.status == 3:
        assert unexplained_ends([ended], plan(*faults), 0.0) == [ended], "ZeroMQ has no broker"


@pytest.mark.parametrize("server", [BROKER, DATABASE])
def test_a_killed_server_cuts_no_journal(server: str) -> None:
    killed = Fault(300.0, "kill", server, 2.0)
    assert unexplained(summary(problems=[CUT]), [], killed) == ["1 journals are cut by 0 kills and 0 full disks"]


def test_faults_that_came_late_explain_later_ends_and_unknown_deliveries() -> None:
    ended = Ended("service-1", 50.0, 4, "the database is unavailable")
    assert unexplained_ends([ended], plan(Fault(10.0, "kill", DATABASE, 2.0)), 8.0) == []
    unknown = [Unknown("replica-1", "gap", BEGAN + 340.0)]
    assert unexplained_audit(summary(), unknown, plan(FULL_DISK), BEGAN, 8.0, ()) == []


def test_lost_records_explain_hello_requests_in_their_time_and_no_others() -> None:
    hidden = "13 answered hello requests (first: 045ad7db) came while records of replicas were lost, so …"
    others = "13 answered hello requests (first: 045ad7db) are in no replica's journal, so …"
    unknown = [Unknown("replica-1", "gap", BEGAN + 301.0)]
    assert unexplained(summary(problems=[hidden]), [], KILL) == [hidden]
    assert unexplained(summary(problems=[hidden, CUT]), [], KILL) == []
    assert unexplained(summary(problems=[hidden]), unknown, FULL_DISK) == []
    assert unexplained(summary(problems=[others]), unknown, FULL_DISK) == [others]


@pytest.mark.parametrize(
    "begin",
    [
        "the journals of 1 replicas' runs (first: 14fe871f of replica-5) lack the begin of the run with …",
        "1 replicas' runs (first: 14fe871f of replica-5) lack the record of a subscription: …",
        "9 records of 1 writers', services' and relays' runs (first: 0a1b2c3d of api-1) are lost between others, so …",
    ],
)
def test_a_full_disk_explains_missing_records_of_a_run(begin: str) -> None:
    unknown = [Unknown("replica-1", "gap", BEGAN + 301.0)]
    assert unexplained(summary(problems=[begin]), unknown, FULL_DISK) == []
    assert unexplained(summary(problems=[begin, CUT]), [], KILL) == [begin]


@pytest.mark.parametrize("exit_code", [0, INCOMPLETE])
def test_full_disks_that_the_audit_does_not_see_are_a_failure(exit_code: int) -> None:
    of = summary(exit_code, problems=[CUT] if exit_code else [])
    assert unexplained(of, [], FULL_DISK, KILL) == ["1 full disks lost records, and no delivery is unknown"]
    assert unexplained(of, [], FULL_DISK, KILL, left_out=("disk",)) == []


def test_only_a_replica_that_was_started_again_may_have_stopped() -> None:
    stopped = {"replica-2": 7, "replica-1": 5}
    assert unexplained_stops(stopped, ["replica-1", "replica-2"]) == []
    assert unexplained_stops(stopped, ["replica-1"]) == [
        "replica-2 never stopped, but 7 deliveries are excused because it did"
    ]


def lied(
    *verdicts: str, exit_code: int = CORRUPT, lies: int = 1, absent: Sequence[tuple[Place, str]] = ()
) -> list[str]:
    """What no lie explains of these verdicts, and of these links of the table of the store."""
    counts = [Count("", "delivery", each, "", "", 1) for each in verdicts]
    counts += [Count("", "store", each, "", "", 1) for _, each in absent]
    fault = Fault(300.0, "lie", "service-1", 2.0, "worker")
    all_lies = Lies(lies, {LINK} if lies else set(), absent)
    return unexplained_audit(summary(exit_code, counts=counts), [], plan(fault), BEGAN, 0.0, (), all_lies)


def test_lies_explain_what_was_never_committed_and_no_other_fault() -> None:
    assert lied("ok", "corrupt", "phantom") == []
    assert lied("ok", "phantom", "foreign_history", exit_code=CORRUPT | DIVERGENCE) == []
    assert lied("ok", "phantom", "misrouted") == ["exit code 2"]
    assert lied("phantom", "lost", exit_code=LOSS | CORRUPT) == ["exit code 3"]
    assert lied("ok", "phantom", lies=0) == ["exit code 2"]


def test_lies_without_evidence_fail_the_run() -> None:
    assert lied("ok", exit_code=0) == ["1 lies left no evidence"]
    assert lied("ok", "contradicted", exit_code=0) == []
    assert lied("ok", exit_code=0, lies=0) == []


@pytest.mark.parametrize("verdict", ["phantom_publish", "phantom_commit", "unknown"])
def test_link_that_the_changelog_lacks_must_be_one_of_a_liar(verdict: str) -> None:
    code = INCOMPLETE if verdict == "unknown" else CORRUPT
    assert lied("ok", "contradicted", exit_code=code, absent=[(LINK, verdict)]) == []
    assert lied("ok", "contradicted", exit_code=code, absent=[(LINK, verdict), (OTHER, verdict)]) == [
        f"{verdict}: no liar sent ('topic-1', 7, 98)"
    ]
    assert lied("ok", exit_code=code, absent=[(LINK, verdict)], lies=0) != []


def test_many_links_of_no_liar_are_not_named_one_by_one() -> None:
    found = lied("ok", absent=[((f"topic-{number}", 7, 98), "phantom_publish") for number in range(9)])
    assert len(found) == 4
    assert found[-1] == "no liar sent 6 more links"
