#!/usr/bin/env python3
"""Write docs/wire-format.md from the codec and the recorded frames: ``tools/generate_wire_format.py [--check]``.

Every byte of the hexdumps is a recorded frame's; names, types and defaults of the fields are the codec's own types.
With ``--check`` nothing is written; exit status 1 tells that the page is stale.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from _generated import ROOT, write_or_check

from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.sequencer import HELLO_TOPICS

PAGE = ROOT / "docs" / "wire-format.md"
FRAMES = ROOT / "tests" / "unit" / "core" / "frames"

DUMPS: Final = {
    "data-1.1": "A message: one link",
    "run-1.1": "Parts of a run: a link that is too large for one frame",
    "hello-1.1": "A hello, broadcast",
    "own-hello-1.1": "A hello reply: the answer to one replica",
}
ABOUT: Final = {
    "data-1.1": "The first message of this publisher on `tenant-1`. The link leads the topic from position 3 to 7 and "
    "sets\none object. The numbers are made up, so that each is told from the others.",
    "run-1.1": "Parts 2 and 3 of 3, which share a frame. Each repeats everything of the link but the changes (here "
    "both hold\nthe same one); a replica applies the link when it has all three. The frame's sequence, 300, numbers "
    "its first\nmessage; the second is 301.",
    "hello-1.1": "It speaks of two topics, so its topic frame names none. The publisher sent four messages on `a`; on "
    "`b`\nnothing was ever written. Its reading of the heads began a quarter of a second before. (Recorded of an "
    "earlier\npublisher: one of today does not name `b`, on which it never sent.)",
    "own-hello-1.1": "The nonce stands twice: in the topic frame, by which only the asker receives it, and in the "
    "hello.",
}
MEANING: Final = {
    "Body.major": "wire version that both ends must share; the body's second byte, which tells it without the rest",
    "Body.minor": "grows when a field is appended; informs, decides nothing",
    "Body.service": "the publisher's stable name",
    "Body.uuid": "the publisher's identity since its last start",
    "Body.sequence": "number of the first message, per (uuid, topic) from 1; each further message has one more. A "
    "hello has 0",
    "Body.messages": "consecutive messages of one topic; empty in a hello",
    "Body.hello": "the hello, in a message without changes",
    "Message.link": "what one transaction did to one topic",
    "Message.part": "number of this part in its run",
    "Message.parts": "parts of the run; 1: the link is whole",
    "Link.topic": "the same as in the topic frame, else the message is dropped",
    "Link.prev": "the topic's head before",
    "Link.point": "the transaction's point, and so the topic's head after it",
    "Link.changes": "in commit order; of a part of a run only this part's",
    "Link.count": "objects of the topic after it",
    "Link.digest": "digest of the topic after it: two 32-bit sums over (table, key, version, value)",
    "Link.tx_prev": "the previous transaction's point: a replica of everything follows this chain",
    "Link.tx_links": "links of this transaction",
    "Link.origin": "name of the service that is to publish it; empty: none",
    "Link.written_at": "the writer's wall clock, Unix seconds; for latency figures, nothing is decided by it",
    "Link.trace": "the writer's trace context: a W3C traceparent, and after a space its tracestate, if any; empty: "
    "none. Of a run only the last part has it. Since 1.1",
    "Point.position": "gap-free number of a change in commit order: the last one of the transaction",
    "Point.nonce": "random, of the transaction: tells two histories apart that share positions",
    "Change.table": "table of the object",
    "Change.key": "key of the object",
    "Change.action": "what was done",
    "Change.version": "the change's own position",
    "Change.value": "canonical JSON, verbatim as stored; nil for a delete",
    "Hello.sequences": "per topic the last sequence that this publisher sent; 0: none yet. Broadcast: of the topics on "
    f"which it sent last, {HELLO_TOPICS} at most, and within `max_frame_bytes`; in a hello reply: of those that it was "
    "asked about",
    "Hello.heads": "per topic the head as last read from the store; broadcast: of the same topics, without those that "
    "the reading does not show yet",
    "Hello.store": "the store's point in the same reading; nil: nothing was read yet. A replica asks about topics of "
    "which it does not have everything up to there",
    "Hello.age": "seconds between the begin of that reading and the sending of this",
    "Hello.nonce": "the asker's, in a hello reply; empty when broadcast",
    "Hello.goodbye": "the publisher stops after this",
    "Head.point": "the newest point of the topic",
    "Head.count": "its objects",
    "Head.digest": "their digest",
}
STRUCTS: Final = ("Body", "Message", "Link", "Point", "Change", "Hello", "Head")

TEXT: Final = """\
# Wire format

