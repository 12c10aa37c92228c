#!/usr/bin/env python3
"""Measures how long many replicas of many topics take to settle, and their cost while nothing is written.

``tools/settle.py [--replicas N] [--topics N] [--publishers N] [--everything] [--idle S] [--limit S]``, in the
environment that ``tools/test`` sets up. Real ZeroMQ over loopback, SQLite, default times; one process for each replica.
Prints when all replicas are synced, how long a commit takes then and when all replicas have it, and the messages and
bytes per replica and second while nothing is written. Exit status 1: not settled within the limit.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from _processes import free_port
from _termination import run, uninterrupted

from pubsub_lib import Publisher, Replica, Settings, Store
from pubsub_lib.errors import WaitTimeout

COMMITS = 5
BATCH = 5000


def topics_of(count: int) -> list[str]:
    """The names of the topics."""
    return [f"topic-{number}" for number in range(count)]


def settings(folder: str, ports: Sequence[int], number: int = 0) -> Settings:
    """The settings of publisher ``number``, and of every replica."""
    return Settings(
        store_url=f"sqlite:///{folder}/settle.db",
        driver="zmq_pubsub_driver",
        service_name=f"settle-{number}",
        addresses=tuple(f"tcp://127.0.0.1:{port}" for port in ports),
        bind_address=f"tcp://127.0.0.1:{ports[number]}",
    )


def main(arguments: argparse.Namespace) -> int:
    """Measure once and print one line per figure."""
    with tempfile.TemporaryDirectory(prefix="pubsub-settle-") as folder, ExitStack() as stack:
        ports = [free_port() for _ in range(arguments.publishers)]
        stores = [stack.enter_context(Store(f"sqlite:///{folder}/settle.db")) for _ in ports]
        fill(stores[0], arguments.topics)
        publishers = [
            stack.enter_context(Publisher(settings(folder, ports, number), each)) for number, each in enumerate(stores)
        ]
        print(f"load {os.getloadavg()[0]:.1f}", flush=True)
        began = time.monotonic()
        children = [child(folder, ports, arguments, stack) for _ in range(arguments.replicas)]
        for each in children:
            report_of(each, began + arguments.limit)
        synced = time.monotonic() - began
        print(f"all synced         after {synced:.1f} s (load {os.getloadavg()[0]:.1f})", flush=True)
        commits = [commit(stores[0], number, arguments.topics) for number in range(COMMITS)]
        print(f"a commit           {1000 * min(commits):.1f} to {1000 * max(commits):.1f} ms", flush=True)
        for each in children:
            report_of(each, began + arguments.limit)
        settled = time.monotonic() - began
        print(f"commits everywhere after {settled:.1f} s (load {os.getloadavg()[0]:.1f})", flush=True)
        report(children, publishers, arguments)
    return 0 if settled <= arguments.limit else 1


def fill(store: Store, topics: int) -> None:
    """One object in each topic."""
    for start in range(0, topics, BATCH):
        with store.transaction() as tx:
            for number in range(start, min(start + BATCH, topics)):
                tx.set("t", f"k{number}", number, topic=f"topic-{number}")


def commit(store: Store, number: int, topics: int) -> float:
    """Commit one change. Returns the seconds."""
    began = time.monotonic()
    with store.transaction() as tx:
        tx.set("t", f"k{number}", -1, topic=f"topic-{number % topics}")
    return time.monotonic() - began


def report(children: "list[subprocess.Popen[str]]", publishers: list[Publisher], arguments: argparse.Namespace) -> None:
    """Print the messages and bytes that arrive while nothing is written."""
    before = [dict(each.counters()) for each in publishers]
    figures = [report_of(each, time.monotonic() + 4 * arguments.idle + 60) for each in children]
    asked = sum(each.counters()["asks"] - past["asks"] for each, past in zip(publishers, before, strict=True))
    messages = [each["messages"] / each["seconds"] for each in figures]
    sizes = [each["bytes"] / each["seconds"] for each in figures]
    print(f"idle, per replica  {max(messages):.2f} messages/s, {max(sizes):.0f} bytes/s at most")
    print(f"idle, requests     {asked / arguments.idle:.1f} hello requests/s at all publishers")
    print(f"staleness          {max(each['staleness'] for each in figures):.1f} s at most, "
          f"{sum(each['polling'] for each in figures)} replicas poll")  # fmt: skip


def child(
    folder: str, ports: Sequence[int], arguments: argparse.Namespace, stack: ExitStack
) -> "subprocess.Popen[str]":
    """Start a replica in a separate process, which is killed at the end of the stack."""
    what = json.dumps({
        "folder": folder, "ports": list(ports), "topics": arguments.topics, "everything": arguments.everything,
        "idle": arguments.idle,
    })  # fmt: skip
    command = [sys.executable, __file__, "--child", what]
    with uninterrupted():
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
    return process


def report_of(process: "subprocess.Popen[str]", until: float) -> Any:
    """The next line of a child, which has its own timeout. Raises SystemExit when the child ended or was too late."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line or time.monotonic() > until:
        raise SystemExit("not settled within the limit")
    return json.loads(line)


def replicate(what: dict[str, Any]) -> int:
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
    names = [""] if what["everything"] else topics_of(what["topics"])
    with Replica(settings(what["folder"], what["ports"]), topics=names) as replica:
        replica.wait_synced(600.0)
        print("1", flush=True)
        while any(replica.get("t", f"k{number}") != -1 for number in range(COMMITS)):
            try:
                replica.wait_for(2**62, 0.1)
            except WaitTimeout:
                pass
        print("2", flush=True)
        time.sleep(2 * 5.0)  # until no message of the commits is under way
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
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--replicas", type=int, default=10)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--publishers", type=int, default=1)
    parser.add_argument("--everything", action="store_true", help="replicas of all topics")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of the idle measurement")
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        sys.exit(replicate(given.child))
    sys.exit(run("tools/settle.py", lambda: main(given)))
