"""The processes of ``tools/bench herd``: a database behind a proxy that counts, services, relays, and replicas."""

import logging
import os
import resource
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from sys import getsizeof
from typing import Final

import msgspec
from _bench.measure import BenchError
from _children import Child, Children, Line, attached
from _processes import free_ports, poll

from pubsub_lib import Replica, Settings, Store, Worker
from pubsub_lib.core.contents import Contents
from pubsub_lib.core.merged_view import HeldObject
from pubsub_lib.core.model import ALL, Full, SyncAnswer, Want
from pubsub_lib.sync.client import SyncClient
from pubsub_lib.sync.question import SyncQuestion

TABLE: Final = "lport"
MARK: Final = "mark"
"""The table of the change that is committed after a start: everybody must get it as a message."""
PATIENCE: Final = 300.0
VALUE_BYTES: Final = 300
BATCH: Final = 2_000
"""Objects of one transaction."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def names(topics: int) -> list[str]:
    """The topics."""
    return [f"tenant-{number}" for number in range(topics)]


def fill(url: str, objects: int, topics: Sequence[str]) -> int:
    """Write the objects. Returns the bytes of the data: topic, table, key and value of each, without any overhead."""
    size = 0
    with Store(url) as store:
        for start in range(0, objects, BATCH):
            with store.transaction() as tx:
                for number in range(start, min(start + BATCH, objects)):
                    topic, key, value = topics[number % len(topics)], f"port-{number:07d}", value_of(number)
                    tx.set(TABLE, key, value, topic=topic)
                    size += len(topic) + len(TABLE) + len(key) + len(msgspec.json.encode(value))
    return size


def value_of(number: int) -> dict[str, object]:
    """A value with about ``VALUE_BYTES`` bytes of JSON, half of which are as random as those of a real object."""
    noise = f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}{number * 0xD1B54A32D192ED03 % 2**64:016x}"
    made: dict[str, object] = {
        "name": f"port-{number:07d}",
        "uuid": noise,
        "switch": f"switch-{number % 997}",
        "mac": ":".join(noise[at : at + 2] for at in range(0, 12, 2)),
        "addresses": [f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"],
        "security_groups": [noise[:8], noise[8:16], noise[16:24]],
        "enabled": True,
    }
    return {**made, "note": "-" * (VALUE_BYTES - len(msgspec.json.encode({**made, "note": ""})))}


class Node:
    """A publisher service, as an origin or as a relay, that can be killed and started again at the same addresses."""

    def __init__(self, folder: Path, name: str, role: str, children: Children) -> None:
        self.name, self.role = name, role
        self._folder, self._children = folder, children
        self.port, self.http = free_ports(2)
        self.address, self.url = f"tcp://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.http}"
        self.config = folder / f"{name}.conf"
        self.child: Child | None = None

    def configure(self, lines: str, service: str = "") -> None:
        """Write its file: lines of ``[pubsub]``, and of ``[publisher_service]``."""
        self.config.write_text(
            f"[pubsub]\nenable_pub_sub = true\nservice_name = {self.name}\npublisher_bind_address = 127.0.0.1\n"
            f"publisher_port = {self.port}\npublisher_multiproc_socket = {self._folder}/{self.name}/hop\n"
            f"default_topic = false\n{lines}[publisher_service]\nrole = {self.role}\nserve_syncs = true\n"
            f"metrics_port = {self.http}\n{service}"
        )

    def start(self) -> None:
        """Start it, without waiting."""
        command = attached("pubsub_lib.service", "--config-file", self.config, "--log-level", "error")
        self.child = self._children.start(self.name, command, log=self._folder / f"{self.name}.log")

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        if self.child is not None:
            self._children.end(self.child)
            self.child = None

    def wait_ready(self) -> None:
        """Wait until its endpoint reports ready. Raises BenchError."""
        if not poll(self._is_ready, PATIENCE):
            assert self.child is not None
            raise BenchError(f"{self.name} is not ready after {PATIENCE:.0f} s: {self.child.last_words()}")

    def _is_ready(self) -> bool:
        assert self.child is not None
        if self.child.process.poll() is not None:
            raise BenchError(f"{self.name} ended: {self.child.last_words()}")
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def use(self) -> "Use":
        """What it has used since its start."""
        assert self.child is not None
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60) as answer:
            numbers = numbers_in(answer.read().decode())
        return Use(self.name, *memory_of(self.child.pid), processor_of(self.child.pid), numbers)


class Use(msgspec.Struct, frozen=True):
    """What a process has used since its start."""

    name: str
    rss: int
    """Bytes of memory now."""
    peak: int
    """The most bytes of memory so far."""
    processor: float
    """Seconds of processor time."""
    numbers: Mapping[str, float]
    """Its metrics of syncs: ``syncs full``, ``sync_channel answered`` …"""


def numbers_in(text: str) -> dict[str, float]:
    """The counters of syncs in the text of ``/metrics``."""
    found = {}
    for line in text.splitlines():
        for part in ("syncs", "sync_channel"):
            begin = f'pubsub_service_{part}_total{{what="'
            if line.startswith(begin):
                what, _, value = line.removeprefix(begin).partition('"} ')
                found[f"{part} {what}"] = float(value)
    return found


def memory_of(pid: int) -> tuple[int, int]:
    """Bytes of memory of a process: now, and the most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines if line.startswith(("VmRSS:", "VmHWM:")))
    return int(values["VmRSS"].split()[0]) * 1024, int(values["VmHWM"].split()[0]) * 1024


