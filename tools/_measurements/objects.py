"""Measures the cost of one cached object in several forms: ``tools/bench objects [OBJECTS]``.

Each form is measured in a separate process: the added resident memory, and the time of one full collection of the
garbage collector. pubsub_lib/core/model.py explains why they matter.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from _children import Children, attached
from _command_line import Parser, positive

from _measurements.command import Finding, Findings
from pubsub_lib.core.model import Record


class Cost(msgspec.Struct, frozen=True):
    """Of one form."""

    bytes_per_object: float
    collection_seconds: float


def _values(objects: int) -> Iterable[tuple[str, bytes]]:
    """Keys and values like those of a controller's ports; all are different."""
    for number in range(objects):
        value = {"id": number, "mac": f"fa:16:3e:{number:06x}", "ips": [f"10.0.{number % 256}.7"], "up": True,
                 "binding": {"host": f"compute-{number % 500}", "type": "ovs"}}  # fmt: skip
        yield f"port-{number}", json.dumps(value).encode()


WAYS: dict[str, Callable[[int], object]] = {
    "parsed dicts": lambda objects: {key: json.loads(value) for key, value in _values(objects)},
    "bytes": lambda objects: dict(_values(objects)),
    "Record": lambda objects: {key: Record("port", key, 1, value) for key, value in _values(objects)},
}


def _resident() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _collection() -> float:
    """Seconds of a full collection."""
    began = time.perf_counter()
    gc.collect()
    return time.perf_counter() - began


def cost(way: str, objects: int) -> Cost:
    """In this process."""
    gc.collect()
    gc.freeze()  # exclude the objects of the interpreter and its modules
    before = _resident()
    held = WAYS[way](objects)
    grown = _resident() - before
    took = min(_collection() for _ in range(3))
    del held
    return Cost(grown / objects, took)


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("objects", nargs="?", type=positive, default=200_000, metavar="OBJECTS", help="(%(default)s)")


def measure(options: argparse.Namespace) -> Findings:
    """A finding for each form."""
    with Children() as children:
        for way in WAYS:
            found = msgspec.json.decode(children.output(way, attached(__name__, way, options.objects)), type=Cost)
            collection = f"full collection {found.collection_seconds * 1000:7.1f} ms"
            words = f"{way:<14}{found.bytes_per_object:6.0f} bytes per object, {collection}"
            yield Finding(way, words, msgspec.to_builtins(found))


if __name__ == "__main__":
    print(msgspec.json.encode(cost(sys.argv[1], int(sys.argv[2]))).decode())
