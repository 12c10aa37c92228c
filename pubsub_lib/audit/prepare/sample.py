"""Generated journals for the audit that prepares the archive: a small run with faults of most kinds.

An audit skips the steps for faults that the journals do not have. The classes of a skipped step would not be in the
archive. Times are in microseconds.
"""

from pathlib import Path
from typing import Any, Final

from pubsub_lib.audit.settings import SECOND
from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY
from pubsub_lib.journal.rows import SCHEMA, ChangeRow, Kind, Row, Side, arrow_schema, as_dict

MESSAGES: Final = 60
"""Messages of each topic."""
_BEGIN: Final = 1_000_000 * SECOND
_END: Final = 300 * SECOND
_TOPICS: Final = ("even", "odd")
_TABLE: Final = "object"
_SKEW: Final = -2000
"""The difference of the clocks of the two hosts."""


class _Run:
    """The records of one run of a participant, numbered in their order."""

    def __init__(self, side: Side, name: str, host: str, skew: int = 0) -> None:
        self.rows: list[Row] = []
        self._about: dict[str, Any] = {"side": side, "name": name, "host": host, "run": f"{name}-{side}"}
        self._skew = skew
        self._number = 0

    def record(self, at: int, kind: Kind, **columns: Any) -> None:
        """``at``: microseconds since the begin of the run."""
        self._number += 1
        time: dict[str, Any] = {"number": self._number, "wall": _BEGIN + at + self._skew, "mono": at}
        self.rows.append(Row(**self._about, **time, kind=kind, **columns))

    def skip(self) -> None:
        """A record that is missing in the journal."""
        self._number += 1


def write(folder: Path) -> None:
    """Write the journals as one Parquet file into the folder, which must exist. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema().with_metadata({SCHEMA_KEY: str(SCHEMA).encode()})
    rows = [as_dict(row) for row in _rows()]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "sample.parquet", compression="zstd")


def _rows() -> list[Row]:
    writer, service = _Run("writer", "writer", "near"), _Run("service", "service", "near")
    replica, polling = _Run("replica", "replica", "far", _SKEW), _Run("replica", "polling", "far", _SKEW)
    store = _Run("store", "store", "near")
    runs = (writer, service, replica, polling, store)
    for each in runs:
        each.record(0, "open")
    for each, cause in ((replica, ""), (polling, "poll")):
        for topic in _TOPICS:
            each.record(SECOND, "interest", topic=topic, cause=cause)
            _sync(each, 2 * SECOND, topic, "full", 0)
    _hello(replica, service, 3 * SECOND)
    for index in range(MESSAGES):
        for place, topic in enumerate(_TOPICS):
            link = _link(index, place, topic)
            at = (5 + index) * SECOND + place
            store.record(_END, "data", **link, written=_BEGIN + at, outcome="committed", cause="service")
            _publish(index, link, at, writer, service, replica)
            polled = {**link, "uuid": "polled", "sequence": link["position"], "service": "polling"}
            polling.record(at + 900, "data", **polled, outcome="applied")
    _objects(replica, store)
    for each in (writer, service, replica, polling):
        for minute in range(1, 5):
            each.record(_END + minute * SECOND, "mark")
    for each in (writer, service, polling):
        each.record(2 * _END, "close")
    return [row for each in runs for row in sorted(each.rows, key=lambda row: row.number)]


def _link(index: int, place: int, topic: str) -> dict[str, Any]:
    """The message ``index`` of a topic; the topics take turns."""
    position = len(_TOPICS) * index + place + 1
    before = max(0, position - len(_TOPICS))
    change = ChangeRow(_TABLE, f"{topic}-{index % 7}", position, "set", 1000 + position, 9, None)
    return {
        "topic": topic, "position": position, "nonce": position, "prev_position": before, "prev_nonce": before,
        "hash": 5000 + position, "size": 9, "part": 1, "parts": 1, "changes": (change,),
    }  # fmt: skip


def _publish(index: int, link: dict[str, Any], at: int, writer: _Run, service: _Run, replica: _Run) -> None:
    """The way of a message from the writer to the replica; some numbers have a fault."""
    if index == 9:
        return  # committed, but never published
    writer.record(at + 100, "data", **link, outcome="handed", cause="service")
    service.record(at + 200, "data", **link, outcome="taken", cause="service")
    sent = {**link, "service": "service", "uuid": "uuid", "sequence": index + 1}
    service.record(at + 300, "data", **sent, outcome="sent")
    if index == 12:
        replica.skip()
    if index in (15, 20):
        if index == 20:  # lost, and repaired by a sync
            _sync(replica, at + SECOND, link["topic"], "full", link["position"])
        return
    replica.record(at + 400, "data", **sent, outcome="applied")
    if index == 25:
        replica.record(at + 500, "data", **sent, outcome="old")  # repeated
    if index == 30:
        phantom = {**sent, "uuid": "unknown", "hash": 1}
        replica.record(at + 600, "data", **phantom, outcome="dropped")
    if index == 35:
        older = _link(index - 14, link["position"] % 2, link["topic"])
        replica.record(at + 700, "data", **{**sent, "sequence": 1, **older}, outcome="applied")  # an old object again


def _sync(run: _Run, at: int, topic: str, outcome: str, position: int) -> None:
    number = at // SECOND
    run.record(at, "sync_begin", topic=topic, sequence=number, cause="expired")
    point = {"position": position, "nonce": position}
    run.record(at + 100, "sync_end", topic=topic, sequence=number, outcome=outcome, **point, count=1, size=9)


def _hello(replica: _Run, service: _Run, at: int) -> None:
    """A hello request and its reply, which measure the difference of the clocks."""
    replica.record(at, "ask", peer="nonce")
    service.record(at + 100, "hello", peer="nonce", uuid="uuid")
    replica.record(at + 200, "hello", peer="nonce", uuid="uuid")


def _objects(replica: _Run, store: _Run) -> None:
    """The listings of the store and of the replica, which has one wrong object."""
    head = len(_TOPICS) * MESSAGES
    for number, topic in enumerate(_TOPICS):
        last = {f"{topic}-{index % 7}": _link(index, number, topic) for index in range(MESSAGES)}
        for run, at in ((replica, _END - 10), (store, _END + 10)):
            listing = {"topic": topic, "sequence": number, "position": head, "nonce": head}
            for key, link in last.items():
                (change,) = link["changes"]
                value = change.hash + (run is replica and key == "odd-3")
                listed = ChangeRow(_TABLE, key, change.version, "set", value, 9, None)
                run.record(at, "object", **listing, changes=(listed,))
            run.record(at, "listing", **listing, count=len(last))
    store.record(_END + 20, "changelog", prev_position=0, position=head, nonce=head)
