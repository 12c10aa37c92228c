"""Measures a restart of everything at once: a database, a tree of relays, and replicas without a database.

``tools/bench herd``: PostgreSQL behind a proxy that counts its bytes and connections, an origin service, upper relays
that read the database, lower relays and replicas that have none. All is started from nothing three times: the relays
alone with an empty database, then with a fifth of the replicas, then with all. Before each start all processes and
PostgreSQL are killed by SIGKILL, and they start together. After a start one change is committed in each topic, which
every replica must receive. Then the same with two standbys of the database and no relays: the replicas listen to the
origin, and read their first syncs from a service at each standby (``role = standby``). After that, :mod:`.herd_model`
computes the start of more replicas from the measured costs. All times are the defaults. The recount of the database is
turned off, because it reads all objects twice in each ``recount_time`` whether anything starts or not.

Exit code 1: a bound is broken. The data, of which each database may send twice the bytes, are topic, table, key and
value of each object. The limit of connections does not depend on the number of replicas. A relay may have 1.3 times the
memory of its cached objects (entries, keys, values and their places in tables), besides that of a relay without objects
and ``ALLOWANCE``.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
from _children import Children, Line
from _command_line import Parser, positive

from _measurements.command import Finding, Findings, log
from _measurements.herd_model import Costs, Model
from _measurements.herd_processes import PATIENCE, Use, cached, fill, names
from _measurements.herd_tree import Herd, RelayHerd, StandbyHerd, Start, primary, standbys_of


class Tree(msgspec.Struct, frozen=True):
    """A tree that is computed."""

    replicas: int
    uppers: int
    lowers: int


MIB: Final = 1024 * 1024
MAX_COPIES: Final = 2.0
MAX_MEMORY: Final = 1.3
ALLOWANCE: Final = 32 * MIB
"""For prepared snapshots, answers under way, and what the allocator keeps."""
DEFAULT_TREE: Final = Tree(1000, 2, 10)
FEWER: Final = 5
"""A first start has this fraction of the replicas."""


def options(parser: Parser) -> None:
    """The options of the command."""
    number: Mapping[str, Any] = {"type": positive, "metavar": "N"}
    parser.add_argument("--replicas", **number, default=100, help="replicas (100)")
    parser.add_argument("--processes", **number, default=10, help="processes that they share (10)")
    parser.add_argument("--objects", **number, default=100_000, help="objects with values of 300 bytes (100,000)")
    parser.add_argument("--topics", **number, default=20, help="topics of all objects (20)")
    parser.add_argument("--follow", **number, default=2, help="topics of one replica (2)")
    parser.add_argument("--uppers", **number, default=2, help="relays that read the database (2)")
    parser.add_argument("--lowers", **number, default=4, help="relays below them (4)")
    parser.add_argument(
        "--model", type=_tree, action="append", default=[], metavar="N,U,L",
        help="also compute N replicas below U upper and L lower relays, in virtual time (may be repeated; 1000,2,10)",
    )  # fmt: skip
    parser.add_argument("--instead", choices=("relays", "standbys", "both"), default="both", help="(both)")


def _tree(text: str) -> Tree:
    replicas, uppers, lowers = map(positive, text.split(","))
    return Tree(replicas, uppers, lowers)


def measure(options: argparse.Namespace) -> Findings:
    """The findings with relays, with standbys, or both."""
    with tempfile.TemporaryDirectory(prefix="pubsub-herd-") as folder, Children() as children, ExitStack() as stack:
        database = primary(children, stack)
        relays = RelayHerd(Path(folder, "relays"), options, [database], children)
        empty = relays.start(0) if options.instead != "standbys" else None
        relays.kill()
        database.server.restart()
        writer = children.fork(_fill, database.direct, options.objects, names(options.topics))
        data, in_memory = writer.receive(PATIENCE)
        log(f"{options.objects} objects: {data / MIB:.1f} MiB, {in_memory / MIB:.1f} MiB as cached")
        if empty is not None:
            starts = _starts(relays, options.replicas)
            relays.kill()
            yield from judged("relays", starts, data, options.follow)
            yield memory(empty.uses, starts[-1].uses, in_memory)
            yield from _modelled(options, empty, starts)
        if options.instead != "relays":
            database.server.restart()
            all_three = [database, *standbys_of(database, children, stack)]
            herd = StandbyHerd(Path(folder, "standbys"), options, all_three, children)
            yield from judged("standbys", _starts(herd, options.replicas), data, options.follow)
            herd.kill()


def _modelled(options: argparse.Namespace, empty: Start, starts: Sequence[Start]) -> Findings:
    """The measured run once more in virtual time, and then more replicas, each on a processor of its own."""
    costs = costs_of(empty, starts)
    last = starts[-1]
    processors = os.cpu_count() or 1
    again = Model(costs, last.replicas, options.uppers, options.lowers, processors).run()
    words = (
        f"model: {last.replicas} replicas on {processors} processors synced after {again.longest:.1f} s; measured "
        f"{last.longest:.1f} s"
    )
    yield Finding("model-check", words, {"seconds": again.longest, "measured_seconds": last.longest,
                                         "costs": msgspec.to_builtins(costs)})  # fmt: skip
    for tree in options.model or [DEFAULT_TREE]:
        result = Model(costs, tree.replicas, tree.uppers, tree.lowers).run()
        met = len(result.seconds) == tree.replicas
        words = (
            f"model: {tree.replicas} replicas below {tree.uppers} and {tree.lowers} relays, a processor each, synced "
            f"after {result.longest:.1f} s at most, {statistics.median(result.seconds):.1f} s in the median; a relay "
            f"sent {result.relay_bytes / MIB:.0f} MiB, {result.refused} questions came again: "
            f"{'all' if met else 'NOT ALL'}"
        )
        figures = {**msgspec.structs.asdict(tree), "max_seconds": result.longest,
                   "median_seconds": statistics.median(result.seconds), "relay_bytes": result.relay_bytes,
                   "refused": result.refused}  # fmt: skip
        yield Finding(f"model-{tree.replicas}-{tree.uppers}-{tree.lowers}", words, figures, met)


def costs_of(empty: Start, starts: Sequence[Start]) -> Costs:
    """The costs of one participant, from starts without objects, with few replicas, and with all."""
    fewer, last = starts
    more = max(1, last.replicas - fewer.replicas)

    def processor(start: Start, role: str) -> float:
        return sum(each.processor for each in start.uses if each.name.startswith(role))

    def count(start: Start, role: str, what: str) -> float:
        return sum(each.numbers.get(f"sync_channel {what}", 0.0) for each in start.uses if each.name.startswith(role))

    uppers, lowers = (sum(each.name.startswith(role) for each in last.uses) for role in ("upper", "lower"))
    boot = (processor(empty, "upper") + processor(empty, "lower")) / (uppers + lowers)
    return Costs(
        boot=boot,
        read=max(0.0, processor(fewer, "upper") / uppers - boot),
        follow=max(0.0, processor(fewer, "lower") / lowers - boot),
        answer=max(0.0, processor(last, "lower") - processor(fewer, "lower")) / more,
        apply=max(0.0, last.replica_processor - fewer.replica_processor) / more,
        whole_bytes=count(last, "upper", "bytes") / max(1.0, count(last, "upper", "answered")),
        answer_bytes=max(0.0, count(last, "lower", "bytes") - count(fewer, "lower", "bytes")) / more,
    )


def _fill(line: Line, url: str, objects: int, topics: Sequence[str]) -> None:
    size = fill(url, objects, topics)
    line.send((size, cached(url)))


def _starts(herd: Herd, replicas: int) -> list[Start]:
    """With a part of the replicas, then with all."""
    return [herd.start(count) for count in (max(1, replicas // FEWER), replicas)]


def judged(name: str, starts: Sequence[Start], data: int, follow: int) -> Findings:
    """The findings of the starts, the last of which has all replicas."""
    last = starts[-1]
    for start in starts:
        words = (
            f"{name}: {start.replicas} replicas synced after {start.longest:.1f} s at most, "
            f"{statistics.median(start.seconds):.1f} s in the median; {start.failed} syncs failed and were tried again"
        )
        figures = {"replicas": start.replicas, "max_seconds": start.longest, "failed": start.failed,
                   "median_seconds": statistics.median(start.seconds)}  # fmt: skip
        yield Finding(f"{name}-start-{start.replicas}", words, figures)
    ratio = max(last.sent.values()) / data
    each = ", ".join(f"{database} {size / MIB:.1f} MiB" for database, size in last.sent.items())
    met = ratio <= MAX_COPIES
    words = (
        f"{name}: a database sent at most {ratio:.2f} times the data ({data / MIB:.1f} MiB): {each}; "
        f"{'within' if met else 'OVER'} {MAX_COPIES:g}"
    )
    yield Finding(f"{name}-bytes", words, {"ratio": ratio, "data_bytes": data, **last.sent}, met)
    counts = {start.replicas: start.connections for start in starts}
    met = max(counts.values()) <= last.allowed
    text = ", ".join(f"{count} with {replicas} replicas" for replicas, count in counts.items())
    words = (
        f"{name}: database connections at most {text}; limit for any number of replicas {last.allowed}: "
        f"{'met' if met else 'MISSED'}"
    )
    figures = {**{str(key): count for key, count in counts.items()}, "limit": last.allowed}
    yield Finding(f"{name}-connections", words, figures, met)
    expected = last.replicas * follow
    met = last.fulls == expected
    words = f"{name}: {last.fulls} topics were read in full, of {expected}: {'met' if met else 'MISSED'}"
    yield Finding(f"{name}-fulls", words, {"fulls": last.fulls, "topics": expected}, met)
    yield Finding(f"{name}-use", *_use(last))


def _use(start: Start) -> tuple[str, Mapping[str, Any]]:
    """What the services have used."""
    lines, figures = [], {}
    for each in start.uses:
        lines.append(
            f"  {each.name}: memory {each.rss / MIB:.0f} MiB (peak {each.peak / MIB:.0f}), {each.processor:.1f} s of a "
            f"processor, {', '.join(f'{what} {value:.0f}' for what, value in each.numbers.items() if value)}"
        )
        figures[each.name] = msgspec.to_builtins(each)
    return "\n".join(["processes:", *lines]), figures


def memory(empty: Sequence[Use], full: Sequence[Use], in_memory: int) -> Finding:
    """The memory of the relays, against their objects. ``in_memory``: bytes of all objects in a cache."""
    constant = max(each.rss for each in empty) + ALLOWANCE
    limit = MAX_MEMORY * in_memory + constant
    relays = [each for each in full if each.name != "api-1"]
    most, peak = max(each.rss for each in relays), max(each.peak for each in relays)
    met = most <= limit
    words = (
        f"relays: memory at most {most / MIB:.0f} MiB (peak {peak / MIB:.0f}), limit {limit / MIB:.0f} MiB = "
        f"{MAX_MEMORY:g} × {in_memory / MIB:.0f} MiB of cached objects + {constant / MIB:.0f} MiB (an empty relay and "
        f"{ALLOWANCE // MIB}): {'met' if met else 'MISSED'}"
    )
    figures = {"bytes": most, "peak_bytes": peak, "limit_bytes": limit, "cached_bytes": in_memory,
               "constant_bytes": constant}  # fmt: skip
    return Finding("relays-memory", words, figures, met)
