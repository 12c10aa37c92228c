"""What a follower remembers between two processes, in small files beside the spool.

Names of files may hold any bytes. Python's own JSON can write them, msgspec's refuses text that is not UTF-8.
"""

import json
from pathlib import Path
from typing import TypeVar

import msgspec

from pubsub_lib.audit.durable import write_whole

T = TypeVar("T")


def recall(path: Path, kind: type[T]) -> T | None:
    """What was remembered; None: nothing, or the file is damaged. Raises OSError."""
    try:
        return msgspec.convert(json.loads(path.read_bytes()), kind)
    except (FileNotFoundError, ValueError, msgspec.ValidationError):
        return None


def remember(path: Path, content: object) -> None:
    """Keep something of JSON's types. Raises OSError."""
    write_whole(path, json.dumps(content).encode())
