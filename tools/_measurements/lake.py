"""Measures an append to a full day of a lake, and the report of that day: ``tools/bench lake``.

The day is made without Spark: in each window every replica has deliveries, and each hop has the given number of
different latencies. The last window of the day is appended to the others. Prints processor seconds of this process, the
best of several rounds, and the size of the day's files.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from _command_line import Parser, positive

from _measurements.command import Finding, Findings, OptionsError
from pubsub_lib.audit.lake.addition import Addition, Audited, Run
from pubsub_lib.audit.lake.append import append
from pubsub_lib.audit.lake.days import report
from pubsub_lib.audit.lake.folder import prepare
from pubsub_lib.audit.lake.tables import DAY, SCHEMAS, begin_of, percentiles
from pubsub_lib.audit.settings import AuditSettings

THE_DAY: Final = date(2026, 11, 26)
HOPS: Final = ("commit_publish", "publish_receive", "publish_apply")
VALUES: Final = tuple(digits * 10**power for power in range(5) for digits in range(100, 1000))
"""Latencies from 0.1 ms to 10 s, with three digits as an audit has them."""


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--windows", type=positive, default=1440, metavar="N", help="of the day (%(default)s)")
    parser.add_argument("--replicas", type=positive, default=50, metavar="N", help="(%(default)s)")
    parser.add_argument(
        "--latencies", type=positive, default=600, metavar="N", help="different ones of a hop in a window (%(default)s)"
    )
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="(%(default)s)")


def measure(options: argparse.Namespace) -> Findings:
    """The findings: the append, the report, the size. Raises OptionsError."""
    if options.latencies > len(VALUES):
        raise OptionsError(f"--latencies {options.latencies} is more than {len(VALUES)}, the number of different ones")
    settings = AuditSettings(window=DAY // options.windows)
    appends, reports = [], []
    size = 0
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="pubsub-lake-") as scratch:
            lake = Path(scratch)
            prepare(lake, settings.window)
            append(lake, _addition("first", range(options.windows - 1), options, settings))
            last = _addition("last", range(options.windows - 1, options.windows), options, settings)
            appends.append(_seconds(partial(append, lake, last)))
            reports.append(_seconds(partial(report, lake, THE_DAY, THE_DAY, THE_DAY, since_begin=True)))
            size = sum(each.stat().st_size for each in lake.rglob("*.parquet"))
    yield Finding("append", f"append of a window to the day: {min(appends):.2f} s", {"seconds": min(appends)})
    yield Finding("report", f"report of the day: {min(reports):.2f} s", {"seconds": min(reports)})
    yield Finding("size", f"size of the day: {size / 1e6:.1f} MB", {"bytes": size})


def _seconds(action: Callable[[], object]) -> float:
    begin = time.process_time()
    action()
    return time.process_time() - begin


def _addition(audit: str, windows: range, options: argparse.Namespace, settings: AuditSettings) -> Addition:
    """The results of an audit of these windows, by their numbers in the day."""
    begin, rng = begin_of(THE_DAY), random.Random(audit)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("balance", "verdict", "anomaly", "latency")}
    for number in windows:
        key = {"domain": "", "window": begin + number * settings.window}
        sums = dict.fromkeys(SCHEMAS["balance"].names[3:], 0) | {"expected": 100, "delivered": 100}
        rows["balance"] += [{**key, "name": f"replica-{each}", **sums} for each in range(options.replicas)]
        count = 100 * options.replicas
        rows["verdict"].append({**key, "of": "delivery", "verdict": "ok", "detail": "", "blame": "", "count": count})
        for hop in HOPS:
            some = sorted(rng.sample(VALUES, options.latencies))
            counts = rng.choices(range(1, 20), k=options.latencies)
            ranks = percentiles(zip(some, counts, strict=True))
            whole = {"count": sum(counts), "negative": 0, "max": some[-1], "values": some, "counts": counts}
            rows["latency"].append({**key, "hop": hop, **whole, **ranks})
    tables = {name: pa.Table.from_pylist(some, schema=SCHEMAS[name]) for name, some in rows.items()}
    first, end = begin + windows.start * settings.window, begin + windows.stop * settings.window
    run = Run("replica-run", 1, begin, begin + DAY)
    return Addition(audit, "run", end, settings, [Audited("", first, end, end, [run], replicas=1)], tables)
