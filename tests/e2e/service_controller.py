"""A controller process: a replica that can be killed at a failpoint.

``service_controller.py CONFIG [TOPIC …]`` prints "synced". Then, for each position in its input, it
waits until the position is handled, and prints its objects as JSON. It follows two topics and those given.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pubsub_lib import Replica, Settings

TOPICS = ("t0", "t1")
LONG = 120.0


def main(config: Path, more: Sequence[str]) -> None:
    with Replica(Settings.from_file(config), (*TOPICS, *more)) as replica:
        replica.on("item", lambda event: None)
        replica.wait_synced(LONG)
        print("synced", flush=True)
        for line in sys.stdin:
            replica.wait_handled(int(line), LONG, topics=TOPICS)
            held = {record.key: [record.version, record.json.decode()] for record in replica.records("item")}
            print(json.dumps(held), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
