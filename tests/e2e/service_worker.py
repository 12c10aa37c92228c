"""A worker process of a host with a publisher service: reads numbers from its input, commits so many transactions each
time, and prints the position it came to. ``service_worker.py CONFIG ORIGIN``
"""

import sys
from pathlib import Path

from pubsub_lib import Settings, Store, Worker

KEYS = 7


def main(config: Path, origin: str) -> None:
    settings = Settings.from_file(config)
    with Store(settings.store_url, origin=origin) as store, Worker(settings, store):
        print("ready", flush=True)
        for line in sys.stdin:
            for _ in range(int(line)):
                step = store.unique_id("step")
                with store.transaction() as tx:
                    tx.set("item", f"k{step % KEYS}", step, topic=f"t{step % 2}")
            assert tx.commit is not None
            print(tx.commit.point.position, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
