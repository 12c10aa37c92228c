"""Which ends of processes, and which results of the audit, the planned faults explain. No I/O.

A SIGKILL may cut the record that was being written, and a replica with a full disk loses records. For both the audit
has the verdict ``unknown``, and bit 32. They are explained when the delivery falls into the time of such a fault of the
same replica (or, for an unpublished change, of a service or worker); a SIGKILL only when a journal is cut. Full disks
must show: without any ``unknown`` delivery the audit has missed the lost records. Lies must show, too: the audit names
what was received or sent and never committed. A link that the changelog lacks must be one that a liar sent. No fault
explains another bit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from _chaos.crew import Ended
from _chaos.plan import BROKER, DATABASE, DISK, LIE, Fault, Kind, Plan
from pubsub_lib.audit.report.summary import BITS, INCOMPLETE, Summary

MORE: Final = 3
"""Maximum number of the audit's faults that are named one by one."""
BEFORE: Final = 40.0
"""Seconds before a fault in which a delivery may be unknown because of it: the audit's grace, and the last mark."""
AFTER: Final = 30.0
"""Seconds after a fault in which a process has its next record, or notices that the database is back."""
CUTS_A_RECORD: Final = frozenset({"kill", "files", "clock", LIE})
"""Kinds with a SIGKILL of a process."""
REQUESTS: Final = "came while records of replicas were lost"
"""Of the audit's problem that hello requests are missing in the time of lost records."""
BEGINS: Final = "lack the begin of the run"
"""Of the audit's problem that the first records of replicas' runs are missing: a disk was full when they began."""
SUBSCRIPTIONS: Final = "lack the record of a subscription"
"""Of the audit's problem that a replica subscribed while its disk was full."""
HOLES: Final = "are lost between others"
"""Of the audit's problem that a worker, service or relay sent messages while its disk was full."""
ABSENT: Final = frozenset({"phantom_publish", "phantom_commit", "unknown"})
"""The audit's verdicts about a link that the changelog lacks."""
FALSE_CHANGES: Final = frozenset({"corrupt", "phantom", "phantom_publish", "phantom_commit", "foreign_history"})
"""The audit's verdicts about what a lie sent, and about what a replica showed until it was undone."""
CONTRADICTED: Final = "contradicted"
"""The audit's verdict about a publisher that a replica or a service found to be lying."""
NO_DATABASE: Final = 4
"""Of a service that cannot use the database at its start."""
FAILED: Final = 1
"""Of a worker or a replica that ends with an error of the library."""
WITHOUT_DATABASE: Final = frozenset({"StoreUnavailable", "StoreBusy"})
"""The errors of a worker or a replica that cannot use the database at its start."""
NO_BROKER: Final = 3
"""Of a service that cannot connect to the broker at its start."""


class Unknown(msgspec.Struct, frozen=True):
    """A delivery whose verdict is ``unknown``. ``at``: of the publication or commit, in Unix seconds."""

    name: str
    detail: str
    at: float


Place = tuple[str, int, int]
"""Topic, position and nonce of a link."""


class Lies(msgspec.Struct, frozen=True):
    """The lies of a run. ``struck``: their number. ``links``: all that liars sent. ``absent``: the audit's findings
    about links that the changelog lacks, with their verdicts.
    """

    struck: int = 0
    links: Collection[Place] = frozenset()
    absent: Sequence[tuple[Place, str]] = ()

    def unexplained(self, verdicts: Collection[str]) -> list[str]:
        """A sentence for each finding about a link that no liar sent, and for lies without any evidence among all
        ``verdicts`` of the audit. Nothing without a lie.
        """
        if not self.struck:
            return []
        found = [f"{verdict}: no liar sent {place}" for place, verdict in self.absent if place not in self.links]
        if len(found) > MORE:
            found = [*found[:MORE], f"no liar sent {len(found) - MORE} more links"]
        evidence = {*FALSE_CHANGES, CONTRADICTED} & {*verdicts}
        return found if evidence else [*found, f"{self.struck} lies left no evidence"]


NO_LIES: Final = Lies()


def unexplained_ends(ended: Iterable[Ended], plan: Plan, late: float) -> list[Ended]:
    """The ends of processes that no planned fault explains: a process may end while it cannot use the database, and a
    service that starts, while it cannot connect to the broker.

    ``late``: seconds by which the latest begin or end of a fault came after its time.
    """
    brokered = plan.cast.broker_users
    return [
        each
        for each in ended
        if not (_lacks_database(each) and _without(DATABASE, "cut_database", each, plan.faults, late))
        and not (
            each.status == NO_BROKER and each.name in brokered and _without(BROKER, "cut", each, plan.faults, late)
        )
    ]


