"""Parts of ``tools/chaos``: participants, figures, wires, configuration, report and exit codes."""

import contextlib
import io
import json
import queue
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _chaos import messages
from _chaos.configuration import Configuration
from _chaos.crew import Ended
from _chaos.figures import Figures, ReplicaFigures
from _chaos.messages import Failed, Finish, Followed, ReplicaTask, Stop, WorkerTask, Wrote
from _chaos.participant import Part, Participant, Received
from _chaos.plan import Cast
from _chaos.report import FaultRow, ReplicaRow, Report, WorkerRow, as_json, show
from _chaos.wires import Wires
from _chaos.worker import Choices
from _children import Child, ChildError, Children
from _processes import alive, free_port, poll
from _routes.comparison import Differences
from rich.console import Console
from sqlalchemy import make_url

from pubsub_lib import Settings
from pubsub_lib.testing.stream_proxy import TCP

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
NONE = Differences(0, "")
REPLICA = ReplicaRow("replica-1", False, (), 3, 20, 90, 120, 0, 1.5, 0.7, 0, 0, "", NONE)
GOOD = Report(
    seed=7,
    database="sqlite",
    seconds=60.0,
    plan="0123456789abcdef",
    faults=[FaultRow("kill", 5, 4, 1), FaultRow("cut", 3, 3, 0)],
    left_out={"disk": "no disk"},
    latest_step=0.1,
    objects=20,
    position=100,
    changes=100,
    failed_attempts=2,
    deliveries=90,
    workers=[WorkerRow("worker-1", "service-1", 2, 10, 11)],
    replicas=[REPLICA],
    services={"service-1": 2},
    ended=[],
    unexplained=[],
    sabotaged=None,
    audit=None,
)
ENDED = Ended("service-1", 3.5, 70, "internal error")


