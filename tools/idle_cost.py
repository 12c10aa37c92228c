#!/usr/bin/env python3
"""Measures the cost of a publisher service while nothing is written.

``tools/idle_cost.py [--topics N] [--subscribers N] [--seconds S]``, in the environment that ``tools/test`` sets up.
Fills a SQLite database with topics, starts a service with default times, lets subscribers ask for hello replies every
``max_idle_time`` as replicas do, and prints the share of one core that the service took, its memory, and the answers.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import zmq
from _processes import free_port
from _termination import run

from pubsub_lib import Settings, Store
from pubsub_lib.core import codec
from pubsub_lib.core.timing import Timing

PER_CONTEXT = 500
BATCH = 5000
TICK = os.sysconf("SC_CLK_TCK")


def main(arguments: argparse.Namespace) -> int:
    """Measure once and print one line per figure."""
    with tempfile.TemporaryDirectory(prefix="pubsub-idle-") as folder:
        config = Path(folder) / "net.conf"
        port = free_port()
        config.write_text(
            f"[pubsub]\nstore_url = sqlite:///{folder}/net.db\nenable_pub_sub = true\nservice_name = idle\n"
            f"publisher_bind_address = 127.0.0.1\npublisher_port = {port}\n"
            f"publisher_multiproc_socket = {folder}/hop/socket\n[publisher_service]\nmetrics_port = 0\n"
        )
        fill(Settings.from_file(config).store_url, arguments.topics)
        command = [sys.executable, "-m", "pubsub_lib.service", "--config-file", str(config), "--log-level", "warning"]
        with subprocess.Popen(command) as service:
            try:
                sockets = [subscriber(port, context) for context in connected(arguments.subscribers)]
                ask_and_count(sockets, arguments.topics, 2 * Timing().max_idle_time)  # warm-up: all subscribers connect
                before = cpu(service.pid)
                asked, answered = ask_and_count(sockets, arguments.topics, arguments.seconds)
                used = cpu(service.pid) - before
                print(f"topics {arguments.topics}, subscribers {arguments.subscribers}, {arguments.seconds:g} s")
                print(f"share of one core  {100 * used / arguments.seconds:.1f} %")
                print(f"resident memory    {resident(service.pid) / 2**20:.0f} MiB")
                print(f"hello replies         {asked} asked, {answered} answered")
            finally:
                service.terminate()
                service.wait(30)
    return 0


def fill(url: str, topics: int) -> None:
    """One object in each topic."""
    with Store(url) as store:
        for start in range(0, topics, BATCH):
            with store.transaction() as tx:
                for number in range(start, min(start + BATCH, topics)):
                    tx.set("t", f"k{number}", number, topic=f"topic-{number}")


def connected(count: int) -> "list[zmq.Context[zmq.Socket[bytes]]]":
    """A context for each subscriber; a context serves ``PER_CONTEXT`` subscribers."""
    contexts: list[zmq.Context[zmq.Socket[bytes]]] = [zmq.Context() for _ in range(count // PER_CONTEXT + 1)]
    return [contexts[number // PER_CONTEXT] for number in range(count)]


def subscriber(port: int, context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
    """A socket with the options of a replica's driver."""
    socket = context.socket(zmq.SUB)
    socket.linger = 0
    socket.connect(f"tcp://127.0.0.1:{port}")
    return socket


def ask_and_count(sockets: "list[zmq.Socket[bytes]]", topics: int, seconds: float) -> tuple[int, int]:
    """Let each subscriber send a hello request about ten topics every ``max_idle_time``, evenly spread.

    Returns the number of requests and of replies.
    """
    asked = answered = 0
    pause = Timing().max_idle_time / len(sockets)
    began = time.monotonic()
    poller = zmq.Poller()
    for socket in sockets:
        poller.register(socket, zmq.POLLIN)
    while (now := time.monotonic()) < began + seconds:
        while asked < (now - began) / pause:
            nonce = os.urandom(8).hex()
            socket = sockets[asked % len(sockets)]
            wanted = [f"topic-{(asked * 10 + offset) % topics}" for offset in range(10)]
            socket.subscribe(codec.private_frame(nonce))
            socket.subscribe(codec.hello_request_frame(nonce, wanted))
            asked += 1
        for ready, _ in poller.poll(10):
            while ready.poll(0):
                ready.recv_multipart()
                answered += 1
    return asked, answered


def cpu(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    sys.exit(run("tools/idle_cost.py", lambda: main(given)))
