"""Separate hosts on one machine: network namespaces, connected by virtual cables that can be pulled. Needs root."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

BUFFER = 65536
NOWHERE = "02:00:00:00:00:01"
"""The MAC address of no interface: an interface drops the packets that are sent to it."""


def missing() -> str:
    """The reason why namespaces cannot be created here, in one sentence; "" when they can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and iproute2; run as root where `ip` is installed"
    name = f"ps{os.getpid()}x"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"this kernel or container makes no network namespaces ({done.stderr.strip()}); allow CAP_SYS_ADMIN"
    ip("netns", "del", name)
    return ""


def ip(*arguments: str) -> None:
    """Run ``ip``; CalledProcessError when it fails."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Namespace:
    """One host. ``ours`` and ``its`` are the addresses of the two ends of its cable. One that is ``apart`` has none."""

    def __init__(self, number: int, *, apart: bool = False) -> None:
        self._apart = apart
        self.name = f"ps{os.getpid()}n{number}"
        self._cable = f"ps{os.getpid() % 100_000}v{number}"
        net = f"10.{200 + number}.{os.getpid() % 250}"  # tests that run in parallel have neighbouring pids
        self.ours, self.its = f"{net}.1", f"{net}.2"

    @property
    def prefix(self) -> list[str]:
        """The words before a command that run it on this host."""
        return ["ip", "netns", "exec", self.name]

    def make(self) -> None:
        """Create the host and connect its cable."""
        inside = f"{self._cable}i"
        ip("netns", "add", self.name)
        ip("-n", self.name, "link", "set", "lo", "up")
        if self._apart:
            return
        ip("link", "add", self._cable, "type", "veth", "peer", "name", inside)
        ip("link", "set", inside, "netns", self.name)
        ip("addr", "add", f"{self.ours}/24", "dev", self._cable)
        ip("link", "set", self._cable, "up")
        ip("-n", self.name, "addr", "add", f"{self.its}/24", "dev", inside)
        ip("-n", self.name, "link", "set", inside, "up")

    def pull(self) -> None:
        """Pull the cable: packets are lost, and neither end gets an error."""
        ip("link", "set", self._cable, "down")

    def plug(self) -> None:
        """Connect the cable again."""
        ip("link", "set", self._cable, "up")

    def destroy(self) -> None:
        """Remove the host and its cable."""
        for arguments in (("link", "del", self._cable), ("netns", "del", self.name)):
            subprocess.run(["ip", *arguments], check=False, capture_output=True)


class Cable:
    """A cable between two hosts. It is removed with any of them. ``addresses``: those of its ends, by host."""

    def __init__(self, number: int, one: Namespace, other: Namespace) -> None:
        name, net = f"ps{os.getpid() % 100_000}c{number}", f"10.{220 + number}.{os.getpid() % 250}"
        self._ends = {one: f"{name}a", other: f"{name}b"}
        self.addresses = {one: f"{net}.1", other: f"{net}.2"}
        ip("link", "add", self._ends[one], "type", "veth", "peer", "name", self._ends[other])
        for host, end in self._ends.items():
            ip("link", "set", end, "netns", host.name)
            ip("-n", host.name, "addr", "add", f"{self.addresses[host]}/24", "dev", end)
            ip("-n", host.name, "link", "set", end, "up")

    def cut(self, *receivers: Namespace) -> None:
        """Lose all packets to these hosts: connections stay, and neither end gets an error. A packet in the other
        direction arrives, but TCP sends no more after some seconds, because the acknowledgements are lost.
        """
        for receiver in receivers:
            (sender,) = self._ends.keys() - {receiver}
            address, device = self.addresses[receiver], self._ends[sender]
            lost = ("lladdr", NOWHERE, "nud", "permanent")
            ip("-n", sender.name, "neigh", "replace", address, "dev", device, *lost)

    def restore(self) -> None:
        """Lose no packets any more."""
        for host, device in self._ends.items():
            ip("-n", host.name, "neigh", "flush", "dev", device, "nud", "permanent")


@contextmanager
def namespaces(count: int, apart: int = 0) -> Iterator[list[Namespace]]:
    """Create ``count`` hosts, and ``apart`` more that are, and remove them at the end."""
    made = [Namespace(number, apart=number > count) for number in range(1, count + apart + 1)]
    try:
        for each in made:
            each.make()
        yield made
    finally:
        for each in made:
            each.destroy()


Side = Literal["client", "server"]


class Forwarder:
    """Lets other hosts reach a server that listens only on this machine's loopback. Can lose what passes."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("0.0.0.0", 0))
        self.port: int = self._listener.getsockname()[1]
        self._carriers: list[tuple[threading.Thread, tuple[socket.socket, socket.socket]]] = []
        self._lost: tuple[Side, ...] = ()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self, *receivers: Side) -> None:
        """Lose all bytes to these sides, also on new connections. Connections stay open, and no side gets an error."""
        self._lost = receivers

    def restore(self) -> None:
        """Lose no bytes any more. The connections end, because bytes in the middle of them may be missing."""
        self._lost = ()
        for _, pair in self._carriers:
            self._cut(pair)

    def close(self) -> None:
        """Accept no further connections, and cut the remaining ones."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()
        for carrier, pair in self._carriers:
            self._cut(pair)
            carrier.join(10)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                pair = (client, socket.create_connection(("127.0.0.1", self._target)))
            except OSError:
                client.close()  # as the server itself would refuse it
                continue
            carrier = threading.Thread(target=self._carry, args=pair, daemon=True)
            self._carriers.append((carrier, pair))
            carrier.start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=self._pump, args=(server, client, "client"), daemon=True)
        back.start()
        self._pump(client, server, "server")
        back.join()
        client.close()
        server.close()

    def _pump(self, source: socket.socket, target: socket.socket, receiver: Side) -> None:
        try:
            while data := source.recv(BUFFER):
                if receiver not in self._lost:
                    target.sendall(data)
        except OSError:
            pass  # one end was cut, so the other one is cut below
        self._cut((source, target))

    @staticmethod
    def _cut(pair: tuple[socket.socket, socket.socket]) -> None:
        for each in pair:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # already cut
