"""Who answers at a replica's URL may be anybody."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pubsub_lib.cli.asked_replica import AskedReplica
from pubsub_lib.core.model import Point
from pubsub_lib.errors import NotFollowed, TransportError

Serve = Callable[[int, bytes], AskedReplica]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Somebody who answers every question with this."""
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, body: bytes) -> AskedReplica:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return AskedReplica(f"http://127.0.0.1:{server.server_address[1]}/")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_what_a_replica_tells(serve: Serve) -> None:
    replica = serve(
        200,
        b'{"topic":"a","state":"following","position":7,"nonce":8,"staleness":0.5,"objects":1,"digest":9,'
        b'"buckets":{"3":9}}',
    )
    told = replica.contents("a")
    assert (told.known, told.objects, told.digest, told.buckets) == (Point(7, 8), 1, 9, {3: 9})
    replica = serve(200, b'{"position":null,"nonce":null,"objects":[["t","k",2,5]]}')
    assert replica.objects("a", [3]) == (None, {("t", "k"): (2, 5)})
    replica.resync([])


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"hello"), (200, b"[]"), (200, b"{}"), (200, b'{"position":1}'), (404, b"no such page"), (405, b""),
     (200, b'{"position":1,"nonce":1,"state":"","staleness":0,"objects":[1],"digest":1,"buckets":{"x":1}}')],
)  # fmt: skip
def test_somebody_else_is_called_no_replica(status: int, body: bytes, serve: Serve) -> None:
    replica = serve(status, body)
    with pytest.raises(TransportError, match="is no replica of this library"):
        replica.contents("a")
    with pytest.raises(TransportError, match="is no replica of this library"):
        replica.objects("a", [1])


def test_refusals_say_why(serve: Serve) -> None:
    with pytest.raises(TransportError, match=r"refuses \(503\): this replica is closed"):
        serve(503, b"this replica is closed\n").contents("a")
    with pytest.raises(NotFollowed, match="the topic 'a' is not followed"):
        serve(404, b"the topic 'a' is not followed; followed are []\n").resync(["a"])
