"""Summaries built by hand, with a given number of anomalies, and with hostile texts in every text field."""

from typing import Any

from pubsub_lib.audit.report.labels import HOPS, VERDICTS
from pubsub_lib.audit.report.summary import (
    CATEGORIES,
    HOP_FAULTS,
    LAST_SEEN,
    Balance,
    Count,
    Detector,
    Losses,
    Summary,
)

BEGIN = 1_790_000_000_000_000
SECOND = 1_000_000
HOSTILE = '</script><script>window.harmed = 1</script><img src=x onerror="window.harmed = 1"><b>&amp;\''
OF = {
    "phantom": "strays", "misrouted": "strays", "unpublished": "store", "phantom_publish": "store",
    "phantom_commit": "store", "chain_broken": "store", "missing": "state", "stale": "state", "wrong_value": "state",
    "zombie": "state", "foreign_history": "state", "diverged": "state", "rot": "state",
}  # fmt: skip
FAULTS = [kind for kind in VERDICTS if kind not in ("ok", "excused", "pending", "behind")]


def trail(name: str, number: int) -> list[dict[str, Any]]:
    """The records from the commit to the service's sending, which is the last known one."""
    steps = ("store", "committed"), ("writer", "handed"), ("service", "taken"), ("service", "sent")
    return [
        {
            "side": side, "name": name, "host": f"host of {name}", "run": "ab" * 16, "number": number + place,
            "kind": "data", "outcome": outcome, "cause": "net-1", "wall": BEGIN + number * SECOND + 700 * place,
            "uuid": "cd" * 16, "sequence": number, "position": 7 * number, "objects": objects(name), "more": 2,
        }
        for place, (side, outcome) in enumerate(steps)
    ]  # fmt: skip


def objects(text: str) -> list[dict[str, Any]]:
    first = {"table": "ports", "key": f"p1 {text}", "action": "set", "version": 8, "before": 7}
    return [first, {"table": "ports", "key": "p2", "action": "delete", "version": 9}]


def runs(number: int, text: str) -> list[dict[str, Any]]:
    """Every third run was killed, and every third goes on."""
    return [
        {
            "domain": "", "side": ("replica", "service")[place % 2], "name": f"replica {place % 9} {text}",
            "host": f"h {text}", "run": f"{place:032x}", "began": BEGIN + place * 10 * SECOND if place % 5 else None,
            "last": BEGIN + place * 10 * SECOND + 5 * SECOND, "end": ("killed", "closed", "")[place % 3],
        }
        for place in range(number)
    ]  # fmt: skip


def anomaly(kind: str, number: int, text: str) -> dict[str, Any]:
    each = {
        "domain": "", "of": OF.get(kind, "delivery"), "verdict": kind, "name": f"replica {text}", "topic": f"t {text}",
        "uuid": "cd" * 16, "sequence": number, "position": 7 * number, "detail": "middle", "blame": "wire",
        "p": BEGIN + number * SECOND, "skew": -1500, "trail": trail(text, number),
    }  # fmt: skip
    return {**each, "table": "ports", "key": f"key {text}"} if each["of"] == "state" else each


def hop(service: str, name: str, **changed: Any) -> dict[str, Any]:
    """A row of the table ``tree``: 10 messages were delivered. ``changed``: other columns."""
    nothing = dict.fromkeys(("arrivals", "came", "left", "current"))
    counts = {**dict.fromkeys((*CATEGORIES, *HOP_FAULTS, *LAST_SEEN), 0), "expected": 10, "delivered": 10}
    roles = {"service_role": "service", "name_role": "replica"}
    return {"domain": "", "service": service, "name": name, **roles, **nothing, **counts, **changed}