Generated by `tools/generate_wire_format.py` from `pubsub_lib/core/codec.py` and the recorded frames in
`tests/unit/core/frames/`; the words are those of [protocol.md](protocol.md#words). This is wire version
{major}.{minor}. It is the same over TCP (`zmq_pubsub_driver`, XPUB and SUB), over the hop from workers to their
publisher service (`zmq_pubsub_multiproc_driver`, PUSH and PULL) and over the in-process bus (`memory`). The polling
driver reads the changelog and sends nothing.

## A message is two frames

| frame | bytes | what for |
|---|---|---|
| topic | `D` topic `00` | data of one topic |
| | `D` `00` | a broadcast hello, for every subscriber |
| | `H` nonce `00` topic `00` | a hello reply, for the one who asked |
| body | one msgpack array | everything else |
| (signature) | | a third frame is reserved for a signature over the raw frames before it; today it is let pass unread |

ZeroMQ matches subscriptions by prefix. The closing NUL makes the match exact: who asked for `tenant-1` does not get
`tenant-10`. Every subscriber subscribes to `D` `00`, so that it receives the broadcast hellos of publishers that never
sent on its topics. A subscriber of everything subscribes to the single byte `D`. Hello replies begin with another
byte, so nobody receives those of others.
Names hold no NUL. A **question** is a subscription, too: `H` nonce `00` and a msgpack
array of topics. No message ever begins so; the publisher sees the subscription on its XPUB and answers under `H` nonce
`00`, to which the asker subscribed before:

```text
{question}
```

## The body, field by field

All of it is [msgpack](https://msgpack.org): structures are arrays in the order of the tables, integers and text in
their shortest form, decimals as 64-bit floats. Values stay undecoded bytes until somebody reads them.

{fields}
## Worked examples

On the left the offset in the frame and its bytes, on the right the field and what it says.

{dumps}
## Versions, and upgrading while running

- Fields are only ever appended, with a default. A reader skips what it does not know at the end of any structure, and
  takes the default of what an older sender does not have. So old and new programs may run together, in any order of
  upgrade, as long as they share the major version.
- Another major version is dropped and counted (`version` in the driver's counters), with the rest of it unread.
  Replicas that hear nothing they understand follow by polling; see [failures.md](failures.md).
- The recorded frames are never changed. When a field is appended new ones are added, and the old ones must still be
  read. `tests/e2e/test_rolling_upgrade.py` holds a reader of wire version 1.0 of its own and shows both directions.
- Since 1.1 a link has a `trace`.
- A publisher of 1.0 sent a hello for each topic, under `D` topic `00`; subscribers of that topic still read it. It
  ignores the subscription to `D` `00`, which is no question. A replica of 1.0 that follows topics does not subscribe to
  `D` `00`: it misses the broadcast hellos of newer publishers. Its freshness and its bounds rest on hello replies,
  which it asks for and receives as before.

## Bounds

What goes out over a bound is an error for the sender; what comes in over it is dropped and counted.

| what | bound |
|---|---|
| body | `max_frame_bytes`, {frame} bytes by default, the same at both ends |
| topic frame | {header} bytes |
| topic, table, service name | 255 bytes of UTF-8 |
| key | 512 bytes of UTF-8 |
| nonce of a question | {nonce} bytes |
| positions, versions, nonces of points | 0 to 2^63 - 1 |
| a frame over TCP | a subscriber's ZeroMQ reads up to twice `max_frame_bytes`, so that it can be counted; beyond that \
the connection ends and is made anew |

A link that needs more than one frame is sent as a run of messages; the same link and limits are cut at the same places
in every process. Under backlog messages of one topic share a frame up to the bound; when idle nothing waits.

Dropped input is counted by its reason:

| counter | what came |
|---|---|
| `oversized` | a frame over its bound |
| `truncated` | one frame instead of two, or bytes that end too early |
| `version` | another major wire version |
| `foreign` | anything else that this library does not send: other bytes, types or ranges, a link of another topic \
than the frame's, a link that leads backwards, a hello reply under another nonce's private topic |
"""


class Row(NamedTuple):
    """Some bytes of a body and what they are."""

    at: int
    data: bytes
    name: str
    says: str


class Reader:
    """Walks over a msgpack body along the codec's types. Knows no more of msgpack than what the codec writes."""

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
        elif isinstance(kind, msgspec.inspect.ListType):
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
                yield from self.rows(kind.value_type, f"{name}[{key.says}]")
        else:
            yield self._plain(name)

    def _size(self, fix: int, wide: int) -> int:
        first = self._body[self.at]
        if fix <= first <= fix | 0x0F:
            self.at += 1
            return first & 0x0F
        if first != wide:
            raise ValueError(f"offset {self.at}: {first:#04x} begins no such collection")
        self.at += 3
        return int.from_bytes(self._body[self.at - 2 : self.at])

    def _plain(self, name: str) -> Row:
        """A value without others in it. Its end is where msgpack no longer misses something."""
        at = self.at
        first = self._body[at]
        length = _LENGTHS.get(first, 0)
        if first in (0xC4, 0xD9):
            length = 1 + self._body[at + 1]
        elif 0xA0 <= first <= 0xBF:
            length = first & 0x1F
        elif first > 0x7F and first not in _LENGTHS:
            raise ValueError(f"offset {at}: the codec writes no {first:#04x} here; teach this tool")
        self.at += 1 + length
        value = msgspec.msgpack.decode(self._body[at : self.at])
        return self._row(at, name, _shown(value, name))

    def _row(self, at: int, name: str, says: str) -> Row:
        return Row(at, self._body[at : self.at], name or "body", says)


_LENGTHS: Final = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),  # nil, false, true
    **dict(zip(range(0xCA, 0xD0), (4, 8, 1, 2, 4, 8), strict=True)),  # decimals, unsigned integers
    **dict.fromkeys(range(0xE0, 0x100), 0),  # small negative integers
}


def _shown(value: object, name: str) -> str:
    if isinstance(value, bytes):
        return value.hex() if name == "uuid" else f"{len(value)} bytes: {value.decode()}"
    if value is None:
        return "nil"
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def recorded(name: str) -> tuple[bytes, bytes]:
    """(topic frame, body)."""
    head, body = (FRAMES / f"{name}.hex").read_text(encoding="ascii").split()
    return bytes.fromhex(head), bytes.fromhex(body)


def head_rows(head: bytes) -> Iterator[Row]:
    """The parts of a topic frame or of a question."""
    kinds = {b"D": "data", b"H": "private: a hello reply or a hello request"}
    yield Row(0, head[:1], "kind", kinds[head[:1]])
    at = 1
    names = ["nonce", "topic"] if head[:1] == b"H" else ["topic"]
    for name in names:
        end = head.find(b"\0", at)
        if end < 0:  # behind a question's nonce
            yield Row(at, head[at:], "topics", str(msgspec.msgpack.decode(head[at:])))
            return
        if end > at:
            yield Row(at, head[at:end], name, f'"{head[at:end].decode()}"')
        empty = "" if end > at else f", {name} empty: it is about several" if name == "topic" else ""
        yield Row(end, head[end : end + 1], "end", f"NUL{empty}")
        at = end + 1


def table(rows: Iterator[Row]) -> str:
    """Lines of offset, bytes, field and what it says; at most 12 bytes a line."""
    lines = []
    for row in rows:
        for start in range(0, len(row.data), 12):
            part = row.data[start : start + 12].hex(" ")
            told = f"{row.name:<34} {row.says}" if start == 0 else ""
            lines.append(f"{row.at + start:04x}  {part:<36} {told}".rstrip())
    return "\n".join(lines)


def dump(name: str) -> str:
    """One recorded frame, annotated; refuses what the codec does not read, or would write in another way."""
    head, body = recorded(name)
    if codec.encode(codec.decode((head, body))) != (head, body):
        raise ValueError(f"the recorded frame {name!r} is of an older version; let the page show a newer one")
    reader = Reader(body)
    rows = list(reader.rows(msgspec.inspect.type_info(codec._Body), ""))
    if b"".join(row.data for row in rows) != body:
        raise ValueError(f"the recorded frame {name!r} has bytes that no field explains")
    return (
        f"### {DUMPS[name]}\n\n{ABOUT[name]}\n\n```text\ntopic frame, {len(head)} bytes\n{table(head_rows(head))}\n\n"
        f"body, {len(body)} bytes\n{table(iter(rows))}\n```\n"
    )


def structs(kind: Any, found: dict[str, msgspec.inspect.StructType]) -> dict[str, msgspec.inspect.StructType]:
    """All structures in the body's type, by their names in the documents."""
    if isinstance(kind, msgspec.inspect.StructType):
        found[_title(kind)] = kind
        for field in kind.fields:
            structs(field.type, found)
    for inner in (*getattr(kind, "types", ()), getattr(kind, "item_type", None), getattr(kind, "value_type", None)):
        if inner is not None:
            structs(inner, found)
    return found


def fields() -> str:
    """The tables of fields. KeyError: a field was appended and has no words in MEANING yet."""
    known = structs(msgspec.inspect.type_info(codec._Body), {})
    if set(known) != set(STRUCTS):
        raise ValueError(f"the wire has the structures {sorted(known)}; name them in STRUCTS")
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
    """A type in words."""
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
    if isinstance(kind, found.ListType):
        return f"array of {_kind(kind.item_type)}"
    if isinstance(kind, found.DictType):
        return f"map of ({_kind(kind.key_type)}) to {_kind(kind.value_type)}"
    words = {"FloatType": "decimal", "BoolType": "true or false", "NoneType": "nil"}
    return words[type(kind).__name__]


def page() -> str:
    """The whole page."""
    return TEXT.format(
        major=codec.MAJOR,
        minor=codec.MINOR,
        question=table(head_rows(codec.hello_request_frame("abc123", ["a", "b"]))),
        fields=fields(),
        dumps="\n".join(dump(name) for name in DUMPS),
        frame=f"{Limits().max_frame_bytes:,}",
        header=codec.MAX_HEADER_BYTES,
        nonce=codec.MAX_NONCE_BYTES,
    )


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), sys.argv[1:]))
