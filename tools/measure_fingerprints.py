#!/usr/bin/env python3
"""Measures the cost of one object's fingerprint with several functions: ``tools/measure_fingerprints.py``.

docs/architecture.md explains the choice. Every function gets the same 200-byte value and builds the same input from
table, key and version. It prints the best of several rounds, in nanoseconds.
"""

import hashlib
import timeit
import zlib
from collections.abc import Callable

import xxhash

TABLE, KEY, VERSION, VALUE = "route", "195.211.29.254|10.0.0.0/8", 123_456, bytes(range(200))
CALLS = 200_000


def _input() -> bytes:
    return f"{TABLE}\0{KEY}\0{VERSION}\0".encode() + VALUE


FUNCTIONS: dict[str, Callable[[], int]] = {
    "XXH3-64": lambda: xxhash.xxh3_64_intdigest(_input()),
    "CRC-32": lambda: zlib.crc32(_input()),
    "BLAKE2b-64": lambda: int.from_bytes(hashlib.blake2b(_input(), digest_size=8).digest()),
    "MD5": lambda: int.from_bytes(hashlib.md5(_input(), usedforsecurity=False).digest()[:8]),
}

if __name__ == "__main__":
    for name, function in FUNCTIONS.items():
        best = min(timeit.repeat(function, number=CALLS, repeat=5)) / CALLS
        print(f"{name:<12}{best * 1e9:8.0f} ns")
