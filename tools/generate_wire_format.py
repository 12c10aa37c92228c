#!/usr/bin/env python3
"""Write docs/wire-format.md from the codec and the recorded frames: ``tools/generate_wire_format.py [--check]``.

Every byte of the hexdumps is from a recorded frame; names, types and defaults of the fields are from the codec's types.
With ``--check`` nothing is written; the exit status is 1 when the page is stale.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from _generated import ROOT, wrapped, write_or_check

from pubsub_lib.core import codec
from pubsub_lib.core.limits import MAX_HELLO_TOPICS, Limits
from pubsub_lib.core.sequencer import HELLO_TOPICS

PAGE = ROOT / "docs" / "wire-format.md"
FRAMES = ROOT / "tests" / "unit" / "core" / "frames"

DUMPS: Final = {
    "data-1.4": "A message: one link",
    "run-1.4": "Parts of a run: a link that is too large for one frame",
    "hello-1.4": "A hello, broadcast",
    "hello-reply-1.4": "A hello reply: the answer to one replica",
}
ABOUT: Final = {
    "data-1.4": "The first message of this publisher on `tenant-1`. The link leads the topic from position 3 to 7\nand "
    "sets one object. The numbers are chosen so that each is different.",
    "run-1.4": "Parts 2 and 3 of 3, which share a frame. Each repeats the link without its changes (here both\ncontain "
    "the same change); a replica applies the link when it has all three parts. The frame's\nsequence, 300, is the "
    "number of its first message; the second is 301.",
    "hello-1.4": "It is about two topics, so its topic frame names none. The publisher sent four messages on `a`;\n`b` "
    "was never written. The reading of the heads began a quarter of a second before. (An earlier\npublisher sent this "
    "frame: a current one does not name `b`, on which it never sent.)",
    "hello-reply-1.4": "The frame contains the nonce twice: in the topic frame, to which only the requesting replica\n"
    "subscribes, and in the hello.",
}
MEANING: Final = {
    "Body.major": "wire version, which must be the same at both ends; the second byte of the body, readable alone",
    "Body.minor": "grows when a field is appended, or publishers send in a further way (1.4)",
    "Body.service": "the publisher's stable name",
    "Body.uuid": "the publisher's identity since its last start",
    "Body.sequence": "number of the first message per (uuid, topic), from 1; the next has one more; a hello has 0",
    "Body.messages": "consecutive messages of one topic; empty in a hello",
    "Body.hello": "the hello, in a message without changes",
    "Body.store_id": "the id of the store that the publisher publishes; nil: none. Since 1.2",
    "Message.link": "the changes of one transaction to one topic",
    "Message.part": "number of this part in its run",
    "Message.parts": "number of parts of the run; 1: the message contains the whole link",
    "Link.topic": "the same as in the topic frame, else the message is dropped",
    "Link.prev": "the topic's head before the transaction",
    "Link.point": "the transaction's point, which is the topic's head after it",
    "Link.changes": "in commit order; in a part of a run only the changes of this part",
    "Link.count": "number of objects of the topic after the transaction",
    "Link.digest": "digest of the topic after it: two 32-bit sums over (table, key, version, value)",
    "Link.tx_prev": "the previous transaction's point: a replica of all topics follows this chain",
    "Link.tx_links": "number of links of this transaction",
    "Link.origin": "name of the service that publishes the link; empty: none",
    "Link.written_at": "the writer's wall clock, Unix seconds, at most 2^43 from 0; only for latency figures",
    "Link.trace": "the writer's trace context: a W3C traceparent, and after a space its tracestate, if any; empty: "
    "none. In a run only the last part contains it. Since 1.1",
    "Point.position": "gap-free number of a change in commit order: the last change of the transaction",
    "Point.nonce": "random number of the transaction: distinguishes two histories with the same positions",
    "Change.table": "table of the object",
    "Change.key": "key of the object",
    "Change.action": "kind of the change",
    "Change.version": "position of the change",
    "Change.value": "canonical JSON, verbatim as stored; nil for a delete",
    "Hello.sequences": "for each topic the last sequence that this publisher sent; 0: none yet. Broadcast: for at most "
    f"{HELLO_TOPICS} topics, those sent on last, within `max_frame_bytes`; in a hello reply: for the requested topics",
    "Hello.heads": "for these topics the head in the last reading; if it has none: empty; left out if it was partial",
    "Hello.store": "the store's point in the same reading; nil: nothing was read yet. A replica requests hellos about "
    "topics that it has not received up to this point",
    "Hello.age": "seconds between the begin of that reading and the making of this hello",
    "Hello.nonce": "the nonce of the hello request, in a hello reply; empty in a broadcast",
    "Hello.goodbye": "the publisher stops after this hello",
    "Hello.least_age": "only of a relay: the least age that the heads can have (rule R1); 0: not known. Since 1.3",
    "Hello.path": "only of a relay: the UUIDs of the publishers above it, nearest first; at most 16. Since 1.3",
    "Hello.instead": "only of a relay that stops: addresses of relays for its replicas; at most 16. Since 1.5",
    "Hello.serves": "the port of the publisher's [sync channel](sync-channel.md) at its own host; 0: none. Since 1.6",
    "Head.point": "the newest point of the topic",
    "Head.count": "number of objects of the topic",
    "Head.digest": "digest of these objects",
}
STRUCTS: Final = ("Body", "Message", "Link", "Point", "Change", "Hello", "Head")

TEXT: Final = """\
# Wire format

