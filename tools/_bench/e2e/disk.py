"""The disk of the temporary folder, because each durable transaction waits for at least one fsync."""

import os
import tempfile
import time

BLOCK = b"\0" * 4096
COUNT = 100


def syncs(count: int = COUNT) -> float:
    """Appended and synced blocks of 4 KiB per second, in the folder in which every side keeps its data."""
    with tempfile.NamedTemporaryFile(prefix="pubsub-bench-") as file:
        begun = time.monotonic()
        for _ in range(count):
            os.write(file.fileno(), BLOCK)
            os.fdatasync(file.fileno())
        return count / (time.monotonic() - begun)
