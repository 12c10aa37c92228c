"""Messages of a rogue publisher with numbers that fit in no column: journals and the audit are unaffected."""

import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.audit.main import main
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Message
from pubsub_lib.core.model import Change, Head, Link, Point
from pubsub_lib.journal.compaction import compact
from pubsub_lib.journal.reading import find
from pubsub_zmq.buckets import bucketed
from tests.e2e.service_host import LONG, Host, Watched, write

TOPIC = "t0"
POISON: dict[str, dict[str, Any]] = {
    "infinity": {"written_at": float("inf")},
    "nan": {"written_at": float("nan")},
    "1e300": {"written_at": 1e300},
    "-1e15": {"written_at": -1e15},
    "overflow": {"sequence": 2**63 - 1},
    "parts": {"part": 2**62, "parts": 2**64 - 1},
}


def poisoned(
    head: Head, store_id: bytes, sequence: int = 1, part: int = 1, parts: int = 1, written_at: float = 0.0
) -> list[bytes]:
    """The frames of a link that connects to this head. Made without the codec's own checks."""
    version = head.point.position + 1
    change = Change("item", "forged", "set", version, b'{"owner":"mallory"}')
    link = Link(TOPIC, head.point, Point(version, 7), [change], head.count + 1, 7, head.point, 1, "api-1", written_at)
    body = [1, 2, "api-1", secrets.token_bytes(16), sequence, [Message(link, part, parts)] * 2, None, store_id]
    return [bucketed(codec.topic_frame(TOPIC)), msgspec.msgpack.encode(body)]


class Rogue:
    """A publisher that sends given frames to each new subscriber, while the true one works."""

    def __init__(self, address: str) -> None:
        self.frames: list[list[bytes]] = []
        self.sent = 0
        self._stop = threading.Event()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(address)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            while self._socket.poll(0):
                self._socket.recv()
            for frames in self.frames:
                self._socket.send_multipart(frames)
                self.sent += 1

    def close(self) -> None:
        self._stop.set()
        self._thread.join(LONG)
        self._socket.close()
        self._context.term()


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(
        tmp_path / "host", sqlite_url, publishers_ips="127.0.0.1,127.0.0.2", journal_folder=tmp_path / "journals"
    )
    yield found
    found.close()


def verdict(folder: Path, database: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], dict[str, int]]:
    """Exit code, problems, and the numbers of expected messages by their verdict."""
    capsys.readouterr()
    code = main(["run", str(folder), "--store", database, "-f", "json", "--bound", "10"])
    found = msgspec.json.decode(capsys.readouterr().out)
    return code, found["problems"], {name: number for name, number in found["balance"][""].items() if number}


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.long
@pytest.mark.parametrize("attack", [False, True], ids=["no attack", "six frames"])
def test_poisoned_frames_leave_journals_and_the_audit_unchanged(
    attack: bool, host: Host, tmp_path: Path, sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service, worker = host.service(), host.worker()
    write(worker, 5)
    rogue = Rogue(f"tcp://127.0.0.2:{host.settings.bind_address.rpartition(':')[2]}")
    with Store(sqlite_url) as store:
        try:
            with Watched(host.settings) as watched:
                head = store.read_heads([TOPIC]).topics[TOPIC]
                if attack:
                    rogue.frames = [poisoned(head, store.store_id, **each) for each in POISON.values()]
                    assert poll(lambda: watched.replica.status().dropped.get("foreign", 0) >= 2 * len(POISON), LONG)
                    rogue.frames = []
                watched.must_come_to(write(worker, 5), store)
                assert watched.replica.get("item", "forged") is None
        finally:
            rogue.close()
    worker.communicate()
    service.terminate()
    assert service.wait(LONG) == 0
    done = compact(tmp_path / "journals")
    assert done.unreadable == 0
    assert not find([tmp_path / "journals"]).append
    code, problems, balance = verdict(tmp_path / "journals", sqlite_url, capsys)
    assert (code, problems) == (0, [])
    assert balance.keys() - {"excused"} == {"expected", "delivered"}
