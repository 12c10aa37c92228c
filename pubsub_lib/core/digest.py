"""The additive digest of a topic: the sum, modulo 2**64, of a fingerprint of every object in it.

Order does not matter. So writers add and subtract under the topic's lock, and replicas do the same when they apply.
"""

import xxhash

MASK = (1 << 64) - 1
BUCKETS = 256
"""Number of buckets into which a repair divides a topic's objects."""


def fingerprint(table: str, key: str, version: int, value: bytes) -> int:
    """64-bit fingerprint (XXH3) of one object in one version."""
    return xxhash.xxh3_64_intdigest(f"{table}\0{key}\0{version}\0".encode() + value)


def bucket_of(table: str, key: str) -> int:
    """The bucket of an object, 0..255. It depends on the identity only, so it stays when the value changes."""
    return xxhash.xxh3_64_intdigest(f"{table}\0{key}".encode()) & (BUCKETS - 1)


def add(digest: int, fp: int) -> int:
    """The digest after an object with this fingerprint was added."""
    return (digest + fp) & MASK


def subtract(digest: int, fp: int) -> int:
    """The digest after an object with this fingerprint was removed."""
    return (digest - fp) & MASK
