"""Clients without this library: they send ZMTP by hand, as fast as they can, from their own process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.unit.drivers.zmq.world import ROOT

GREETING = b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48)
READY = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB"
PUBLISHER_READY = b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x04XPUB"
PART = b"\x01\x00"
"""A part of a message, without content, after which another part follows."""
TOGGLE = b"\x00\x02\x01?\x00\x02\x00?"
"""A subscription to a prefix, and its end. "?" is another character for each connection: what another connection has,
ZeroMQ does not report."""
REQUEST = b"\x00\x04H?\0\x90"
"""A hello request without topics, which is no subscription."""

_FLOOD = """
import selectors, socket, sys
port, number, unit, repeats = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3]), int(sys.argv[4])
hello = bytes.fromhex(sys.argv[5])
chosen = selectors.DefaultSelector()
for connection in range(number):
    each = socket.create_connection(("127.0.0.1", port))
    each.sendall(hello)
    answer = b""
    while b"Socket-Type" not in answer:
        answer += each.recv(1000)
    each.setblocking(False)
    block = unit.replace(b"?", bytes([65 + connection % 100])) * min(repeats, 10_000)
    chosen.register(each, selectors.EVENT_WRITE, [block, 0, repeats * len(unit)])
print("begins", flush=True)
while chosen.get_map():
    for key, _ in chosen.select():
        block, at, left = key.data
        try:
            sent = key.fileobj.send(block[at:at + left])
        except BlockingIOError:
            continue
        except OSError:
            chosen.unregister(key.fileobj)
            print("ended", flush=True)
            continue
        key.data[1:] = (at + sent) % len(block), left - sent
        if left == sent:
            chosen.unregister(key.fileobj)
print("done", flush=True)
sys.stdin.read()
"""


@contextmanager
def flood(address: str, connections: int, unit: bytes, repeats: int) -> Iterator["subprocess.Popen[str]"]:
    """Each connection sends this unit so often, or until it is ended; it stays open until the end of the block. The
    process prints "ended" for each that was ended, and then "done".
    """
    port = address.rpartition(":")[2]
    child = subprocess.Popen(
        [sys.executable, "-c", _FLOOD, port, str(connections), unit.hex(), str(repeats), (GREETING + READY).hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
        cwd=ROOT,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "begins\n"
        yield child
    finally:
        child.kill()
        child.communicate()


LEAVER = """
import socket, sys
port, hello = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
print("begins", flush=True)
while True:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as bare:
            bare.sendall(hello)
            answer = b""
            while b"XPUB" not in answer:
                answer += bare.recv(1000) or b"XPUB"
            bare.sendall(b"\\0\\4\\1Bxx")
    except OSError:
        continue
"""
"""Connects, subscribes and leaves. After ``max_connections``, or while the publisher holds, it is dropped."""


@contextmanager
def leaving(address: str) -> Iterator[None]:
    """A client that connects, subscribes and leaves again and again, until the end of the block."""
    command = [sys.executable, "-c", LEAVER, address.rpartition(":")[2], (GREETING + READY).hex()]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"begins\n"
            yield
            assert child.poll() is None
        finally:
            child.kill()


_CROWD = """
import socket, sys
port, hello, number = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), int(sys.argv[3])
print("begins", flush=True)
while True:
    crowd = []
    for connection in range(number):
        try:
            each = socket.create_connection(("127.0.0.1", port), timeout=5.0)
            each.sendall(hello)
            answer = b""
            while b"XPUB" not in answer:
                answer += each.recv(1000) or b"XPUB"
            each.sendall(b"\\0\\4\\1B%02x" % (connection % 256))
        except OSError:
            continue
        crowd.append(each)
    for each in crowd:
        each.close()
"""
"""All connect and subscribe, then all leave at once, and connect again."""


@contextmanager
def crowd(address: str, number: int = 1000) -> Iterator[None]:
    """This number of clients that connect, leave together and connect again, until the end of the block."""
    command = [sys.executable, "-c", _CROWD, address.rpartition(":")[2], (GREETING + READY).hex(), str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"begins\n"
            yield
            assert child.poll() is None
        finally:
            child.kill()


_PUBLISHER = """
import socket, sys, threading
host, port, unit, repeats = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3]), int(sys.argv[4])
hello = bytes.fromhex(sys.argv[5])
listener = socket.create_server((host, port), backlog=100)
print(listener.getsockname()[1], flush=True)
def serve(client):
    try:
        client.sendall(hello)
        answer = b""
        while b"Socket-Type" not in answer:
            answer += client.recv(1000) or b"Socket-Type"
        block = unit * min(repeats, 10_000)
        left = repeats * len(unit)
        while left > 0:
            client.sendall(block[:left])
            left -= len(block)
        while client.recv(1000):
            pass
    except OSError:
        pass
    client.close()
while True:
    client, _ = listener.accept()
    threading.Thread(target=serve, args=(client,), daemon=True).start()
"""


@contextmanager
def publisher(unit: bytes, repeats: int, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """A program at a publisher's address, in its own process, until the end of the block. It sends this unit so often
    to each subscriber that connects, as fast as it can. Yields its address.
    """
    hello = (GREETING + PUBLISHER_READY).hex()
    command = [sys.executable, "-c", _PUBLISHER, host, str(port), unit.hex(), str(repeats), hello]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield f"tcp://{host}:{int(child.stdout.readline())}"
            assert child.poll() is None
        finally:
            child.kill()
