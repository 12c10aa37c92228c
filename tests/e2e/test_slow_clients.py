"""Slow clients hold the connections of an HTTP endpoint, and its supervisor is answered all the time."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from _processes import free_port, poll

from pubsub_lib.http_limits import MAX_CONNECTIONS, REQUEST_TIMEOUT
from tests.e2e.service_host import LONG, Host, answer, order, write
from tests.unit.test_http_server import ready_status

SECONDS: Final = 4 * REQUEST_TIMEOUT
"""Time for which slow clients hold the connections: each of these ends several times."""
LATE: Final = 5.0
"""Seconds in which ``/ready`` must answer, also on a busy machine; a supervisor waits as long."""
PROBE: Final = 0.25
"""Seconds between two probes."""
ANSWERS: Final = 1.5 * SECONDS
"""Minimum number of answers, also on a busy machine. When no kept connection is replaced, it is 0.8 a second."""


class Attack:
    """More clients than connections, which send a byte now and then, and connect again when they are cut off."""

    def __init__(self, port: int) -> None:
        self.begun = 0
        """Number of connections so far."""
        self._port = port
        self._clients: list[socket.socket] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(LONG)
        for each in self._clients:
            each.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            while len(self._clients) < MAX_CONNECTIONS + 8:
                self._clients.append(socket.create_connection(("127.0.0.1", self._port), LONG))
                with suppress(ConnectionError):  # cut off already
                    self._clients[-1].sendall(b"GET /ready HTTP/1.1\r\nX: ")
                self.begun += 1
            for each in list(self._clients):
                try:
                    each.sendall(b"x")
                except OSError:
                    self._clients.remove(each)
                    each.close()
            self._stop.wait(0.05)


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(tmp_path, sqlite_url)
    yield found
    found.close()


@pytest.mark.long
@pytest.mark.slow
def test_ready_of_a_service_is_true_and_answered_while_slow_clients_hold_its_connections(host: Host) -> None:
    service = host.service()
    must_answer(host.metrics_port)
    assert service.poll() is None
    assert poll(host.is_ready, LONG)


@pytest.mark.long
@pytest.mark.slow
def test_ready_of_a_controller_is_true_and_answered_while_slow_clients_hold_its_connections(
    tmp_path: Path, sqlite_url: str
) -> None:
    host = Host(tmp_path, sqlite_url, replica_metrics_port=(port := free_port()))
    try:
        host.service()
        worker, controller = host.worker(), host.controller()
        assert answer(controller) == "synced\n"
        must_answer(port)
        assert controller.poll() is None
        order(controller, write(worker, 2))
        assert len(json.loads(answer(controller))) == 2, "it goes on"
        assert ready_status(port) == 200
    finally:
        host.close()


def must_answer(port: int) -> None:
    """Check the answers of ``/ready`` at this port while slow clients hold its connections."""
    attack = Attack(port)
    try:
        assert poll(lambda: attack.begun > MAX_CONNECTIONS + 8, LONG), "some were cut off"
        begun, answers, slowest = attack.begun, [], 0.0
        until = time.monotonic() + SECONDS
        while (asked := time.monotonic()) < until:
            answers.append(ready_status(port))
            slowest = max(slowest, time.monotonic() - asked)
            time.sleep(PROBE)
        assert set(answers) <= {200, None}, "None: this program paused, and looked like a slow client"
        assert answers.count(200) > ANSWERS
        assert slowest < LATE
        assert attack.begun > begun + MAX_CONNECTIONS, "the attack went on"
    finally:
        attack.close()
