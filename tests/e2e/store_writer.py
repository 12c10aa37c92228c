"""A writer process that can be killed anywhere and started again: it counts to a number, with one transaction a step.

It writes (step, nonce) to its journal before the transaction ends, so that after a kill it can ask the store whether
that transaction was committed. A transaction applied twice is detected: the create of the step's item would fail, and
the count would be larger than the step.
"""

import sys
from pathlib import Path

from pubsub_lib.store import Store, StoreSettings

SETTINGS = StoreSettings(lock_timeout=5.0, retry_attempts=200, retry_max_seconds=60.0, connect_timeout=2.0)


def main(database: str, journal: Path, total: int) -> None:
    with Store(database, settings=SETTINGS) as store:
        step = resume(store, journal)
        while step < total:
            step += 1
            with store.transaction() as tx, journal.open("a", encoding="utf-8") as out:
                counted = tx.get("count", "n") or 0
                tx.set("count", "n", counted + 1)
                tx.create("item", f"step-{step}", {"step": step}, topic=f"topic-{step % 3}")
                out.write(f"{step} {tx.nonce}\n")


def resume(store: Store, journal: Path) -> int:
    """Return the last committed step."""
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    if not lines:
        return 0
    step, nonce = map(int, lines[-1].split())
    return step if store.committed(nonce) else step - 1


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
