"""Measures the cost of a publisher service while nothing is written: ``tools/bench idle-cost``.

Fills a SQLite database with topics, starts a service with default times, lets subscribers ask for hello replies every
``max_idle_time`` as replicas do, and prints the share of one core that the service took, its memory, and the answers.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import zmq
from _children import Children, attached
from _command_line import Parser, positive
from _processes import free_port

from _measurements.command import Finding, Findings
from _measurements.topics import fill, names
from pubsub_lib import Settings, Store
from pubsub_lib.core import codec
from pubsub_lib.core.timing import Timing

PER_CONTEXT = 500
TICK = os.sysconf("SC_CLK_TCK")
END = 30.0
"""Maximum number of seconds for a normal end of the service."""


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--topics", type=positive, default=10_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--subscribers", type=positive, default=1000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="(default: %(default)s)")


def measure(options: argparse.Namespace) -> Findings:
    """Measure once."""
    with tempfile.TemporaryDirectory(prefix="pubsub-idle-") as folder, Children() as children:
        config, port = Path(folder) / "net.conf", free_port()
        config.write_text(
            f"[pubsub]\nstore_url = sqlite:///{folder}/net.db\nenable_pub_sub = true\nservice_name = idle\n"
            f"publisher_bind_address = 127.0.0.1\npublisher_port = {port}\n"
            f"publisher_multiproc_socket = {folder}/hop/socket\n[publisher_service]\nmetrics_port = 0\n"
        )
        with Store(Settings.from_file(config).store_url) as store:
            fill(store, names(options.topics))
        command = attached("pubsub_lib.service", "--config-file", config, "--log-level", "warning")
        service = children.start("service", command)
        sockets = [subscriber(port, context) for context in connected(options.subscribers)]
        ask_and_count(sockets, options.topics, 2 * Timing().max_idle_time)  # warm-up: all subscribers connect
        before = cpu(service.pid)
        asked, answered = ask_and_count(sockets, options.topics, options.seconds)
        share, memory = 100 * (cpu(service.pid) - before) / options.seconds, resident(service.pid) / 2**20
        service.stop(END)
    given = {"topics": options.topics, "subscribers": options.subscribers, "seconds": options.seconds}
    words = f"topics {options.topics}, subscribers {options.subscribers}, {options.seconds:g} s"
    yield Finding("idle", words, given)
    yield Finding("processor", f"share of one core  {share:.1f} %", {"percent_of_a_core": share})
    yield Finding("memory", f"resident memory    {memory:.0f} MiB", {"mebibytes": memory})
    words = f"hello replies      {asked} asked, {answered} answered"
    yield Finding("hello replies", words, {"asked": asked, "answered": answered})


def connected(count: int) -> "list[zmq.Context[zmq.Socket[bytes]]]":
    """A context for each subscriber; a context serves ``PER_CONTEXT`` subscribers."""
    contexts: list[zmq.Context[zmq.Socket[bytes]]] = [zmq.Context() for _ in range(count // PER_CONTEXT + 1)]
    return [contexts[number // PER_CONTEXT] for number in range(count)]


def subscriber(port: int, context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
    """A socket with the options of a replica's driver."""
    socket = context.socket(zmq.XSUB)
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
            socket.send(b"\1" + codec.private_frame(nonce))
            socket.send(codec.hello_request_frame(nonce, wanted))
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
