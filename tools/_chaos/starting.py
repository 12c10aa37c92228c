"""Starts the processes of a run: services, workers, replicas, storms and hostile peers."""

import queue
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
from _children import Child, Children, attached
from _ready import ReadySocket

from _chaos.broker_peer import Flood
from _chaos.configuration import Configuration
from _chaos.messages import HostileTask, LieTask, ReplicaTask, StormTask, Task, WorkerTask
from _chaos.participant import Part, Participant, Received
from _chaos.plan import ZMQ, Plan
from _chaos.wires import Wires


class Writing(msgspec.Struct, frozen=True):
    """How each worker writes: transactions per second, changes in each, and the number of keys of all."""

    rate: float = 15.0
    size: int = 8
    keys: int = 400


class Storm(msgspec.Struct, frozen=True):
    """The number of subscribers of one storm, and of the topics of each."""

    subscribers: int = 20
    topics: int = 500


class Variant(msgspec.Struct, frozen=True):
    """How a fault changes the next starts of a process: a command before it, and further environment variables."""

    prefix: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}


NORMAL = Variant()


class Starter:
    """Makes the participants, and starts a process of each whenever it is asked to. For one thread."""

    def __init__(
        self,
        plan: Plan,
        writing: Writing,
        storm: Storm,
        folder: Path,
        stack: ExitStack,
        configuration: Configuration,
        wires: Wires,
        sabotage: str = "",
    ) -> None:
        """``stack``: ends all processes. ``sabotage``: the name of the replica that corrupts an object."""
        cast = plan.cast
        self._plan = plan
        self._writing = writing
        self._storm = storm
        self._folder = folder
        self._configuration = configuration
        self._wires = wires
        self._sabotage = sabotage
        self._stack = stack
        self._children = stack.enter_context(Children())
        self.received: queue.SimpleQueue[Received] = queue.SimpleQueue()
        """The messages of all processes."""
        self.ready = {name: stack.enter_context(ReadySocket()) for name in cast.service_names}
        """For each service, whether its current process is ready."""
        self.variants: dict[str, Variant] = {}
        """By name of a participant, while a fault lasts."""

    def services(self) -> dict[str, Participant]:
        """The services, with their files."""
        wires, write = self._wires, self._configuration.service
        names = self._plan.cast.service_names
        files = {name: write(name, self._address(name), wires.url(name), wires.to_broker(name)) for name in names}
        return {name: Participant(name, self._children, partial(self._service, name, files[name])) for name in names}

    def workers(self) -> dict[str, Participant]:
        """The workers, with their files."""
        cast, wires, write = self._plan.cast, self._wires, self._configuration.worker
        found = {}
        for name in cast.worker_names:
            file = write(name, self._address(cast.service_of(name)), wires.url(name))
            found[name] = Participant(name, self._children, partial(self._worker, name, file))
        return found

    def replicas(self) -> dict[str, Participant]:
        """The replicas, with their files."""
        cast, wires, write = self._plan.cast, self._wires, self._configuration.replica
        first = self._address(cast.service_names[0])
        found = {}
        for name in cast.replica_names:
            file = write(name, first, wires.url(name), wires.to_broker(name))
            found[name] = Participant(name, self._children, partial(self._replica, name, file))
        return found

    def storm(self, name: str) -> Participant:
        """Subscribers of all services."""
        cast, storm = self._plan.cast, self._storm
        file = ""
        if cast.driver != ZMQ:
            file = str(self._configuration.subscriber(name, "sqlite://", self._wires.broker_port))
        task = StormTask(name, self._addresses, storm.subscribers, storm.topics, cast.topic_names[:2], file)
        return Participant(name, self._children, lambda start: self._part(task, start))

    def flood(self) -> Flood:
        """A flood for all subscribers of the broker; at the latest it stops with the run."""
        made = Flood(self._plan.cast.driver, self._wires.broker_port)
        self._stack.callback(made.stop)
        return made

    def port(self, service: str) -> int:
        """The port that a service binds."""
        return self._configuration.ports[service]

    def hostile(self, name: str, seed: str, port: int = 0) -> Participant:
        """A hostile peer of all services, of their workers' sockets, and of the broker's clients; with ``port``, of
        subscribers.
        """
        cast, broker = self._plan.cast, self._wires.broker_port
        task = HostileTask(name, seed, port=port)
        if not port:
            hops = tuple(str(self._configuration.hop(each)) for each in cast.service_names)
            task = HostileTask(name, seed, self._addresses, hops, 0, cast.driver, broker, cast.topic_names)
        return Participant(name, self._children, lambda start: self._part(task, start))

    def liar(self, name: str, seed: str, service: str, port: int = 0) -> Participant:
        """A liar for a service: with ``port`` as the service, else as one of its workers."""
        file = self._configuration.worker(name, self._address(service), self._wires.direct_url, service)
        task = LieTask(name, seed, service, str(file), self._plan.cast.topic_names, port)
        return Participant(name, self._children, lambda start: self._part(task, start))

    @property
    def _addresses(self) -> tuple[str, ...]:
        """Of the services; without ZeroMQ they have none."""
        return tuple(filter(None, map(self._address, self._plan.cast.service_names)))

    def _address(self, service: str) -> str:
        return self._wires.address(service) if self._plan.cast.driver == ZMQ else ""

    def _service(self, name: str, configuration: Path, _start: int) -> Child:
        variant, ready = self.variants.get(name, NORMAL), self.ready[name]
        ready.expect()
        command = attached("pubsub_lib.service", "--log-level", "warning", "--config-file", configuration)
        return self._children.start(
            name,
            [*variant.prefix, *command],
            log=self._log(name),
            variables={**ready.variables, **variant.variables, "PYTHONFAULTHANDLER": "1"},
            whole_session=True,
        )

    def _worker(self, name: str, configuration: Path, start: int) -> Child:
        writing = self._writing
        return self._part(
            WorkerTask(
                name=name,
                configuration=str(configuration),
                topics=self._plan.cast.topic_names,
                keys=writing.keys,
                size=writing.size,
                pause=1.0 / writing.rate,
                seed=f"{self._plan.seed} {name} {start}",
            ),
            start,
        )

    def _replica(self, name: str, configuration: Path, start: int) -> Child:
        topics = self._plan.cast.topics_of(name)
        return self._part(ReplicaTask(name, str(configuration), topics, name == self._sabotage), start)

    def _part(self, task: Task, start: int) -> Child:
        variables = self.variants.get(task.name, NORMAL).variables
        return self._children.add(lambda: Part(task, start, self.received, self._log(task.name), variables))

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"
