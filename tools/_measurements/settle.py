"""Measures how long many replicas of many topics take to settle, and their idle cost: ``tools/bench settle``.

Real ZeroMQ over loopback, SQLite, default times; one process for each replica. Prints when all replicas are synced, how
long a commit takes then and when all replicas have it, and the messages and bytes per replica and second while nothing
is written. Exit code 1: not settled within the limit, or more messages while idle than ``--max-rate``.
"""

import argparse
import importlib
import json
import math
import os
import queue
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from _children import Child, Children, attached
from _command_line import Parser, positive
from _processes import free_ports

from _measurements.command import Finding, Findings
from _measurements.topics import TABLE, commit, fill, names
from pubsub_lib import Publisher, Replica, Settings, Store
from pubsub_lib.errors import PubSubError, WaitTimeout

COMMITS = 5
QUIET = 2 * 5.0
"""Seconds after which no message of the commits is under way."""


class NotSettledError(PubSubError):
    """A replica ended, or did not settle within the limit."""


def settings(folder: str, ports: Sequence[int], number: int = 0) -> Settings:
    """The settings of publisher ``number``, and of every replica."""
    return Settings(
        store_url=f"sqlite:///{folder}/settle.db",
        driver="zmq_pubsub_driver",
        service_name=f"settle-{number}",
        addresses=tuple(f"tcp://127.0.0.1:{port}" for port in ports),
        bind_address=f"tcp://127.0.0.1:{ports[number]}",
    )


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--replicas", type=positive, default=10, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--topics", type=positive, default=10_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--publishers", type=positive, default=1, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--everything", action="store_true", help="replicas of all topics")
    parser.add_argument(
        "--idle", type=float, default=20.0, metavar="S", help="seconds of the idle measurement (default: %(default)s)"
    )
    parser.add_argument(
        "--max-rate", type=float, default=math.inf, metavar="N",
        help="messages a second that an idle replica may receive (default: any number)",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=float, default=60.0, metavar="S", help="seconds until all is settled (default: %(default)s)"
    )


def measure(options: argparse.Namespace) -> Findings:
    """Measure once."""
    with tempfile.TemporaryDirectory(prefix="pubsub-settle-") as folder, ExitStack() as stack:
        topics, ports = names(options.topics), free_ports(options.publishers)
        stores = [stack.enter_context(Store(f"sqlite:///{folder}/settle.db")) for _ in ports]
        fill(stores[0], topics)
        publishers = [
            stack.enter_context(Publisher(settings(folder, ports, number), each)) for number, each in enumerate(stores)
        ]
        children = stack.enter_context(Children())
        yield Finding("load", f"load {_load():.1f}", {"load": _load()})
        began = time.monotonic()
        replicas = [Following(children, folder, ports, options) for _ in range(options.replicas)]
        try:
            yield _after("synced", "all synced", began, replicas, options.limit)
            taken = [commit(stores[0], topics, number, -1) for number in range(COMMITS)]
            words = f"a commit           {1000 * min(taken):.1f} to {1000 * max(taken):.1f} ms"
            yield Finding("commit", words, {"min_seconds": min(taken), "max_seconds": max(taken)})
            yield _after("settled", "commits everywhere", began, replicas, options.limit)
        except NotSettledError as error:
            yield Finding("settled", str(error), {"limit_seconds": options.limit}, met=False)
            return
        yield from idle(replicas, publishers, options.idle, options.max_rate)


def _load() -> float:
    return os.getloadavg()[0]


def _after(name: str, title: str, began: float, replicas: "Sequence[Following]", limit: float) -> Finding:
    for each in replicas:
        each.report(began + limit)
    seconds = time.monotonic() - began
    words = f"{title:<18} after {seconds:.1f} s (load {_load():.1f})"
    return Finding(name, words, {"seconds": seconds, "limit_seconds": limit, "load": _load()}, seconds <= limit)


def idle(
    replicas: "Sequence[Following]", publishers: Sequence[Publisher], seconds: float, max_rate: float
) -> Findings:
    """The messages and bytes that arrive while nothing is written. ``max_rate``: messages a second that are allowed."""
    before = [dict(each.counters()) for each in publishers]
    figures = [each.report(time.monotonic() + 4 * seconds + 60) for each in replicas]
    asked = sum(each.counters()["asks"] - past["asks"] for each, past in zip(publishers, before, strict=True))
    messages = max(each["messages"] / each["seconds"] for each in figures)
    size = max(each["bytes"] / each["seconds"] for each in figures)
    words = f"idle, per replica  {messages:.2f} messages/s, {size:.0f} bytes/s at most"
    figures_of_one = {"messages_per_second": messages, "bytes_per_second": size}
    yield Finding("idle", words, figures_of_one, messages <= max_rate)
    words = f"idle, requests     {asked / seconds:.1f} hello requests/s at all publishers"
    yield Finding("requests", words, {"hello_requests_per_second": asked / seconds})
    stale, polling = max(each["staleness"] for each in figures), sum(each["polling"] for each in figures)
    words = f"staleness          {stale:.1f} s at most, {polling} replicas poll"
    yield Finding("staleness", words, {"max_seconds": stale, "polling": polling})


class Following:
    """A replica in a separate process."""

    def __init__(self, children: Children, folder: str, ports: Sequence[int], options: argparse.Namespace) -> None:
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        what = json.dumps({
            "folder": folder, "ports": list(ports), "topics": options.topics, "everything": options.everything,
            "idle": options.idle,
        })  # fmt: skip
        self._child: Child = children.start("replica", attached(__name__, what), on_line=self._lines.put)

    def report(self, until: float) -> Any:
        """The next line of the process. Raises NotSettledError when the process ended or was too late."""
        try:
            line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            line = None
        if line is None:
            raise NotSettledError("not settled within the limit")
        return json.loads(line)


def replicate(what: dict[str, Any]) -> None:
    """The child: follow, and report when synced, when all commits are received, and the figures while idle."""
    receiver: Any = importlib.import_module("pubsub_zmq.receiver")
    size = 0
    receive = receiver.receive

    def counting(socket: Any) -> Any:
        nonlocal size
        frames = receive(socket)
        size += sum(map(len, frames))
        return frames

    receiver.receive = counting
    topics = [""] if what["everything"] else names(what["topics"])
    with Replica(settings(what["folder"], what["ports"]), topics=topics) as replica:
        replica.wait_synced(600.0)
        print("1", flush=True)
        while any(replica.get(TABLE, f"k{number % what['topics']}") != -1 for number in range(COMMITS)):
            try:
                replica.wait_for(2**62, 0.1)
            except WaitTimeout:
                pass
        print("2", flush=True)
        time.sleep(QUIET)
        received, taken, began = replica.status().driver["received"], size, time.monotonic()
        time.sleep(what["idle"])
        status = replica.status()
        print(
            json.dumps({
                "messages": status.driver["received"] - received, "bytes": size - taken,
                "seconds": time.monotonic() - began, "staleness": replica.staleness(), "polling": status.polling,
            }),
            flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    replicate(json.loads(sys.argv[1]))