def _lacks_database(ended: Ended) -> bool:
    """Whether the process reported that it cannot use the database. Status 1 alone may be any exception of Python."""
    return ended.status == NO_DATABASE or (ended.status == FAILED and ended.error in WITHOUT_DATABASE)


def _without(server: str, cut: Kind, ended: Ended, faults: Sequence[Fault], late: float) -> bool:
    """Whether a fault explains that the process could not use this server. ``cut``: the kind of fault between them."""
    return any(
        fault.at <= ended.at <= fault.end + late + AFTER
        and (fault.victim == server or (fault.kind, fault.victim) == (cut, ended.name))
        for fault in faults
    )


def unexplained_audit(
    summary: Summary,
    unknown: Sequence[Unknown],
    plan: Plan,
    began_at: float,
    late: float,
    left_out: Collection[str],
    lies: Lies = NO_LIES,
) -> list[str]:
    """A sentence for each result of the audit that no planned fault explains. ``began_at``: the start of the plan's
    time, in Unix seconds. ``late``: as of ``unexplained_ends``.
    """
    found = _faults(summary, FALSE_CHANGES if lies.struck else frozenset())
    found += lies.unexplained([count.verdict for count in summary.counts])
    executed = [fault for fault in plan.faults if fault.kind not in left_out]
    full = [fault for fault in executed if fault.kind == DISK]
    if full and not unknown:
        found.append(f"{len(full)} full disks lost records, and no delivery is unknown")
    if not summary.exit_code & INCOMPLETE:
        return found
    kills = [fault for fault in executed if fault.kind in CUTS_A_RECORD and fault.victim not in (DATABASE, BROKER)]
    cuts = [problem for problem in summary.problems if _is_cut(problem)]
    losing = full + kills if cuts else full
    strange = [each for each in unknown if not _explained(each, losing, plan, began_at, late)]
    found += [f"unknown ({each.detail}): {each.name} at {each.at:.3f}" for each in strange[:MORE]]
    if len(strange) > MORE:
        found.append(f"{len(strange) - MORE} more deliveries are unknown")
    apart = {"delivery", "store"} if lies.struck else {"delivery"}  # judged one by one
    found += [f"{count.count} of {count.of} unknown: {count.detail}" for count in summary.counts
              if count.verdict == "unknown" and count.of not in apart]  # fmt: skip
    lost_requests = [problem for problem in summary.problems if REQUESTS in problem]
    lost_records = [
        problem for problem in summary.problems if any(each in problem for each in (BEGINS, SUBSCRIPTIONS, HOLES))
    ]
    if not losing:
        found += lost_requests
    if not full:
        found += lost_records
    explicable = (*cuts, *lost_requests, *lost_records)
    found += [problem for problem in summary.problems if problem not in explicable]
    if len(cuts) > len(full) + len(kills):
        found.append(f"{len(cuts)} journals are cut by {len(kills)} kills and {len(full)} full disks")
    found += [f"{each} is silent" for each in summary.silent]
    found += [
        f"the window of the first record of {each or 'the domain'} is not closed" for each in summary.open_domains
    ]
    if not found and not unknown and not explicable and not any(verdict == "unknown" for _, verdict in lies.absent):
        found.append("evidence is incomplete, and the summary does not name the reason")
    return found


def unexplained_stops(stopped: Mapping[str, int], restarted: Collection[str]) -> list[str]:
    """A sentence for each replica whose missing deliveries the audit excuses because it stopped, although it never
    did: at the end it handles everything first.
    """
    return [
        f"{name} never stopped, but {number} deliveries are excused because it did"
        for name, number in sorted(stopped.items())
        if name not in restarted
    ]


def _faults(summary: Summary, explained: frozenset[str]) -> list[str]:
    """A sentence for the bits other than INCOMPLETE that not only explained verdicts set, and some of the faults behind
    them.
    """
    bits = summary.exit_code & ~INCOMPLETE
    bad = frozenset[str]().union(*(verdicts for bit, verdicts in BITS.items() if bit & bits)) - explained
    if not bits or (explained and not bad & {count.verdict for count in summary.counts}):
        return []
    shown = [each for each in summary.first if each["verdict"] in bad][:MORE]
    words = [" ".join(f"{name}={value}" for name, value in each.items() if value and name != "trail") for each in shown]
    return [f"exit code {summary.exit_code}", *words]


def _explained(unknown: Unknown, losing: Sequence[Fault], plan: Plan, began_at: float, late: float) -> bool:
    senders = {*plan.cast.service_names, *plan.cast.worker_names}
    match unknown.detail:
        case "gap":
            names = {unknown.name}
        case "gap of a publisher" | "unrecorded":
            names = senders
        case _:
            return False
    at = unknown.at - began_at
    return any(fault.victim in names and fault.at - BEFORE <= at <= fault.end + late + AFTER for fault in losing)


def _is_cut(problem: str) -> bool:
    return "ends in the middle of a record" in problem
