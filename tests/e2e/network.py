"""Separate hosts on one machine: network namespaces, connected by a virtual cable that can be pulled. Needs root."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

BUFFER = 65536


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
    """One host. ``ours`` and ``its`` are the addresses of the two ends of its cable."""

    def __init__(self, number: int) -> None:
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
        ip("link", "add", self._cable, "type", "veth", "peer", "name", inside)
        ip("link", "set", inside, "netns", self.name)
        ip("addr", "add", f"{self.ours}/24", "dev", self._cable)
        ip("link", "set", self._cable, "up")
        ip("-n", self.name, "addr", "add", f"{self.its}/24", "dev", inside)
        ip("-n", self.name, "link", "set", inside, "up")
        ip("-n", self.name, "link", "set", "lo", "up")

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


@contextmanager
def namespaces(count: int) -> Iterator[list[Namespace]]:
    """Create ``count`` hosts, and remove them at the end."""
    made = [Namespace(number) for number in range(1, count + 1)]
    try:
        for each in made:
            each.make()
        yield made
    finally:
        for each in made:
            each.destroy()


class Forwarder:
    """Lets other hosts reach a server that listens only on this machine's loopback."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("0.0.0.0", 0))
        self.port: int = self._listener.getsockname()[1]
        self._carriers: list[tuple[threading.Thread, tuple[socket.socket, socket.socket]]] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

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
        back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
        back.start()
        self._pump(client, server)
        back.join()
        client.close()
        server.close()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(BUFFER):
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
