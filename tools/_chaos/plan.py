"""The plan of a run, made before it starts: the participants, and a frozen list of faults. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

Kind = Literal[
    "kill", "pause", "cut", "cut_database", "commit", "slow", "storm", "files", "disk", "garbage", "imposter", "clock",
    "lie",
]  # fmt: skip

KINDS: Final[Mapping[Kind, str]] = {
    "kill": "SIGKILL, and a new start",
    "pause": "SIGSTOP, and SIGCONT",
    "cut": "the network between a service and its replicas, or a process and the broker, is cut",
    "cut_database": "the network between a process and the database server is cut",
    "commit": "the connection of a worker is cut before or after its next COMMIT",
    "slow": "a replica reads nothing while messages flood it, and the broker cuts it off",
    "storm": "many subscribers with many topics connect, and leave or are killed",
    "files": "a service runs with few open files",
    "disk": "a replica cannot write to its journal, so the audit lacks records",
    "garbage": "a hostile process sends garbage to services, and through the broker to all",
    "imposter": "a hostile process sends garbage to replicas at the address of a service",
    "clock": "a process runs with a clock that is a day ahead or behind",
    "lie": "a hostile process sends changes that were never committed, as a service or as a worker of it",
}
"""Every kind of fault, for people."""
DISK: Final = "disk"
"""The kind of the option ``--full-disks``."""
LIE: Final = "lie"
"""The kind of the option ``--lies``."""
FALSE: Final = "lie"
"""The table of invented objects: no worker writes it, so each of its objects in a replica is a wrong one."""
DEFAULT: Final = tuple(kind for kind in KINDS if kind not in ("clock", DISK, LIE))
"""The kinds of a run that names none. They leave all records to the audit, whose exit code must be 0. A full disk
destroys records on purpose, the audit must find each lie, and with wrong clocks no audit is possible.
"""
SERVER: Final = frozenset({"cut_database", "commit", "clock"})
"""Kinds that need a database server. SQLite's clock is that of each process, which a host cannot have."""
DATABASE: Final = "database"
"""The victim that is the private database server."""
BROKER: Final = "broker"
"""The victim that is the private broker."""
BROKERED: Final = ("nats", "redis")
"""The drivers of a broker, by the value of ``--driver``."""
ZMQ: Final = "zmq"
"""The driver whose replicas connect to the services."""
STORMS: Final = ("storm-1", "storm-2")
"""Processes with many subscribers."""
HOSTILE: Final = ("hostile-1",)
"""Processes that send garbage to services."""


class Cast(msgspec.Struct, frozen=True):
    """The participants of a run. ``server``: the database is a server of its own, which faults may strike.
    ``driver``: of services and replicas, by the value of ``--driver``.
    """

    services: int = 2
    workers: int = 2
    """Workers of each service."""
    replicas: int = 4
    """Replicas that receive messages."""
    polling: int = 1
    """Replicas that poll the database."""
    topics: int = 8
    server: bool = False
    driver: str = ZMQ

    @property
    def brokered(self) -> bool:
        """Whether there is a broker, which faults may strike."""
        return self.driver in BROKERED

    @property
    def service_names(self) -> tuple[str, ...]:
        """The names of the services."""
        return tuple(f"service-{number}" for number in range(1, self.services + 1))

    @property
    def worker_names(self) -> tuple[str, ...]:
        """The names of the workers, those of one service after the other."""
        return tuple(f"worker-{number}" for number in range(1, self.services * self.workers + 1))

    @property
    def replica_names(self) -> tuple[str, ...]:
        """The names of the replicas; the last ones poll."""
        return tuple(f"replica-{number}" for number in range(1, self.replicas + self.polling + 1))

    @property
    def topic_names(self) -> tuple[str, ...]:
        """All topics of the objects."""
        return tuple(f"topic-{number}" for number in range(1, self.topics + 1))

    @property
    def broker_users(self) -> tuple[str, ...]:
        """The names of the participants that connect to the broker; workers do not."""
        receiving = tuple(name for name in self.replica_names if not self.polls(name))
        return (*self.service_names, *receiving) if self.brokered else ()

    @property
    def sender_names(self) -> tuple[str, ...]:
        """Who sends messages to replicas: the services; with ``pgnotify`` the database, which notifies them."""
        return self.service_names if self.brokered or self.driver == ZMQ else (DATABASE,)

    def service_of(self, worker: str) -> str:
        """The service to which a worker hands its commits over."""
        return self.service_names[self.worker_names.index(worker) // self.workers]

    def polls(self, replica: str) -> bool:
        """Whether a replica polls the database."""
        return self.replica_names.index(replica) >= self.replicas

    def topics_of(self, replica: str) -> tuple[str, ...]:
        """The topics that a replica follows; empty: everything. Every second replica follows a part of them."""
        number = self.replica_names.index(replica)
        if number % 2 == 0 or self.topics < 2:
            return ()
        return tuple(name for at, name in enumerate(self.topic_names) if (at + number // 2) % 2 == 0)

    def victims(self, kind: Kind) -> tuple[str, ...]:
        """The names that this kind of fault may strike; empty: it is impossible in this run."""
        if self.lack(kind):
            return ()
        participants = (*self.service_names, *self.worker_names, *self.replica_names)
        match kind:
            case "kill" | "pause":
                servers = ((DATABASE,) if self.server else ()) + ((BROKER,) if self.brokered else ())
                return (*participants, *servers)
            case "cut":
                return self.broker_users or self.service_names
            case "files" | "imposter" | "lie":
                return self.service_names
            case "cut_database" | "clock":
                return participants
            case "commit":
                return self.worker_names
            case "slow":
                return tuple(name for name in self.broker_users if name in self.replica_names)
            case "disk":
                return self.replica_names
            case "storm":
                return STORMS
            case "garbage":
                return HOSTILE

    def lack(self, kind: Kind) -> str:
        """What this run lacks for a kind of fault, in words; "": nothing."""
        if kind in SERVER and not self.server:
            return "needs a database server"
        if kind == "slow" and not self.brokered:
            return "needs a broker"
        if kind in ("imposter", LIE) and self.driver != ZMQ:
            return "needs replicas that connect to services"
        if kind in ("cut", "storm") and self.driver != ZMQ and not self.brokered:
            return "replicas connect to the database alone"
        return ""


class Fault(msgspec.Struct, frozen=True, order=True):
    """One fault: it begins ``at`` seconds after the start of the writers, and ends ``seconds`` later.

    ``detail``: ``before`` or ``after`` a COMMIT; whether subscribers ``leave`` or are killed (``kill``); a clock that
    is ``ahead`` or ``behind``; a lie as a ``publisher`` or as a ``worker``.
    """

    at: float
    kind: Kind
    victim: str
    seconds: float
    detail: str = ""

    @property
    def end(self) -> float:
        """When it ends, in seconds after the start of the writers."""
        return self.at + self.seconds


class Plan(msgspec.Struct, frozen=True):
    """One run: writers write for ``seconds``, and ``faults`` strike meanwhile."""

    seed: int
    seconds: float
    cast: Cast
    faults: Sequence[Fault]
