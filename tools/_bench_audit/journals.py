"""Journals of a run without faults with many messages, written column by column, without an object for each record.

Four services publish in turn; one replica follows all topics, receives each message 400 µs after it was sent, and
applies it. No message is lost, late, or out of order, so every verdict except ``ok`` is an error of the audit.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY
from pubsub_lib.journal.rows import SCHEMA, Row, arrow_schema, as_dict

SERVICES: Final = 4
TOPICS: Final = 100
BEGIN: Final = 1_700_000_000_000_000
STEP: Final = 20  # microseconds between two messages
WAY: Final = 400
HOT: Final = 0.9
"""The hot topic's share of the traffic."""
_FILE: Final = 1_000_000  # records
_GROUP: Final = 250_000
_UUIDS: Final = [f"{index:x}" * 32 for index in range(1, SERVICES + 1)]
_ROUND: Final = SERVICES * TOPICS  # messages in which each service publishes once to each topic, without a hot topic


def whole(size: int) -> int:
    """The number of messages that are written for a size: the same number for each topic and service."""
    return -(-size // _ROUND) * _ROUND


def journals(cache: Path, size: int, *, hot: bool, log: Callable[[str], None]) -> Path:
    """The folder with the journals of ``size`` messages (rounded up to whole rounds). They are written when missing."""
    folder = cache / f"{size}{'-hot' if hot else ''}"
    if folder.exists():
        return folder
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    last = whole(size)
    _few(unfinished, last)
    for begin in range(0, last, _FILE):
        log(f"writing journals: {begin:,} of {last:,} messages")
        end = min(begin + _FILE, last)
        for service in range(SERVICES):
            _write(unfinished / f"s{service}-{begin}.parquet", begin, end, hot, service)
        _write(unfinished / f"r-{begin}.parquet", begin, end, hot, None)
    unfinished.rename(folder)
    return folder


def _few(folder: Path, messages: int) -> None:
    """The other records: open, interest, sync, and close."""
    rows = []
    end = BEGIN + messages * STEP + 60_000_000
    for service in range(SERVICES):
        who: dict[str, Any] = {"side": "service", "name": f"s{service}", "host": "h1", "run": f"run-s{service}"}
        rows.append(Row(**who, number=1, kind="open", wall=BEGIN - 1000, mono=0))
        rows.append(Row(**who, number=messages // SERVICES + 2, kind="close", wall=end, mono=end - BEGIN))
    who = {"side": "replica", "name": "r", "host": "h1", "run": "run-r"}
    rows += [
        Row(**who, number=1, kind="open", wall=BEGIN - 1000, mono=0),
        Row(**who, number=2, kind="interest", wall=BEGIN - 900, mono=100),
        Row(**who, number=3, kind="sync_begin", sequence=1, cause="started", wall=BEGIN - 800, mono=200),
        Row(**who, number=4, kind="sync_end", sequence=1, outcome="full", wall=BEGIN - 700, mono=300),
        Row(**who, number=messages + 5, kind="close", wall=end, mono=end - BEGIN),
    ]
    pq.write_table(pa.Table.from_pylist([as_dict(row) for row in rows], schema=_schema()), folder / "few.parquet")


def _write(path: Path, begin: int, end: int, hot: bool, service: int | None) -> None:
    schema = _schema()
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for first in range(begin, end, _GROUP):
            if service is None:
                index = pa.array(range(first, min(first + _GROUP, end)), pa.int64())
            else:
                index = pa.array(range(first + service, min(first + _GROUP, end), SERVICES), pa.int64())
            writer.write_table(pa.Table.from_pydict(_columns(index, hot, service), schema=schema))


def _schema() -> pa.Schema:
    return arrow_schema().with_metadata({SCHEMA_KEY: str(SCHEMA)})


def _rest(values: pa.Array, by: int) -> pa.Array:
    return pc.subtract(values, pc.multiply(pc.divide(values, by), by))


def _words(indices: pa.Array, words: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(indices, pa.array(words)).cast(pa.string())


def _columns(index: pa.Array, hot: bool, service: int | None) -> dict[str, pa.Array]:
    """All columns of the messages with these numbers, as the service sent or as the replica applied them."""
    number = len(index)

    def same(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), number)

    text, integer = pa.string(), pa.int64()
    turn, place = pc.divide(index, _ROUND), pc.divide(_rest(index, _ROUND), SERVICES)
    if hot:
        many = round(TOPICS * HOT)
        is_hot = pc.less(place, many)
        topic = pc.if_else(is_hot, 0, pc.subtract(place, many - 1))
        sequence = pc.add(pc.if_else(is_hot, pc.add(pc.multiply(turn, many), place), turn), 1)
    else:
        is_hot = same(False, pa.bool_())
        topic, sequence = place, pc.add(turn, 1)
    sender = _rest(index, SERVICES)
    # The services publish to a topic one after another; then the other topics have their turns, unless it is hot.
    step = pc.if_else(pc.or_(is_hot, pc.greater(sender, 0)), 1, _ROUND - SERVICES + 1)
    position = pc.add(index, 1)
    prev = pc.max_element_wise(pc.subtract(position, step), 0)
    mixed = pc.multiply(position, -7046029254386353131)  # overflows; any odd factor gives a valid hash here
    sent = pc.add(pc.multiply(index, STEP), BEGIN)
    changes = pa.StructArray.from_arrays(
        [
            same("lport", text), pc.cast(_rest(index, 100_000), text), position, same("set", text), mixed,
            same(100, integer), same(None, integer),
        ],
        ["table", "key", "version", "action", "hash", "size", "before"],
    )  # fmt: skip
    zero = same(0, integer)
    there = {
        "side": "replica" if service is None else "service",
        "name": "r" if service is None else f"s{service}",
        "run": "run-r" if service is None else f"run-s{service}",
        "outcome": "applied" if service is None else "sent",
    }
    return {
        **{name: same(value, text) for name, value in there.items()},
        **{name: same("", text) for name in ("cause", "peer")},
        **dict.fromkeys(("count", "digest"), zero),
        **{name: same(1, integer) for name in ("part", "parts")},
        "host": same("h1", text),
        "kind": same("data", text),
        "number": pc.add(index, 5) if service is None else pc.add(pc.divide(index, SERVICES), 2),
        "wall": pc.add(sent, WAY) if service is None else sent,
        "mono": pc.subtract(sent, BEGIN),
        "service": _words(sender, [f"s{each}" for each in range(SERVICES)]),
        "uuid": _words(sender, _UUIDS),
        "topic": _words(topic, [f"tenant-{each}" for each in range(TOPICS)]),
        "sequence": sequence,
        "position": position,
        "nonce": pc.shift_right(mixed, 24),
        "prev_position": prev,
        "prev_nonce": zero,
        "hash": mixed,
        "size": same(300, integer),
        "written": pc.subtract(sent, 50),
        "changes": pa.ListArray.from_arrays(pa.array(range(number + 1), pa.int32()), changes),
    }