def changed(row: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(row, **fields)


@pytest.mark.parametrize(
    ("report", "code", "sentence"),
    [
        (
            changed(GOOD, replicas=[changed(REPLICA, from_database=Differences(2, "'k1', which is missing"))]),
            1,
            "replica-1 differs from the database in 2 objects, for example 'k1', which is missing",
        ),
        (
            changed(GOOD, replicas=[changed(REPLICA, late="timeout")]),
            1,
            "replica-1 has not handled every change: timeout",
        ),
        (
            changed(GOOD, replicas=[changed(REPLICA, twice=3)]),
            1,
            "the handler of replica-1 was called 3 times again for a version",
        ),
        (
            changed(GOOD, replicas=[changed(REPLICA, undone=2)]),
            1,
            "the handler of replica-1 was called 2 times again after a changed history",
        ),
        (
            changed(GOOD, workers=[WorkerRow("worker-1", "service-1", 1, 10, 9)]),
            1,
            "worker-1 committed 10 transactions, the store has 9",
        ),
        (
            changed(GOOD, workers=[WorkerRow("worker-1", "service-1", 1, 0, 0)]),
            1,
            "no transaction of worker-1 was acknowledged",
        ),
        (changed(GOOD, dead=["worker-1 committed nothing"]), 1, "worker-1 committed nothing"),
        (changed(GOOD, audit_problems=["exit code 1: lost"]), 4, "the audit: exit code 1: lost"),
        (
            changed(GOOD, unexplained=[ENDED]),
            5,
            "service-1 ended by itself after 3.5 s with status 70: internal error",
        ),
    ],
)
def test_each_failed_check_has_an_exit_code_and_a_sentence(report: Report, code: int, sentence: str) -> None:
    assert report.broken() == [(code, sentence)]
    output = io.StringIO()
    show(report, Console(file=output, width=150))
    assert output.getvalue().endswith("A check failed.\n")
    assert json.loads(as_json(report))["broken"] == [sentence]


def test_worst_of_several_failed_checks_comes_first() -> None:
    late = changed(REPLICA, late="timeout")
    report = changed(GOOD, unexplained=[ENDED], audit_problems=["lost"], replicas=[late])
    assert [code for code, _ in report.broken()] == [1, 4, 5]


def test_good_report_names_faults_starts_and_what_is_left_out() -> None:
    assert GOOD.broken() == []
    output = io.StringIO()
    show(GOOD, Console(file=output, width=150))
    shown = output.getvalue()
    assert "Left out: disk (no disk)." in shown
    assert "Seed 7 (plan 0123456789abcdef), sqlite, 60 s: 7 faults, 7 starts of processes" in shown
    assert "90 deliveries; longest staleness 1.5 s; the services ended in 0.0 s." in shown
    assert shown.endswith("Every check passed.\n")
    assert json.loads(as_json(GOOD))["number_of_faults"] == 7


def test_lie_that_struck_explains_calls_after_a_changed_history() -> None:
    undone = changed(GOOD, replicas=[changed(REPLICA, undone=2)], faults=[FaultRow("lie", 2, 1, 1)])
    assert undone.broken() == []
    assert changed(undone, faults=[FaultRow("lie", 1, 0, 1)]).broken() != []
    output = io.StringIO()
    show(undone, Console(file=output, width=150))
    assert "Handlers were called 2 times again for a version, after a notice of a changed history." in output.getvalue()


def test_figures_are_sums_and_maxima_over_the_starts_of_a_participant() -> None:
    figures = Figures()
    for start, done in ((1, 5), (2, 9)):
        figures.wrote("worker-1", start, Wrote(done=done, changes=10 * start, failed=start))
    figures.wrote("worker-1", 2, Wrote(done=12, changes=30, failed=2))
    figures.followed("replica-1", 1, Followed(10, 12, 0, 4.0, 1.0))
    figures.followed("replica-1", 2, Followed(5, 25, 1, 3.0, 2.0))
    figures.followed("replica-2", 1, Followed(1, 1, 0, 9.0, 9.0))
    assert (figures.acknowledged("worker-1"), figures.acknowledged("worker-2")) == (12, 0)
    assert (figures.changes, figures.failed, figures.deliveries) == (40, 3, 16)
    assert figures.replica("replica-1") == ReplicaFigures(15, 37, 1, 4.0, 2.0)
    assert figures.replica("replica-3") == ReplicaFigures()


class Recorded:
    """A transaction that records the operations."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.topics: list[str] = []

    def set(self, _table: str, key: str, _value: object, topic: str) -> None:
        self.keys.append(key)
        self.topics.append(topic)

    def delete(self, _table: str, key: str, missing_ok: bool) -> None:
        assert missing_ok
        self.keys.append(key)


def test_choices_of_a_worker_come_from_its_seed_and_change_each_key_once() -> None:
    def chosen(seed: str) -> list[list[str]]:
        choices = Choices(WorkerTask("worker-1", "", ("a", "b"), 10, 6, 0.1, seed))
        made = [Recorded() for _ in range(50)]
        for number, tx in enumerate(made):
            choices.record(tx, number)
        assert all(len(set(tx.keys)) == len(tx.keys) == 6 for tx in made)
        assert {topic for tx in made for topic in tx.topics} == {"a", "b"}
        return [tx.keys for tx in made]

    assert chosen("7 worker-1 1") == chosen("7 worker-1 1") != chosen("7 worker-1 2")


def test_participant_is_killed_started_paused_and_resumed() -> None:
    with Children() as children:
        some = Participant("some", children, lambda _start: children.start("some", SLEEPS))
        some.kill()
        some.pause()
        assert (some.running, some.status(), some.starts) == (False, None, 0)
        some.start()
        first = some.pid
        some.start()
        assert (some.pid, some.starts) == (first, 1)
        some.pause()
        assert first is not None
        assert Path(f"/proc/{first}/stat").read_text().rpartition(") ")[2][0] == "T"
        some.resume()
        some.pause()
        some.kill()
        assert not alive(first)
        some.start()
        assert (some.starts, some.running) == (2, True)


def test_process_that_ends_by_itself_has_a_status_and_last_words(tmp_path: Path) -> None:
    def start(_start: int) -> Child:
        return children.start("some", [sys.executable, "-c", "import sys; sys.exit('no room')"], log=tmp_path / "log")

    with Children() as children:
        some = Participant("some", children, start)
        some.start()
        assert poll(lambda: some.status() is not None, 30.0)
        assert (some.status(), some.forget(), some.running) == (1, "no room", False)


def test_part_with_an_invalid_task_reports_why_it_failed(tmp_path: Path) -> None:
    received: queue.SimpleQueue[Received] = queue.SimpleQueue()
    task = ReplicaTask("replica-1", str(tmp_path / "missing.conf"), ())
    with Children() as children:
        part = children.add(lambda: Part(task, 3, received, tmp_path / "log", {}))
        name, start, message = received.get(timeout=60.0)
        assert (name, start) == ("replica-1", 3)
        assert isinstance(message, Failed)
        assert "missing.conf" in message.sentence
        assert part.process.wait(60.0) == 1


def test_orders_and_tasks_are_one_line_each() -> None:
    for order in (Stop(), Finish(7, "/x", 1.0)):
        line = msgspec.json.encode(order)
        assert b"\n" not in line
        assert msgspec.json.Decoder(messages.Order).decode(line) == order


def test_cut_wire_ends_connections_and_refuses_new_ones() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Wires({"service-1": server.getsockname()[1]}, "sqlite://", 0, ["service-1"]) as wires,
    ):
        assert wires.url("service-1") == "sqlite://"
        host, _, port = wires.address("service-1").removeprefix(TCP).rpartition(":")
        with socket.create_connection((host, int(port)), 30.0) as client:
            server.accept()[0].close()
            wires.cut("service-1")
            assert client.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), 30.0)
        wires.restore("service-1")
        socket.create_connection((host, int(port)), 30.0).close()


def test_redirected_wire_leads_to_another_port() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        Wires({"service-1": free_port()}, "sqlite://", 0, []) as wires,
    ):
        other.settimeout(30.0)
        wires.redirect("service-1", other.getsockname()[1])
        _, _, port = wires.address("service-1").rpartition(":")
        with socket.create_connection(("127.0.0.1", int(port)), 30.0) as client:
            client.sendall(b"x")
            connection, _ = other.accept()
            with connection:
                connection.settimeout(30.0)
                assert connection.recv(1) == b"x"


def test_each_process_has_its_own_way_to_a_database_server() -> None:
    url = "postgresql+psycopg://user:secret@127.0.0.1:5432/db"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Wires({}, url, server.getsockname()[1], ["worker-1", "replica-1"]) as wires,
    ):
        server.settimeout(30.0)
        ways = {make_url(wires.url(name)).port for name in ("worker-1", "replica-1")}
        assert len(ways) == 2
        assert 5432 not in ways
        assert make_url(wires.url("worker-1")).password == "secret"
        wires.arm("worker-1", "before")
        with socket.create_connection(("127.0.0.1", make_url(wires.url("worker-1")).port or 0), 30.0) as client:
            server.accept()[0].close()
            client.settimeout(30.0)
            client.sendall(b"COMMIT")
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
        wires.cut_database("replica-1")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", make_url(wires.url("replica-1")).port or 0), 30.0)


def test_configuration_files_are_valid_and_name_the_proxy(tmp_path: Path) -> None:
    cast = Cast(services=1, workers=1, replicas=1, polling=1)
    configuration = Configuration(cast, tmp_path)
    shown, url = f"{TCP}127.0.0.1:{free_port()}", "postgresql://u:a$b@127.0.0.1/db"
    service = Settings.from_file(configuration.service("service-1", shown, url))
    assert service.store_url == url
    assert service.bind_address == f"{TCP}127.0.0.1:{configuration.ports['service-1']}"
    worker = Settings.from_file(configuration.worker("worker-1", shown, "sqlite:///x"))
    assert (worker.store_url, worker.service_name) == ("sqlite:///x", "service-1")
    assert worker.multiproc_socket == service.multiproc_socket
    receiving = Settings.from_file(configuration.replica("replica-1", shown, url))
    assert (receiving.addresses, receiving.driver) == ((shown,), "zmq_pubsub_driver")
    polling = Settings.from_file(configuration.replica("replica-2", shown, url))
    assert polling.driver == "db_polling_pubsub_driver"
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.glob("*.conf"))


@pytest.mark.parametrize("driver", ["nats", "redis"])
def test_configuration_files_of_a_broker_name_the_proxy_of_each_process(driver: str, tmp_path: Path) -> None:
    cast = Cast(services=1, workers=1, replicas=1, polling=1, driver=driver)
    configuration = Configuration(cast, tmp_path)
    assert configuration.ports == {}
    service = Settings.from_file(configuration.service("service-1", "", "sqlite:///x", 7001))
    worker = Settings.from_file(configuration.worker("worker-1", "", "sqlite:///x"))
    receiving = Settings.from_file(configuration.replica("replica-1", "", "sqlite:///x", 7002))
    assert service.driver == worker.driver == receiving.driver == f"{driver}_pubsub_driver"
    assert worker.multiproc_socket == service.multiproc_socket
    for settings, port in ((service, 7001), (receiving, 7002)):
        (address,) = [str(value) for value in settings.driver_options.values() if "127.0.0.1" in str(value)]
        assert f"127.0.0.1:{port}" in address
    assert Settings.from_file(configuration.replica("replica-2", "", "sqlite:///x", 0)).driver.startswith("db_polling")


def test_wire_to_the_broker_is_cut_for_one_process() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Wires({}, "sqlite://", 0, [], server.getsockname()[1], ["service-1", "replica-1"]) as wires,
    ):
        assert wires.to_broker("worker-1") == wires.broker_port == server.getsockname()[1]
        wires.cut("replica-1")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", wires.to_broker("replica-1")), 30.0)
        socket.create_connection(("127.0.0.1", wires.to_broker("service-1")), 30.0).close()
        wires.restore("replica-1")
        socket.create_connection(("127.0.0.1", wires.to_broker("replica-1")), 30.0).close()


def test_report_over_a_broker_names_the_transport_and_the_slow_consumers() -> None:
    output = io.StringIO()
    show(changed(GOOD, driver="nats", cut_off=3), Console(file=output, width=150))
    assert "NATS" in output.getvalue()
    assert "ZeroMQ" not in output.getvalue()
    assert "\n3 connections of slow consumers were cut off by the broker.\n" in output.getvalue()


def test_process_that_ignores_sigterm_leaves_its_stacks_in_its_log(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(7, flush=True); time.sleep(600)"
    log = tmp_path / "log"

    def start(_start: int) -> Child:
        variables = {"PYTHONFAULTHANDLER": "1"}
        return children.start("some", [sys.executable, "-c", code], log=log, variables=variables)

    with Children() as children:
        some = Participant("some", children, start)
        some.start()
        assert poll(lambda: log.read_text() == "7\n", 30.0)
        with pytest.raises(ChildError, match="the some did not end within 0 s after SIGTERM"):
            some.terminate(0.1)
        assert "Fatal Python error: Aborted" in log.read_text()
