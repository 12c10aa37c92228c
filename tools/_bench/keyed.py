"""What keys cost: the burst and the latency with CURVE and the clients of the database, beside both without keys."""

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from _bench import burst, latency
from _bench.measure import Log, Row, Sizes, in_turns, row
from _bench.payload import plan
from _bench.replicas import Sides
from pubsub_lib import Settings, Store, curve_keys
from pubsub_lib.api import Client
from pubsub_lib.core.model import ALL

PEER: Final = "the same without keys"


def run(sizes: Sizes, rounds: int, log: Log) -> Sequence[Row]:
    """Two rows, without a required ratio: encryption is paid for each message and client."""
    many = plan("bench", sizes.keys, sizes.changes // 10, 10, burst.SEED)
    paced = plan("bench", min(sizes.keys, 1000), sizes.latency_messages, 1, 1)
    with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as folder:
        keys = keyed(Path(folder))
        bursts = list(in_turns(rounds, lambda: burst.measure(many, keys), lambda: burst.measure(many), log))
        delays = list(
            in_turns(rounds, lambda: 1e6 * latency.direct(paced, keys), lambda: 1e6 * latency.direct(paced), log)
        )
    return [
        row("burst10-keys", "burst of 10-change transactions, with keys", "changes/s", PEER, bursts, "least", None),
        row("latency-keys", "p50 to the handler at 1,000/s, with keys", "µs", PEER, delays, "most", None),
    ]


def keyed(folder: Path) -> Sides:
    """A database with one client, who may follow everything, and its key file."""
    pair = curve_keys.new_pair()
    file = folder / "client.key"
    file.touch(mode=0o600)
    file.write_text(curve_keys.file_text("bench", pair))
    url = f"sqlite:///{folder}/clients.db"
    with closing(Store(url)) as store:
        store.directory.clients.add(Client("bench", pair.public, frozenset({ALL})))

    def change(settings: Settings) -> Settings:
        return msgspec.structs.replace(
            settings, keys=True, client_key_file=str(file), addresses=(), discovery_interval=0.2, clients_interval=0.2
        )  # fmt: skip

    return Sides(change, url)
