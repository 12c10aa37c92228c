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
from _processes import children

from _chaos.broker_peer import Flood
from _chaos.crew import Crew
from _chaos.peers import KINDS as PEERS
from _chaos.peers import Peers
from _chaos.plan import BROKER, DATABASE, LIE, Fault, Kind
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
        self._peers = Peers(crew, starter, wires)
        self._floods: dict[str, Flood] = {}
        """By slow replica."""
        self._full: dict[str, tuple[int, int | None]] = {}
        """By victim of a full disk: its process, and the previous limit of the size of its files."""
        self._paused: list[int] = []
        """Processes of the database server."""
        self.struck: Counter[str] = Counter()
        """Faults that had an effect, by kind: the victim ran, or the process of the fault got ready."""
        self.absent: Counter[str] = Counter()
        """The others, by kind: the victim had just ended by itself, or the process got ready too late."""
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
        self.release()
        if step.fault.kind in PEERS:
            self._execute_peer(step)
        elif step.begins:
            victim = self._crew.all.get(step.fault.victim)
            self._count(step.fault, victim is None or victim.running)
            self._begin(step.fault)
        else:
            self._end(step.fault)

    def release(self) -> None:
        """Release processes of faults that have ended since they were ordered to."""
        self._peers.release()

    def _execute_peer(self, step: Step) -> None:
        if step.begins:
            self._peers.begin(step.fault)
        else:
            self._count(step.fault, self._peers.end(step.fault))
            if step.fault.kind == LIE:
                # Who believed the lie excludes the UUID of the service for 600 s. An operator restarts the service.
                self._restart(step.fault.victim, None)

    def _count(self, fault: Fault, struck: bool) -> None:
        (self.struck if struck else self.absent)[fault.kind] += 1

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