def tree(text: str) -> list[dict[str, Any]]:
    """Two relays in a row, and 30 replicas below the second, of which one came from the first."""
    upper, lower = f"relay 1 {text}", f"relay 2 {text}"
    moved = {"service_role": "relay", "lost": 3, "on_wire": 3, "arrivals": 2, "came": BEGIN}
    stays = {"service_role": "relay", "arrivals": 1, "came": BEGIN + SECOND, "current": True}
    return [
        hop(f"api {text}", upper, name_role="relay"),
        hop(upper, lower, name_role="relay", **stays),
        hop(upper, f"replica 0 {text}", **moved, left=BEGIN + SECOND, current=False),
        *(hop(lower, f"replica {place} {text}", **stays) for place in range(30)),
        hop(f"api {text}", text, name_role="polling", service_role="service"),
    ]


def summary(anomalies: int, text: str = "<b>&", problems: int = 2) -> Summary:
    """A summary with anomalies of every kind in turn. It may name more than an audit does: the page limits them."""
    kinds = [FAULTS[number % len(FAULTS)] for number in range(anomalies)]
    first = [anomaly(kind, number + 1, text) for number, kind in enumerate(kinds)]
    hops = [
        {"domain": "", "name": "", "hop": hop, "count": 10**6, "negative": place, "p50": 900 + 300 * place,
         "p95": 2100 + 500 * place, "p99": 5_000, "p999": 21_000, "max": 1_234_567 + place}
        for place, hop in enumerate(HOPS)
    ]  # fmt: skip
    parts = range(50)
    return Summary(
        exit_code=63,
        balance={"": Balance(1_000_000 + anomalies, 1_000_000 - 37, 7, anomalies, 10, 15, 5)},
        counts=[Count("", OF.get(kind, "delivery"), kind, "", "", kinds.count(kind)) for kind in dict.fromkeys(kinds)]
        + [Count("", "delivery", "ok", "", "", 1_000_000 - 30)],
        skews=[{"domain": "", "replica_host": f"h1 {text}", "publisher_host": "h2", "skew": -4_998_000}],
        silent=[f"run {text}"],
        open_domains=[],
        syncs=[
            {"domain": "", "name": f"replica {text}", "cause": f"expired {text}", "outcome": "delta", "syncs": 40,
             "needless": 3, "bytes": 123_456, "longest": 40_000}
        ] * anomalies,
        first=first,
        problems=[f"{text}.journal cannot be read"] * problems,
        audited=BEGIN + 7200 * SECOND,
        latencies=hops,
        slowest=[{**hops[3], "name": f"replica {text} {place}"} for place in range(anomalies)],
        detector=[Detector("", anomalies, anomalies // 2, 40, 3, 123_456)],
        over_time=[
            {"slice": BEGIN + 18 * number * SECOND, "expected": 5000, "settled": 4900 + number % 100, "delivered": 4990,
             "lost": 40 if 90 < number < 110 else 0, "pending": 0, "excused": 5, "unknown": 5 if number == 30 else 0,
             "repaired": 7 if number == 120 else 0}
            for number in range(200)
        ],
        losses=[
            Losses((), 0, 0, [place % 7 * anomalies for place in parts], [place % 5 * anomalies for place in parts]),
            *[
                Losses(
                    ("", f"r {text}", "cd" * 16, f"t{one} {text}"), 1, 900,
                    [place * one % 5 for place in parts], [place % 3 for place in parts],
                )
                for one in range(12)
            ],
        ],
        timeline=[
            {"domain": "", "name": f"replica {number % 9} {text}", "topic": f"t {text}", "outcome": "delta",
             "cause": ("expired", "start", text)[number % 3], "began": BEGIN + number * 3 * SECOND,
             "took": 40_000 * (number % 50), "count": 7, "size": 900, "needless": number % 11 == 0}
            for number in range(1000)
        ],
        runs=runs(min(anomalies, 400), text),
        run_count=anomalies,
        tree=tree(text),
        hop_count=400,
        keys=[{"domain": "", "topic": f"t {text}", "table": "ports", "key": f"{place} {text}", "anomalies": 900 - place}
              for place in range(20)],
    )  # fmt: skip
