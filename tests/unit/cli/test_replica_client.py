"""The client of a replica's endpoint; the server at the URL may be another program."""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pubsub_lib.cli.endpoint_client import _seconds
from pubsub_lib.cli.replica_client import ReplicaClient
from pubsub_lib.core.model import Point
from pubsub_lib.core.quarantine import QuarantinedPublisher
from pubsub_lib.errors import ConfigError, NotSubscribedError, TransportError
from pubsub_lib.http_endpoint import Endpoint
from pubsub_lib.http_routes import Answered, Query
from pubsub_lib.http_server import TEXT

Serve = Callable[[int, bytes], ReplicaClient]


class Nothing(Collector):
    def collect(self) -> Iterable[Metric]:
        return ()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server that answers every request with this status and body."""
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, body: bytes) -> ReplicaClient:
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
        return ReplicaClient(f"http://127.0.0.1:{server.server_address[1]}/")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_client_sends_the_header_of_post_requests_and_waits_when_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def resync(query: Query) -> Answered:
        return 200, b"{}", TEXT

    def opened() -> Endpoint:
        endpoint = Endpoint("127.0.0.1", 0, Nothing(), list, "the_port", {"POST /resync": resync})
        closed.callback(endpoint.close)
        endpoint.start()
        return endpoint

    with ExitStack() as closed:
        client = ReplicaClient(f"http://127.0.0.1:{opened().port}")
        begin = time.monotonic()
        client.resync([])
        client.resync([])
        assert 0.9 < time.monotonic() - begin < 10.0, "the second one waited for the pause of 1 s"
        monkeypatch.setattr("pubsub_lib.http_endpoint.FIRST_PAUSE", 60.0)  # longer than the client waits for
        client = ReplicaClient(f"http://127.0.0.1:{opened().port}")
        client.resync([])
        refused = r"\(429\): this request was served just now; try again in (60|[345]\d)\."
        with pytest.raises(TransportError, match=refused):
            client.resync([])


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), (None, 1.0), ("soon", 1.0), ("99999", 1.0), ("-1", 1.0)])
def test_pause_that_a_server_asks_for_is_bounded(header: str | None, seconds: float) -> None:
    assert _seconds(header) == seconds


def test_client_reads_contents_and_objects(serve: Serve) -> None:
    replica = serve(
        200,
        b'{"topic":"a","state":"following","position":7,"nonce":8,"staleness":0.5,"objects":1,"digest":9,'
        b'"buckets":{"3":9}}',
    )
    answer = replica.contents("a")
    assert (answer.known, answer.objects, answer.digest, answer.buckets) == (Point(7, 8), 1, 9, {3: 9})
    replica = serve(200, b'{"position":null,"nonce":null,"objects":[["t","k",2,5]]}')
    assert replica.objects("a", [3]) == (None, {("t", "k"): (2, 5)})
    replica.resync([])
    replica = serve(200, b'{"quarantined":[{"service":"api-1","uuid":"u","seconds_left":2.5}]}')
    assert replica.quarantined() == [QuarantinedPublisher("api-1", "u", 2.5)]


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"quarantined":[{"service":1}]}', b'{"quarantined":7}'])
def test_client_detects_a_list_of_publishers_that_is_none(body: bytes, serve: Serve) -> None:
    with pytest.raises(TransportError, match="is not a replica of this library"):
        serve(200, body).quarantined()


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"hello"), (200, b"[]"), (200, b"{}"), (200, b'{"position":1}'), (404, b"no such page"), (405, b""),
     (200, b'{"position":1,"nonce":1,"state":"","staleness":0,"objects":[1],"digest":1,"buckets":{"x":1}}')],
)  # fmt: skip
def test_client_detects_a_server_that_is_not_a_replica(status: int, body: bytes, serve: Serve) -> None:
    replica = serve(status, body)
    with pytest.raises(TransportError, match="is not a replica of this library"):
        replica.contents("a")
    with pytest.raises(TransportError, match="is not a replica of this library"):
        replica.objects("a", [1])


def test_error_responses_are_reported(serve: Serve) -> None:
    with pytest.raises(TransportError, match=r"rejected the request \(503\): this replica is closed"):
        serve(503, b"this replica is closed\n").contents("a")
    with pytest.raises(NotSubscribedError, match="not subscribed to the topic 'a'"):
        serve(404, b"the replica is not subscribed to the topic 'a'; its topics are []\n").resync(["a"])


@pytest.fixture
def raw_server() -> Iterator[Callable[..., ReplicaClient]]:
    """A server that answers every connection with these bytes, whatever the request, and closes it."""
    listeners: list[socket.socket] = []

    def start(*parts: bytes) -> ReplicaClient:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def answer() -> None:
            try:
                while True:
                    with listener.accept()[0] as peer:
                        peer.recv(65536)
                        for part in parts:
                            peer.sendall(part)
            except OSError:
                return  # the listener was closed, or the client closed the connection

        threading.Thread(target=answer, daemon=True).start()
        return ReplicaClient(f"http://127.0.0.1:{listener.getsockname()[1]}")

    yield start
    for each in listeners:
        each.shutdown(socket.SHUT_RDWR)
        each.close()


@pytest.mark.parametrize(
    "reply",
    [
        bytes.fromhex("ff00000000000000017f") + b"\x03\x00NULL" + bytes(46),  # a ZeroMQ peer's greeting
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"sta',  # cut off
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 404 no\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    ],
)
def test_client_detects_another_protocol(reply: bytes, raw_server: Callable[..., ReplicaClient]) -> None:
    replica = raw_server(reply)
    with pytest.raises(TransportError, match="is not a replica of this library"):
        replica.contents("a")
    with pytest.raises(TransportError, match="is not a replica of this library"):
        replica.resync([])


def test_client_limits_the_size_of_an_answer(
    raw_server: Callable[..., ReplicaClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsub_lib.cli.endpoint_client.MAX_BYTES", 1 << 20)
    begin = b"HTTP/1.1 200 OK\r\n\r\n["
    with pytest.raises(TransportError, match="is not a replica of this library"):
        raw_server(begin, *[b"1," * 50_000] * 100).contents("a")


def test_client_times_out_on_a_slow_answer(
    raw_server: Callable[..., ReplicaClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr("pubsub_lib.cli.endpoint_client.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with pytest.raises(TransportError, match=r"cannot be reached \(its answer was not complete after 30 s\)"):
        raw_server(b"HTTP/1.1 200 OK\r\n\r\n[", *[b"1," * 50_000] * 100).contents("a")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/a b", "127.0.0.1:1/\x7f", "http://127.0.0.1:1/\u00e4"])
def test_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the URL of a replica"):
        ReplicaClient(url)
