#!/usr/bin/env python3
"""Measures the cost of one cached object in several forms: ``tools/measure_objects.py [OBJECTS]`` (default 200,000).

Each form is measured in a separate process: the added resident memory, and the time of one full collection of the
garbage collector. pubsub_lib/core/model.py explains why they matter.
"""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run from a source tree, installed or not

from pubsub_lib.core.model import Record  # noqa: E402


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


def measure(way: str, objects: int) -> str:
    """One line: bytes per object, and the time of one full collection."""
    gc.collect()
    gc.freeze()  # exclude the objects of the interpreter and its modules
    before = _resident()
    held = WAYS[way](objects)
    grown = _resident() - before
    took = min(_collection() for _ in range(3))
    del held
    return f"{way:<14}{grown / objects:6.0f} bytes per object, full collection {took * 1000:7.1f} ms"


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(measure(sys.argv[1], int(sys.argv[2])))
    else:
        for each in WAYS:
            subprocess.run([sys.executable, __file__, each, *(sys.argv[1:] or ["200000"])], check=True)