def processor_of(pid: int) -> float:
    """Seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Wanted(msgspec.Struct, frozen=True):
    """One replica: its settings, and its topics with the number of objects of each."""

    settings: Settings
    topics: Mapping[str, int]


class Seen(msgspec.Struct, frozen=True):
    """What one process with replicas reports."""

    synced: Sequence[float]
    """When each replica was synced, by the machine's monotonic clock."""
    fulls: int
    """Topics whose objects all of them have received from a sync channel."""
    failed: int
    """Failed syncs of all of them, most because the relay was busy or not yet synced."""
    processor: float
    """Seconds of processor time of the whole process."""


def follow(line: Line, replicas: Sequence[Wanted]) -> None:
    """Run replicas, and report when all have all objects. Then, for each number that arrives: report when all have that
    mark, and what they have read until then.
    """
    logging.disable(logging.WARNING)  # failed syncs are counted
    reads = Reads()
    running = [Replica(each.settings, tuple(each.topics)) for each in replicas]
    for each in running:
        each.start()
    synced = [0.0] * len(running)

    def all_synced() -> bool:
        for number, each in enumerate(running):
            if not synced[number] and each.synced:
                synced[number] = time.monotonic()
        return all(synced)

    if not poll(all_synced, PATIENCE):
        status = running[synced.index(0.0)].status()
        raise BenchError(f"a replica is not synced after {PATIENCE:.0f} s: {status.last_error or status.problems}")
    for each, wanted in zip(running, replicas, strict=True):
        _check_objects(each, wanted.topics)
    line.send(_seen(running, synced, reads.fulls))
    while True:
        mark = line.wait()
        if not poll(partial(_all_have, mark, running, replicas), PATIENCE):
            raise BenchError(f"a replica does not get the mark {mark} within {PATIENCE:.0f} s")
        line.send(_seen(running, synced, reads.fulls))


def _all_have(mark: int, running: Sequence[Replica], replicas: Sequence[Wanted]) -> bool:
    return all(_has(mark, each, wanted) for each, wanted in zip(running, replicas, strict=True))


def _has(mark: int, replica: Replica, wanted: Wanted) -> bool:
    return all(replica.get(MARK, topic) == mark for topic in wanted.topics)


def _check_objects(replica: Replica, topics: Mapping[str, int]) -> None:
    """Raises BenchError when a topic has another number of objects."""
    for topic, expected in topics.items():
        found = sum(1 for each in replica.contents(topic).records if each.table == TABLE)
        if found != expected:
            raise BenchError(f"a replica has {found} objects of the topic {topic}, not {expected}")


def _seen(replicas: Sequence[Replica], synced: Sequence[float], fulls: int) -> Seen:
    used = resource.getrusage(resource.RUSAGE_SELF)
    failed = sum(each.status().counters.syncs_failed for each in replicas)
    return Seen(tuple(synced), fulls, failed, used.ru_utime + used.ru_stime)


class Reads:
    """Counts the answers of all sync channels that this process asks, in place of :meth:`.SyncClient.ask`."""

    def __init__(self) -> None:
        self.fulls = 0
        """Topics whose objects were all received."""
        lock = threading.Lock()
        ask: Callable[[SyncClient, SyncQuestion], SyncAnswer] = SyncClient.ask

        def counted(client: SyncClient, question: SyncQuestion) -> SyncAnswer:
            answer = ask(client, question)
            with lock:
                self.fulls += sum(1 for part in answer.chains.values() if isinstance(part, Full))
            return answer

        SyncClient.ask = counted  # type: ignore[method-assign,assignment]


def commit(line: Line, url: str, config: Path, topics: Sequence[str], mark: int) -> None:
    """Commit one change in each topic, and hand it over to the service of this file."""
    settings = Settings.from_file(config)
    with Store(url, origin=settings.service_name) as store, Worker(settings, store), store.transaction() as tx:
        for topic in topics:
            tx.set(MARK, topic, mark, topic=topic)
    line.send()


def cached(url: str) -> int:
    """The bytes of the objects in a replica's or relay's memory: entries, keys, values, and their share of tables."""
    with Store(url, read_only=True) as store:
        answer = store.read_sync({ALL: Want()})
    part = answer.chains[ALL]
    assert isinstance(part, Full)
    size = 0
    for contents in part.topics.values():
        assert isinstance(contents.records, Contents)
        for objects in contents.records.tables.values():
            size += 2 * getsizeof(objects)  # the topic's table, and its part of the merged view
            size += sum(getsizeof(key) + getsizeof(each) + _parts(each) for key, each in objects.items())
    return size


def _parts(entry: HeldObject) -> int:
    return getsizeof(entry.value) + getsizeof(entry.version) + getsizeof(entry.fingerprint)
