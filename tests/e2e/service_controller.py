"""A controller process: a replica that can be killed at a failpoint, or by its own handler at the n-th event.

``service_controller.py CONFIG KILL_AT_EVENT``: prints "synced", then for each position it reads: waits until it is
handled, and prints what it holds as JSON.
"""

import json
import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

from pubsub_lib import Replica, Settings

TOPICS = ("t0", "t1")
LONG = 60.0


def main(config: Path, kill_at: int) -> None:
    numbers = count(1)

    def handler(_: Any) -> None:
        if next(numbers) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    with Replica(Settings.from_file(config), TOPICS) as replica:
        replica.on("item", handler)
        replica.wait_synced(LONG)
        print("synced", flush=True)
        for line in sys.stdin:
            replica.wait_handled(int(line), LONG, topics=TOPICS)
            held = {record.key: [record.version, record.value.decode()] for record in replica.records("item")}
            print(json.dumps(held), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
