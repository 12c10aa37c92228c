"""The demo with relays: its plan and files, when a relay is ready, and what the report names."""

import io
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import demo_app
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from _children import ChildError
from _processes import poll
from _routes.audit import _stopped
from _routes.configuration import Configuration
from _routes.drivers import DRIVERS
from _routes.plan import SERVICE, Plan
from _routes.publishers import Publishers
from _routes.report import RelayRow, as_json, show
from _routes.service import Service
from _routes.writer_tasks import HELD_BACK, killed_in, writer_task
from rich.console import Console

from pubsub_lib import Settings
from pubsub_lib.config.reading import Configuration as File
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.errors import UsageError
from pubsub_lib.service import settings as service_settings
from pubsub_lib.service.contradictions import find
from pubsub_lib.service.main import check
from tests.unit.audit.pages import hop
from tests.unit.tools.test_routes import audited, report, row

URL = "sqlite:////somewhere/net.db"


def demo(*arguments: str) -> Plan:
    return demo_app.plan(demo_app.parse(arguments), URL)


def loaded(file: Path) -> tuple[Settings, ServiceSettings]:
    read = File.read(str(file))
    settings, service = service_settings.load(read)
    assert list(find(read, settings, service)) == []
    return settings, service


# -- the plan and its files ------------------------------------------------------------------------------------------


def test_relay_is_killed_between_a_replica_and_the_service() -> None:
    plan = demo()
    assert plan.relays == ("relay-1", "relay-2")
    assert [kill.victim for kill in plan.kills] == ["replica-2", "relay-1", SERVICE, "worker-2"]
    assert [each.parents for each in plan.replicas] == [("relay-1", "relay-2"), (), (), ("relay-2", "relay-1")]
    assert plan.relay_topics == ("as3333", "as5409")


@pytest.mark.parametrize("driver", sorted(set(DRIVERS) - {"zmq"}))
def test_demo_has_no_relays_over_a_driver_that_binds_no_address(driver: str) -> None:
    plan = demo("--driver", driver)
    assert (plan.relays, plan.relay_topics) == ((), ())
    assert [kill.victim for kill in plan.kills] == ["replica-2", SERVICE, "worker-2"]
    assert [each.name for each in plan.replicas] == ["replica-1", "replica-2", "replica-3"]
    assert not any(each.parents for each in plan.replicas)


