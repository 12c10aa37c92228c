"""What the faults of ``tools/chaos`` do to processes, with processes that only sleep."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _chaos.participant import Participant
from _chaos.plan import BROKER, DATABASE, Fault, Kind
from _chaos.schedule import Step
from _chaos.starting import Variant
from _chaos.striking import FILES, Striking
from _children import Child, Children
from _processes import alive, poll

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


class Stage:
    """A process with the name of a participant, a database server, and the calls of wires."""

    def __init__(self, children: Children, name: str, left_out: dict[Kind, str]) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.variants: dict[str, Variant] = {}
        self.children = children
        self.process = Participant(name, children, self.start)
        self.process.start()
        self.server = children.start("server", SLEEPS)
        self.ready = True
        self.ended: list[str] = []
        crew: Any = SimpleNamespace(
            all={name: self.process}, was_ready=lambda _: self.ready, ended_by_itself=self.note_end
        )  # fmt: skip
        starter: Any = SimpleNamespace(
            variants=self.variants,
            storm=self.peer,
            hostile=lambda name, *_: self.peer(name),
            liar=lambda name, *_: self.peer(name),
            port=lambda _: 7,
            flood=lambda: SimpleNamespace(stop=lambda: self.calls.append(("flood stopped", state(self.pid)))),
        )
        server: Any = SimpleNamespace(
            pid=self.server.pid,
            kill=lambda: self.calls.append(("kill",)),
            restart=lambda: self.calls.append(("restart",)),
        )
        # The broker and the database server are one process here: no fault strikes both.
        wires: Any = self
        self.striking = Striking(crew, starter, wires, server, Path("/faketime.so"), left_out, server)

    def start(self, _start: int) -> Child:
        variant = self.variants.get("service-1", Variant())
        command = [*variant.prefix, *SLEEPS]
        return self.children.start("some", command, variables=variant.variables, stdin=subprocess.PIPE)

    def note_end(self, peer: Participant) -> None:
        self.ended.append(peer.name)
        peer.forget()

    def peer(self, name: str) -> Participant:
        self.found = Participant(name, self.children, self.start)
        return self.found

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))

    @contextmanager
    def during(self, kind: Kind, victim: str, detail: str = "") -> Iterator[None]:
        fault = Fault(1.0, kind, victim, 2.0, detail)
        self.striking.execute(Step(1.0, True, fault), 1.5)
        yield
        self.striking.execute(Step(3.0, False, fault), 3.1)

    @property
    def pid(self) -> int:
        found = self.process.pid
        assert found is not None
        return found


@contextmanager
def stage(name: str = "service-1", left_out: dict[Kind, str] | None = None) -> Iterator[Stage]:
    with Children() as children:
        yield Stage(children, name, left_out or {})


def runs(participant: Participant) -> bool:
    return participant.running


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_killed_process_is_started_at_the_end() -> None:
    with stage() as on:
        first = on.pid
        with on.during("kill", "service-1"):
            assert not alive(first)
            assert not runs(on.process)
        assert alive(on.pid)
        assert on.striking.struck == {"kill": 1}
        assert on.striking.latest == 0.5


def test_paused_process_goes_on_at_the_end() -> None:
    with stage() as on:
        with on.during("pause", "service-1"):
            assert state(on.pid) == "T"
        assert poll(lambda: state(on.pid) != "T", 10.0)


def test_database_server_is_killed_and_paused_with_all_its_processes() -> None:
    with stage() as on:
        with on.during("pause", DATABASE):
            assert poll(lambda: state(on.server.pid) == "T", 10.0)
        assert poll(lambda: state(on.server.pid) != "T", 10.0)
        with on.during("kill", DATABASE):
            assert on.calls == [("kill",)]
        assert on.calls == [("kill",), ("restart",)]


def test_broker_is_killed_and_paused() -> None:
    with stage() as on:
        with on.during("pause", BROKER):
            assert poll(lambda: state(on.server.pid) == "T", 10.0)
        assert poll(lambda: state(on.server.pid) != "T", 10.0)
        with on.during("kill", BROKER):
            assert on.calls == [("kill",)]
        assert on.calls == [("kill",), ("restart",)]


def test_slow_replica_is_paused_until_the_flood_has_ended() -> None:
    with stage("replica-1") as on:
        with on.during("slow", "replica-1"):
            assert state(on.pid) == "T"
            assert on.calls == []
        assert on.calls == [("flood stopped", "T")]
        assert poll(lambda: state(on.pid) != "T", 10.0)


@pytest.mark.parametrize(
    ("kind", "detail", "calls"),
    [
        ("cut", "", [("cut", "service-1"), ("restore", "service-1")]),
        ("cut_database", "", [("cut_database", "service-1"), ("restore_database", "service-1")]),
        ("commit", "after", [("arm", "service-1", "after"), ("arm", "service-1", "")]),
    ],
)
def test_wire_is_cut_and_restored(kind: Kind, detail: str, calls: list[tuple[str, ...]]) -> None:
    with stage() as on:
        with on.during(kind, "service-1", detail):
            assert on.calls == calls[:1]
        assert on.calls == calls


def test_service_has_few_files_until_the_end() -> None:
    with stage() as on:
        usual = resource.prlimit(on.pid, resource.RLIMIT_NOFILE)
        with on.during("files", "service-1"):
            few = (FILES, FILES)
            assert poll(lambda: resource.prlimit(on.pid, resource.RLIMIT_NOFILE) == few, 10.0)
        assert resource.prlimit(on.pid, resource.RLIMIT_NOFILE) == usual != few
        assert on.process.starts == 3


def test_replica_cannot_write_to_files_until_the_end() -> None:
    with stage("replica-1") as on:
        usual = resource.prlimit(on.pid, resource.RLIMIT_FSIZE)
        with on.during("disk", "replica-1"):
            assert resource.prlimit(on.pid, resource.RLIMIT_FSIZE) == (1, usual[1])
        assert resource.prlimit(on.pid, resource.RLIMIT_FSIZE) == usual


def test_process_with_a_wrong_clock_has_the_library_until_the_end() -> None:
    with stage() as on:
        with on.during("clock", "service-1", "behind"):
            variables = on.variants["service-1"].variables
            assert (variables["LD_PRELOAD"], variables["FAKETIME"]) == ("/faketime.so", "-1d")
        assert on.variants == {}
        assert on.process.starts == 3


def must_take_the_address(on: Stage, kind: Kind, detail: str = "") -> None:
    with on.during(kind, "service-1", detail):
        ((name, victim, port),) = on.calls
        assert (name, victim) == ("redirect", "service-1")
        assert port != 7
        assert runs(on.found)
    assert on.calls[1:] == [("redirect", "service-1", 7)]
    assert not runs(on.found)


def test_hostile_peer_is_killed_at_the_end_and_an_imposter_takes_a_services_address() -> None:
    with stage() as on:
        with on.during("garbage", "hostile-1"):
            assert runs(on.found)
        assert not runs(on.found)
        must_take_the_address(on, "imposter")


def test_liar_takes_a_services_address_or_its_socket_and_the_service_is_restarted() -> None:
    with stage() as on:
        must_take_the_address(on, "lie", "publisher")
        assert on.process.starts == 2
    with stage() as on:
        with on.during("lie", "service-1", "worker"):
            assert on.calls == []
            assert runs(on.found)
        assert on.calls == []
        assert not runs(on.found)
        assert on.process.starts == 2


def test_storm_that_leaves_is_released_when_it_has_ended() -> None:
    with stage() as on:
        with on.during("storm", "storm-1", "leave"):
            pass
        assert runs(on.found)
        assert on.found.pid is not None
        os.kill(on.found.pid, signal.SIGKILL)
        assert poll(lambda: on.found.status() is not None, 10.0)
        with on.during("cut", "service-1"):
            pass
        assert not runs(on.found)
        assert on.ended == ["storm-storm-1-1"], "it was killed, so its status is not 0"
    with stage() as on:
        with on.during("storm", "storm-1", "kill"):
            pass
        assert not runs(on.found)


@pytest.mark.parametrize(
    ("kind", "victim", "detail"),
    [("storm", "storm-1", "leave"), ("storm", "storm-1", "kill"), ("garbage", "hostile-1", ""),
     ("imposter", "service-1", ""), ("lie", "service-1", "worker")],
)  # fmt: skip
def test_process_of_a_fault_that_ends_before_its_time_is_noted(kind: Kind, victim: str, detail: str) -> None:
    with stage() as on:
        on.ready = False
        with on.during(kind, victim, detail):
            assert on.found.pid is not None
            os.kill(on.found.pid, signal.SIGKILL)
            assert poll(lambda: on.found.status() is not None, 10.0)
        assert on.ended == [f"{kind}-{victim}-1"]
        assert not runs(on.found)
        assert (on.striking.struck, on.striking.absent) == ({}, {kind: 1})


def test_process_of_a_fault_struck_when_it_was_ready() -> None:
    with stage() as on:
        for on.ready in (True, False, True):
            with on.during("garbage", "hostile-1"):
                pass
        assert on.found.name == "garbage-hostile-1-3", "each process reports for itself"
        assert (on.striking.struck, on.striking.absent, on.ended) == ({"garbage": 2}, {"garbage": 1}, [])


def test_fault_of_an_absent_process_and_one_that_is_left_out_are_not_counted_as_struck() -> None:
    with stage(left_out={"cut": "no network"}) as on:
        with on.during("cut", "service-1"):
            assert on.calls == []
        on.process.kill()
        with on.during("pause", "service-1"):
            pass
        assert (on.striking.struck, on.striking.absent) == ({}, {"pause": 1})
