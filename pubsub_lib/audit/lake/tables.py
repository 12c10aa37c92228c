"""The tables of a lake: their schemas, days, and percentiles of counted values (docs/audit.md, "Days")."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pyarrow as pa

from pubsub_lib.audit.report.summary import PERCENTILES, Balance
from pubsub_lib.audit.settings import SECOND

VERSION: Final = 1
"""The version of the schemas. A reader refuses a newer one."""
DAY: Final = 86_400 * SECOND
LIMIT: Final = 1000
"""Maximum number of anomalies of a kind, a domain and a day. Counts are exact."""
KIND: Final = ("domain", "of", "verdict")
ORDER: Final = ("p", "position", "name", "uuid", "topic", "sequence", "table", "key")
"""The first anomalies of a kind by these columns are kept; null comes last."""

_KEY: Final = (("domain", pa.string()), ("window", pa.int64()))
_TEXTS: Final = ("of", "verdict", "detail", "blame")
_ANOMALY: Final = (
    *((name, pa.string()) for name in (*_TEXTS, "name", "kind", "service", "uuid", "topic")),
    *((name, pa.int64()) for name in ("sequence", "position", "nonce")),
    ("table", pa.string()), ("key", pa.string()),
    *((name, pa.int64()) for name in (
        "version", "stored_version", "versions_behind", "behind", "p", "detected", "settled", "skew",
    )),
)  # fmt: skip
_RUN: Final = pa.struct([("run", pa.string()), ("first", pa.int64()), ("begin", pa.int64()), ("end", pa.int64())])
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "window": pa.schema([*_KEY, ("closed", pa.bool_()), ("exit_code", pa.int64()), ("audit", pa.string())]),
    "balance": pa.schema([*_KEY, ("name", pa.string()), *((sums, pa.int64()) for sums in Balance.__struct_fields__)]),
    "verdict": pa.schema([*_KEY, *((name, pa.string()) for name in _TEXTS), ("count", pa.int64())]),
    "anomaly": pa.schema([*_KEY, *_ANOMALY]),
    "latency": pa.schema([
        *_KEY, ("hop", pa.string()),
        *((name, pa.int64()) for name in ("count", "negative", *PERCENTILES, "max")),
        ("values", pa.list_(pa.int64())), ("counts", pa.list_(pa.int64())),
    ]),
    "coverage": pa.schema([
        ("domain", pa.string()), ("audit", pa.string()), ("command", pa.string()),
        *((name, pa.int64()) for name in ("audited", "begin", "end")),
        ("incomplete", pa.bool_()), ("problems", pa.list_(pa.string())),
        ("store", pa.bool_()), ("replicas", pa.int64()), ("listed", pa.int64()), ("findings", pa.bool_()),
        *((name, pa.int64()) for name in ("grace", "bound", "silence")), ("strict", pa.bool_()),
        ("runs", pa.list_(_RUN)),
    ]),
}  # fmt: skip
"""Table -> schema. ``window``: the begin of a window; null: a finding without a time. ``coverage`` has a row for each
audit that has a part in the day; ``first``: the number of the first record that was read of a run.
"""
KEYED: Final = tuple(name for name in SCHEMAS if name != "coverage")
"""The tables with a column ``window``."""

Tables = Mapping[str, pa.Table]
"""The tables of one day."""

_EPOCH: Final = date(1970, 1, 1)


def day_of(micros: int) -> date | None:
    """The day (UTC) of a time; None outside of the calendar."""
    try:
        return _EPOCH + timedelta(days=micros // DAY)
    except OverflowError:
        return None


def begin_of(day: date) -> int:
    """The first microsecond of a day."""
    return (day - _EPOCH).days * DAY


def today() -> date:
    """The present day in UTC."""
    return datetime.now(UTC).date()


def percentiles(counts: Iterable[tuple[int, int]]) -> dict[str, int | None]:
    """The percentiles by nearest rank of values and their counts; None without any value."""
    ordered = sorted(counts)
    total = sum(count for _, count in ordered)
    found: dict[str, int | None] = dict.fromkeys(PERCENTILES)
    upto = 0
    for value, count in ordered:
        upto += count
        for name, rank in PERCENTILES.items():
            if found[name] is None and upto * 1000 >= total * rank:
                found[name] = value
    return found