def test_help_names_the_drivers_without_relays(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo_app.parse(["--help"])
    assert "There are no relays with another --driver than zmq" in " ".join(capsys.readouterr().out.split())


def test_files_of_relays_and_replicas_fit_together(tmp_path: Path) -> None:
    plan = demo()
    made = Configuration(plan, tmp_path, "")
    origin, service = loaded(made.service)
    assert (service.serve_syncs, origin.store_url) == (True, URL)
    above = f"http://127.0.0.1:{service.metrics_port}"
    files = list(made.relays.values())
    for name, file in made.relays.items():
        settings, relay = loaded(file.path)
        assert f"relay {name!r} sends by zmq_pubsub_driver at {file.address}" in check(settings, relay)
        assert (settings.sync_url, relay.serve_syncs) == (above, True)
        assert file.url == f"http://127.0.0.1:{relay.metrics_port}"
        assert settings.topics == plan.relay_topics
        assert settings.timing == plan.timing
    first, second, third, fourth = plan.replicas
    below = Settings.from_file(made.of(first))
    assert (below.store_url, below.timing) == ("", plan.timing)
    assert below.parents == tuple(file.address for file in files)
    assert below.sync_url == ", ".join(file.url for file in files)
    assert below.journal.folder == origin.journal.folder
    assert Settings.from_file(made.of(fourth)).parents == below.parents[::-1]
    assert [made.of(each) for each in (second, third)] == [made.service, made.polling]


def test_service_without_relays_serves_no_syncs(tmp_path: Path) -> None:
    made = Configuration(demo("--driver", "nats"), tmp_path, "[pubsub_nats]\nservers = nats://127.0.0.1:1\n")
    _, service = loaded(made.service)
    assert (service.serve_syncs, service.metrics_port, dict(made.relays)) == (False, 0, {})


def test_name_of_what_a_replica_listened_to(tmp_path: Path) -> None:
    plan = demo()
    made = Configuration(plan, tmp_path, "")
    addresses = {name: file.address for name, file in made.relays.items()}
    below, direct, polling, _ = plan.replicas
    assert made.listened_to(below, (addresses["relay-2"],)) == "relay-2"
    assert made.listened_to(below, ("tcp://x",)) == "tcp://x"
    assert made.listened_to(direct, ("tcp://x",)) == SERVICE
    assert made.listened_to(polling, ()) == "the database"


# -- processes -------------------------------------------------------------------------------------------------------

READY = """
import os, socket, time
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
    out.sendto(b"READY=1", "\\0" + os.environ["NOTIFY_SOCKET"][1:])
time.sleep(600)
"""


class Endpoint:
    """Answers ``/ready`` with ``status``."""

    def __init__(self) -> None:
        self.status = 503
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(endpoint.status if self.path == "/ready" else 404)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def test_relay_is_ready_when_its_endpoint_reports_it(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("_routes.service.attached", lambda *_: [sys.executable, "-c", READY])
    relay = Service(tmp_path / "x.conf", tmp_path, "relay-1", endpoint.url)
    plain = Service(tmp_path / "x.conf", tmp_path)
    with relay, plain:
        relay.start()
        plain.start()
        assert poll(plain.ready, 60.0)
        assert poll(lambda: relay._socket.ready(), 60.0)
        assert not relay.ready()
        endpoint.status = 200
        assert relay.ready()
        relay.kill()
        with pytest.raises(ChildError, match="the relay-1 ended with status -9: it wrote no error"):
            relay.ready()
    assert relay.starts == 1


def test_relay_that_does_not_answer_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_routes.service.attached", lambda *_: [sys.executable, "-c", READY])
    with Service(tmp_path / "x.conf", tmp_path, "relay-1", "http://127.0.0.1:1") as relay:
        relay.start()
        assert poll(lambda: relay._socket.ready(), 60.0)
        assert not relay.ready()


def test_publishers_end_relays_before_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(Service, "end", lambda self: ended.append(self._name))
    with Publishers(Configuration(demo(), tmp_path, ""), tmp_path) as publishers:
        publishers.end()
    assert ended == ["relay-1", "relay-2", SERVICE]


@pytest.mark.parametrize(("at", "number"), [(0.0, 2), (0.5, 4), (0.8, 4)])
def test_writer_is_killed_before_the_transactions_that_are_held_back(at: float, number: int, tmp_path: Path) -> None:
    plan = demo("--seconds", "4")
    task = writer_task(plan, Configuration(plan, tmp_path, ""), 1, 74, HELD_BACK)
    assert (task.name, task.pause, task.configuration) == ("worker-2", 0.5, str(tmp_path / "service.conf"))
    assert list(killed_in(plan, task, 74, at).values()) == [f"writer.after_commit=kill@{number}"]
    assert killed_in(plan, task, 74, None) == {}
    with pytest.raises(UsageError, match="worker-2, which will be killed, has only 50 changes; give more --changes"):
        killed_in(plan, task, 50, at)


# -- the report ------------------------------------------------------------------------------------------------------

RELAYS = [RelayRow("relay-1", 2, 1), RelayRow("relay-2", 1, 0)]


def test_report_names_relays_and_what_replicas_listened_to() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    below = row(below_relays=True, listened_to="relay-2", kills=0)
    ended = report(relays=RELAYS, replicas=[below, row(name="replica-2")])
    show(ended, console)
    shown = console.export_text()
    assert "relay-1, a relay, was started 2 times and killed once." in shown
    assert "relay-2, a relay, was started once and killed 0 times." in shown
    lines = [line.strip() for line in shown.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("replica-1"))
    assert [lines[first + 1], lines[first + 3]] == ["relay-2", "ZeroMQ *"]
    assert "longest latency 1,500 ms. At the end it listened to relay-2." in shown
    found = msgspec.json.decode(as_json(ended))
    assert found["relays"] == msgspec.to_builtins(RELAYS)
    assert [each["listened_to"] for each in found["replicas"]] == ["relay-2", SERVICE]


@pytest.mark.parametrize(("name", "broken"), [("relay-1", False), ("relay-2", True)])
def test_change_that_a_relay_never_got_is_an_error_unless_it_was_killed(name: str, broken: bool) -> None:
    found = report(relays=RELAYS, audit=audited(0, stopped={name: 7})).broken()
    assert found == ([f"7 changes never came to {name}, which was not killed"] if broken else [])


def test_what_a_left_parent_sent_is_not_counted_as_stopped(tmp_path: Path) -> None:
    hops = [
        hop("relay-1", "a", arrivals=1, current=False),
        hop("relay-2", "a", arrivals=1, current=True),
        hop("relay-2", "b", arrivals=2, current=True),
        hop("demo", "c"),
    ]
    excused = [
        {"service": service, "name": name, "verdict": "excused", "detail": detail}
        for service, name, detail in (
            ("relay-1", "a", "stopped"), ("relay-2", "a", "stopped"), ("relay-2", "b", "stopped"),
            ("demo", "c", "stopped"), ("demo", "c", "covered"), ("demo", "d", "stopped"),
        )
    ]  # fmt: skip
    for table, rows in (("delivery", excused), ("tree", hops)):
        (tmp_path / table).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / table / "part-0.parquet")
    assert _stopped(tmp_path) == {"a": 1, "c": 1, "d": 1}
    assert _stopped(tmp_path / "none") == {}
