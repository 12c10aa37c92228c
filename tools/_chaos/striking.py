"""Begins and ends faults: what each kind does to its victim."""

import os
import resource
import shutil
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from _broker import Broker
from _private_server import PrivateServer
from _processes import children, free_port

from _chaos.broker_peer import Flood
from _chaos.crew import Crew
from _chaos.messages import Stop
from _chaos.participant import Participant
from _chaos.plan import BROKER, DATABASE, Fault, Kind
from _chaos.schedule import Step
from _chaos.starting import Starter, Variant
from _chaos.wires import Wires

FILES: Final = 256
"""Limit of open files of a service with few of them."""
CLOCKS: Final = {"ahead": "+1d", "behind": "-1d"}
LIBFAKETIME: Final = tuple(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
"""The library that changes the clock of a process; Debian's package libfaketime has it."""


def missing(faketime: Path | None) -> dict[Kind, str]:
    """The kinds of fault that are impossible on this machine, each with the reason."""
    found: dict[Kind, str] = {}
    if shutil.which("prlimit") is None:
        found["files"] = "prlimit is not installed; install the package util-linux"
    if faketime is None:
        found["clock"] = "libfaketime is not installed; install the package libfaketime"
    return found


class Striking:
    """For one thread. Raises OSError, ChildError, and StoreUnavailable when the database server does not start."""

    def __init__(
        self,
        crew: Crew,
        starter: Starter,
        wires: Wires,
        server: PrivateServer | None,
        faketime: Path | None,
        left_out: Mapping[Kind, str],
        broker: Broker | None = None,
    ) -> None:
        """``faketime``: libfaketime. ``left_out``: kinds of fault that are not executed."""
        self._crew = crew
        self._starter = starter
        self._wires = wires
        self._server = server
        self._faketime = faketime
        self._left_out = left_out
        self._broker = broker
        self._peers: dict[str, Participant] = {}
        """Storms and hostile peers."""
        self._floods: dict[str, Flood] = {}
        """By slow replica."""
        self._leaving: list[Participant] = []
        """Storms that were ordered to end. Those that still run at the end of the run are killed."""
        self._full: dict[str, tuple[int, int | None]] = {}
        """By victim of a full disk: its process, and the previous limit of the size of its files."""
        self._paused: list[int] = []
        """Processes of the database server."""
        self.struck: Counter[str] = Counter()
        """Begun faults by kind."""
        self.absent: Counter[str] = Counter()
        """Faults whose victim did not run when they were due, by kind: it had just ended by itself."""
        self.latest = 0.0
        """Seconds by which the latest step was executed after its time."""

    @property
    def commits_cut(self) -> int:
        """The number of connections that were cut at COMMIT; a worker may not commit while a fault waits for it."""
        return self._wires.commits_cut

    def execute(self, step: Step, now: float) -> None:
        """Begin or end a fault."""
        if step.fault.kind in self._left_out:
            return
        self.latest = max(self.latest, now - step.at)
        self._release()
        if step.begins:
            victim = self._crew.all.get(step.fault.victim)
            (self.struck if victim is None or victim.running else self.absent)[step.fault.kind] += 1
            self._begin(step.fault)
        else:
            self._end(step.fault)

    def _begin(self, fault: Fault) -> None:
        victim = fault.victim
        match fault.kind:
            case "kill" if victim == DATABASE:
                self._database.kill()
            case "kill" if victim == BROKER:
                self._the_broker.kill()
            case "kill":
                self._crew.all[victim].kill()
            case "pause" if victim == DATABASE:
                self._pause_database()
            case "pause" if victim == BROKER:
                os.kill(self._the_broker.pid, signal.SIGSTOP)
            case "pause":
                self._crew.all[victim].pause()
            case "cut":
                self._wires.cut(victim)
            case "cut_database":
                self._wires.cut_database(victim)
            case "commit":
                self._wires.arm(victim, fault.detail)
            case "slow":
                self._crew.all[victim].pause()
                self._floods[victim] = self._starter.flood()
            case "storm" | "garbage" | "imposter":
                self._start_peer(fault)
            case "files":
                self._restart(victim, Variant(prefix=("prlimit", f"--nofile={FILES}:{FILES}")))
            case "disk":
                self._fill_disk_of(victim)
            case "clock":
                clock = {"LD_PRELOAD": str(self._faketime), "FAKETIME": CLOCKS[fault.detail]}
                self._restart(victim, Variant(variables={**clock, "DONT_FAKE_MONOTONIC": "1"}))

    def _end(self, fault: Fault) -> None:
        victim = fault.victim
        match fault.kind:
            case "kill" if victim == DATABASE:
                self._database.restart()
            case "kill" if victim == BROKER:
                self._the_broker.restart()
            case "kill":
                self._crew.all[victim].start()
            case "pause" if victim == DATABASE:
                self._resume_database()
            case "pause" if victim == BROKER:
                os.kill(self._the_broker.pid, signal.SIGCONT)
            case "pause":
                self._crew.all[victim].resume()
            case "cut":
                self._wires.restore(victim)
            case "cut_database":
                self._wires.restore_database(victim)
            case "commit":
                self._wires.arm(victim, "")
            case "slow":
                self._floods.pop(victim).stop()
                self._crew.all[victim].resume()
            case "storm" | "garbage" | "imposter":
                self._end_peer(fault)
            case "files" | "clock":
                self._restart(victim, None)
            case "disk":
                self._free_disk_of(victim)

    @property
    def _database(self) -> PrivateServer:
        assert self._server is not None, "only a plan with a server has faults of it"
        return self._server

    @property
    def _the_broker(self) -> Broker:
        assert self._broker is not None, "only a plan with a broker has faults of it"
        return self._broker

    def _pause_database(self) -> None:
        # Its first process starts the others, so it is stopped first.
        os.kill(self._database.pid, signal.SIGSTOP)
        self._paused = [*children(self._database.pid), self._database.pid]
        for pid in self._paused[:-1]:
            _signal(pid, signal.SIGSTOP)

    def _resume_database(self) -> None:
        for pid in self._paused:
            _signal(pid, signal.SIGCONT)
        self._paused = []

    def _start_peer(self, fault: Fault) -> None:
        name = f"{fault.kind}-{fault.victim}"
        if fault.kind == "storm":
            peer = self._starter.storm(name)
        elif fault.kind == "garbage":
            peer = self._starter.hostile(name, repr(fault))
        else:
            port = free_port()
            peer = self._starter.hostile(name, repr(fault), port)
            self._wires.redirect(fault.victim, port)
        self._peers[name] = peer
        peer.start()

    def _end_peer(self, fault: Fault) -> None:
        peer = self._peers.pop(f"{fault.kind}-{fault.victim}")
        if fault.detail == "leave":
            peer.order(Stop())
            self._leaving.append(peer)
        else:
            peer.kill()
        if fault.kind == "imposter":
            self._wires.redirect(fault.victim, self._starter.port(fault.victim))

    def _release(self) -> None:
        for peer in [each for each in self._leaving if each.status() is not None]:
            self._leaving.remove(peer)
            peer.forget()

    def _restart(self, victim: str, variant: Variant | None) -> None:
        participant = self._crew.all[victim]
        participant.kill()
        if variant is None:
            self._starter.variants.pop(victim, None)
        else:
            self._starter.variants[victim] = variant
        participant.start()

    def _fill_disk_of(self, victim: str) -> None:
        """Each write of the process to a file fails, as with a full disk. Pipes and sockets have no limit."""
        pid = self._crew.all[victim].pid
        if pid is not None:
            self._full[victim] = pid, _limit_file_size(pid, 1)

    def _free_disk_of(self, victim: str) -> None:
        pid, size = self._full.pop(victim, (None, None))
        if pid is not None and pid == self._crew.all[victim].pid and size is not None:
            _limit_file_size(pid, size)


def _limit_file_size(pid: int, size: int) -> int | None:
    """Set the limit, and return the previous one; None: the process has just ended by itself."""
    try:
        before, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    except ProcessLookupError:
        return None
    return before


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has ended since it was listed