Generated by `tools/generate_wire_format.py` from `pubsub_lib/core/codec.py` and the recorded frames in
`tests/unit/core/frames/`. The terms are defined in [protocol.md](protocol.md#words). This is wire version
{major}.{minor}; a hello with the field `instead` or `serves` has 1.5 or 1.6. It is the same over TCP
(`zmq_pubsub_driver`, XPUB and SUB), over the hop from workers to their service (`zmq_pubsub_multiproc_driver`, PUSH
and PULL) and over the in-process bus (`memory`). The drivers for NATS and Redis send the same bodies; those for
polling and NOTIFY send none.

## A message is two frames

| frame | bytes | purpose |
|---|---|---|
| topic | `D` topic `00` | data of one topic |
| | `B` bucket topic `00` | the same over ZeroMQ, [in its bucket](#buckets) |
| | `D` `00` | a broadcast hello, for every subscriber |
| | `H` nonce `00` topic `00` | a hello reply, for the requesting replica |
| body | one msgpack array | all other data |
| (signature) | | a third frame is reserved for a signature over the raw frames before it; currently it is ignored |

ZeroMQ matches subscriptions by prefix. The closing NUL makes the match exact: a subscriber of `tenant-1` does not get
`tenant-10`. Names contain no NUL. Every subscriber subscribes to `D` `00`, so that it receives the broadcast hellos of
publishers that never sent on its topics. A subscriber of all topics subscribes to the single byte `D`, or, in buckets,
`B`. Hello replies begin with another byte and the nonce of the request. A replica subscribes to two characters of the
nonce, with keys to all of it, and drops replies to others. They are not secret: a peer that subscribes to the single
byte `H` receives the replies to all replicas, with the heads of the topics that each requested. A **hello request** is
one frame that a replica's XSUB sends to all publishers: `H` nonce `00` and a msgpack array of topics. With keys, and of
versions before 1.7, it is a subscription to these bytes. The publisher receives it on its XPUB and then replies:

```text
{hello_request}
```

### Buckets

Since 1.4 `zmq_pubsub_driver` without `keys` sends data in buckets
([rule W7](protocol.md#rule-w7-buckets-over-zeromq)). The bucket of a topic is n = CRC-32 of its name, modulo 1,024
(the CRC of zlib and gzip). It has two bytes: 64 + n / 256, and n modulo 256. A message on `tenant-1`, whose n is
511, begins with `42 41 ff`, and then has the name and its NUL. A subscriber of `tenant-1` subscribes to these
three bytes. It receives the messages of all topics of that bucket, compares the names, and drops the others, counted
as `unwanted`. The bodies are the same as under `D`.

## The body, field by field

The body is [msgpack](https://msgpack.org): structures are arrays in the order of the tables, integers
and text have their shortest form, decimals are 64-bit floats. Values stay undecoded bytes until a
program reads them.

{fields}
## Worked examples

Each line shows the offset in the frame and the bytes, then the field and its meaning.

{dumps}
## Versions, and upgrading while running

- Fields are only appended, with a default. A reader skips unknown fields at the end of a structure, and
  uses the default for a field that an older sender does not have. So old and new programs may run
  together as long as they have the same major version, in any order of upgrade except as below.
- A message of another major version is dropped and counted (`version` in the driver's counters), without
  reading the rest of it. Replicas that receive no readable message poll; see [failures.md](failures.md).
- Recorded frames are never changed. A new field gets new frames, and old frames must stay readable.
  `tests/e2e/test_rolling_upgrade.py` has a separate reader of version 1.0 and tests both directions.
- Since 1.1 a link has a `trace`. Since 1.2 a body has a `store_id`: replicas and services drop what carries another
  store's id, or none ([rule 15](protocol.md#rule-15-only-the-own-stores-messages)). Upgrade publishers before replicas,
  which poll until then. `pubsub-db migrate`, which makes the id, needs a stop of all writers anyway.
- Since 1.4 data is sent [in buckets](#buckets) over ZeroMQ without `keys`. A publisher also sends under topics
  (`D` topic `00`) from the first subscription to one on, which replicas of older versions make, until it ends. A
  replica that receives a hello reply of an older, leased publisher subscribes to topics, too, until it ends. So both
  versions receive everything in any order of upgrade. Publishers first is better: then no replica needs both. Restart
  the publishers once after the last replica was upgraded: each message is sent once again, not twice.
- Since 1.5 a relay's goodbye may have `instead`: only such a message has this minor version.
- Since 1.6 a hello may have `serves`, the port of the publisher's sync channel: only such a message has this minor
  version. Older replicas skip it, and need `sync_url` or `store_url` as before. Since 1.7 a hello request is no
  subscription, except with keys; when a publisher does not answer, those of the next 60 s are.
- A publisher of 1.0 sent a hello for each topic, under `D` topic `00`; subscribers of that topic still read it. It
  ignores the subscription to `D` `00`, which is not a hello request. A replica of 1.0 with a list of topics does not
  receive the broadcast hellos of newer publishers. Its freshness depends on the hello replies it requests.

## Bounds

Outgoing data over a bound is an error for the sender; incoming data over a bound is dropped and counted.

| what | bound |
|---|---|
| body | `max_frame_bytes`, {frame} bytes by default, the same at both ends |
| topic frame | {header} bytes |
| topic, table, service name | 255 bytes of UTF-8 |
| key | 512 bytes of UTF-8 |
| hello request | a nonce of {nonce} bytes, {topics} topics |
| positions, versions, nonces of points | 0 to 2^63 - 1 |
| a frame over TCP | a subscriber's ZeroMQ reads up to twice `max_frame_bytes`, so that the frame can be counted; \
beyond that the connection ends and is established again |

A link that needs more than one frame is sent as a run of messages; every process splits the same link
with the same limits at the same places. Under backlog, messages of one topic share a frame up to the
bound; when idle, messages do not wait.

Dropped input is counted by its reason:

| counter | received |
|---|---|
| `oversized` | a frame over its bound |
| `truncated` | one frame instead of two, or bytes that end too early |
| `version` | another major wire version |
| `foreign` | any other data that this library does not send: other bytes, types or ranges, a link of another topic \
than the frame's, a link that leads backwards, a hello reply under another nonce's private topic |
| `foreign_store` | another store's id, or none; counted by replica and service |
"""


class Row(NamedTuple):
    """Some bytes of a body, with the field's name and value."""

    at: int
    data: bytes
    name: str
    meaning: str


class Reader:
    """Reads a msgpack body by the codec's types. It supports only the msgpack types that the codec writes."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.at = 0

    def rows(self, kind: msgspec.inspect.Type, name: str) -> Iterator[Row]:
        """One row for each header and each plain value, in order."""
        at = self.at
        if isinstance(kind, msgspec.inspect.UnionType):
            some = [each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType)]
            if self._body[at] == 0xC0:
                yield self._plain(name)
                return
            kind = some[0]
        if isinstance(kind, msgspec.inspect.StructType):
            size = self._size(0x90, 0xDC)
            yield self._row(at, name, f"{_title(kind)}: array of {size}")
            for field in kind.fields[:size]:
                yield from self.rows(field.type, f"{name}.{field.name}" if name else field.name)
        elif isinstance(kind, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
            size = self._size(0x90, 0xDC)
            yield self._row(at, name, f"array of {size}")
            for number in range(size):
                yield from self.rows(kind.item_type, f"{name}[{number}]")
        elif isinstance(kind, msgspec.inspect.DictType):
            size = self._size(0x80, 0xDE)
            yield self._row(at, name, f"map of {size}")
            for _ in range(size):
                key = self._plain(f"{name} key")
                yield key
                yield from self.rows(kind.value_type, f"{name}[{key.meaning}]")
        else:
            yield self._plain(name)

    def _size(self, fix: int, wide: int) -> int:
        first = self._body[self.at]
        if fix <= first <= fix | 0x0F:
            self.at += 1
            return first & 0x0F
        if first != wide:
            raise ValueError(f"offset {self.at}: {first:#04x} does not begin this collection")
        self.at += 3
        return int.from_bytes(self._body[self.at - 2 : self.at])

    def _plain(self, name: str) -> Row:
        """A value that is not a collection."""
        at = self.at
        first = self._body[at]
        length = _LENGTHS.get(first, 0)
        if first in (0xC4, 0xD9):
            length = 1 + self._body[at + 1]
        elif 0xA0 <= first <= 0xBF:
            length = first & 0x1F
        elif first > 0x7F and first not in _LENGTHS:
            raise ValueError(f"offset {at}: {first:#04x} is unknown here; extend this tool")
        self.at += 1 + length
        value = msgspec.msgpack.decode(self._body[at : self.at])
        return self._row(at, name, _shown(value, name))

    def _row(self, at: int, name: str, meaning: str) -> Row:
        return Row(at, self._body[at : self.at], name or "body", meaning)


_LENGTHS: Final = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),  # nil, false, true
    **dict(zip(range(0xCA, 0xD0), (4, 8, 1, 2, 4, 8), strict=True)),  # decimals, unsigned integers
    **dict.fromkeys(range(0xE0, 0x100), 0),  # small negative integers
}


def _shown(value: object, name: str) -> str:
    if isinstance(value, bytes):
        return value.hex() if name.endswith(("uuid", "store_id", "]")) else f"{len(value)} bytes: {value.decode()}"
    if value is None:
        return "nil"
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def recorded(name: str) -> tuple[bytes, bytes]:
    """(topic frame, body)."""
    head, body = (FRAMES / f"{name}.hex").read_text(encoding="ascii").split()
    return bytes.fromhex(head), bytes.fromhex(body)


def head_rows(head: bytes) -> Iterator[Row]:
    """The parts of a topic frame or of a hello request."""
    kinds = {b"D": "data", b"H": "private: a hello reply or a hello request"}
    yield Row(0, head[:1], "kind", kinds[head[:1]])
    at = 1
    names = ["nonce", "topic"] if head[:1] == b"H" else ["topic"]
    for name in names:
        end = head.find(b"\0", at)
        if end < 0:  # after the nonce of a hello request
            yield Row(at, head[at:], "topics", str(msgspec.msgpack.decode(head[at:])))
            return
        if end > at:
            yield Row(at, head[at:end], name, f'"{head[at:end].decode()}"')
        empty = "" if end > at else f", {name} empty: it is about several" if name == "topic" else ""
        yield Row(end, head[end : end + 1], "end", f"NUL{empty}")
        at = end + 1


def table(rows: Iterator[Row]) -> str:
    """Lines of offset, bytes, field and meaning; at most 12 bytes per line."""
    lines = []
    for row in rows:
        for start in range(0, len(row.data), 12):
            part = row.data[start : start + 12].hex(" ")
            text = f"{row.name:<34} {row.meaning}" if start == 0 else ""
            lines.append(f"{row.at + start:04x}  {part:<36} {text}".rstrip())
    return "\n".join(lines)


def dump(name: str) -> str:
    """One recorded frame with annotations. Raises ValueError for a frame that the codec would write differently."""
    head, body = recorded(name)
    if codec.encode(codec.decode((head, body))) != (head, body):
        raise ValueError(f"the recorded frame {name!r} is of an older version; name a newer frame in DUMPS")
    reader = Reader(body)
    rows = list(reader.rows(msgspec.inspect.type_info(codec._Body), ""))
    if b"".join(row.data for row in rows) != body:
        raise ValueError(f"the recorded frame {name!r} has bytes without a field")
    return (
        f"### {DUMPS[name]}\n\n{ABOUT[name]}\n\n```text\ntopic frame, {len(head)} bytes\n{table(head_rows(head))}\n\n"
        f"body, {len(body)} bytes\n{table(iter(rows))}\n```\n"
    )


def structs(kind: Any, found: dict[str, msgspec.inspect.StructType]) -> dict[str, msgspec.inspect.StructType]:
    """All structures in the body's type, by their names on the page."""
    if isinstance(kind, msgspec.inspect.StructType):
        found[_title(kind)] = kind
        for field in kind.fields:
            structs(field.type, found)
    for inner in (*getattr(kind, "types", ()), getattr(kind, "item_type", None), getattr(kind, "value_type", None)):
        if inner is not None:
            structs(inner, found)
    return found


def fields() -> str:
    """The tables of fields. Raises KeyError for a new field that is missing in MEANING."""
    known = structs(msgspec.inspect.type_info(codec._Body), {})
    if set(known) != set(STRUCTS):
        raise ValueError(f"the wire format has the structures {sorted(known)}; name them in STRUCTS")
    parts = []
    for name in STRUCTS:
        lines = [f"**{name}**\n", "| # | field | type | default | meaning |", "|---|---|---|---|---|"]
        for number, field in enumerate(known[name].fields):
            default = "" if field.required else f"`{msgspec.json.encode(field.default).decode()}`"
            lines.append(
                f"| {number} | `{field.name}` | {_kind(field.type)} | {default} | {MEANING[f'{name}.{field.name}']} |"
            )
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _title(kind: msgspec.inspect.StructType) -> str:
    return kind.cls.__name__.lstrip("_")


def _kind(kind: Any) -> str:
    """The name of a type."""
    found = msgspec.inspect
    if isinstance(kind, found.UnionType):
        return " or ".join(_kind(each) for each in kind.types)
    if isinstance(kind, found.IntType):
        maximum = "" if kind.le is None else " to 2^63 - 1" if kind.le == 2**63 - 1 else f" to {kind.le}"
        if kind.ge is None:
            return "integer"
        return f"integer, {kind.ge}{maximum}" if maximum else f"integer from {kind.ge}"
    if isinstance(kind, found.StrType):
        return "text" if kind.max_length is None else f"text, {kind.min_length or 0} to {kind.max_length}"
    if isinstance(kind, found.BytesType):
        return "bytes" if kind.max_length is None else f"{kind.max_length} bytes"
    if isinstance(kind, found.LiteralType):
        return " or ".join(f'"{each}"' for each in kind.values)
    if isinstance(kind, found.StructType):
        return _title(kind)
    if isinstance(kind, found.ListType | found.VarTupleType):
        return f"array of {_kind(kind.item_type)}"
    if isinstance(kind, found.DictType):
        return f"map of ({_kind(kind.key_type)}) to {_kind(kind.value_type)}"
    words = {"FloatType": "decimal", "BoolType": "true or false", "NoneType": "nil"}
    return words[type(kind).__name__]


def page() -> str:
    """The text of the page."""
    return wrapped(TEXT.format(
        major=codec.MAJOR, minor=codec.MINOR, fields=fields(), dumps="\n".join(dump(name) for name in DUMPS),
        hello_request=table(head_rows(codec.hello_request_frame("abc123", ["a", "b"]))), topics=MAX_HELLO_TOPICS,
        frame=f"{Limits().max_frame_bytes:,}", header=codec.MAX_HEADER_BYTES, nonce=codec.MAX_NONCE_BYTES,
    ))  # fmt: skip


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), sys.argv[1:]))
