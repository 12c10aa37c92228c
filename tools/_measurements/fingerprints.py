"""Measures the cost of one object's fingerprint with several functions: ``tools/bench fingerprints``.

docs/architecture.md explains the choice. Every function gets the same 200-byte value and builds the same input from
table, key and version. It prints the best of several rounds, in nanoseconds.
"""

import argparse
import hashlib
import timeit
import zlib
from collections.abc import Callable

import xxhash
from _command_line import Parser, positive

from _measurements.command import Finding, Findings

TABLE, KEY, VERSION, VALUE = "route", "195.211.29.254|10.0.0.0/8", 123_456, bytes(range(200))


def _input() -> bytes:
    return f"{TABLE}\0{KEY}\0{VERSION}\0".encode() + VALUE


FUNCTIONS: dict[str, Callable[[], int]] = {
    "XXH3-64": lambda: xxhash.xxh3_64_intdigest(_input()),
    "CRC-32": lambda: zlib.crc32(_input()),
    "BLAKE2b-64": lambda: int.from_bytes(hashlib.blake2b(_input(), digest_size=8).digest()),
    "MD5": lambda: int.from_bytes(hashlib.md5(_input(), usedforsecurity=False).digest()[:8]),
}


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--calls", type=positive, default=200_000, metavar="N", help="of a round (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="(%(default)s)")


def measure(options: argparse.Namespace) -> Findings:
    """A finding for each function."""
    for name, function in FUNCTIONS.items():
        best = min(timeit.repeat(function, number=options.calls, repeat=options.rounds)) / options.calls * 1e9
        yield Finding(name, f"{name:<12}{best:8.0f} ns", {"nanoseconds": best})
