"""The processes that are faults themselves: storms, hostile peers, imposters and liars."""

from typing import Final

from _processes import free_port

from _chaos.crew import Crew
from _chaos.messages import Stop
from _chaos.participant import Participant
from _chaos.plan import LIE, Fault, Kind
from _chaos.starting import Starter
from _chaos.wires import Wires

KINDS: Final[frozenset[Kind]] = frozenset({"storm", "garbage", "imposter", LIE})
"""Kinds of fault that are a process."""


def takes_address(fault: Fault) -> bool:
    """Whether replicas reach the process of this fault at the address of its victim."""
    return fault.kind == "imposter" or (fault.kind, fault.detail) == (LIE, "publisher")


class Peers:
    """For one thread. Raises OSError, ChildError. The crew notes a peer that ended before it was to end, or with an
    error.
    """

    def __init__(self, crew: Crew, starter: Starter, wires: Wires) -> None:
        self._crew = crew
        self._starter = starter
        self._wires = wires
        self._started = 0
        self._running: dict[Fault, Participant] = {}
        self._leaving: list[Participant] = []
        """Storms that were ordered to end. Those that still run at the end of the run are killed."""

    def begin(self, fault: Fault) -> None:
        """Start the process of a fault."""
        self._started += 1
        name = f"{fault.kind}-{fault.victim}-{self._started}"  # its own: Ready must not be that of an earlier process
        port = free_port() if takes_address(fault) else 0
        if fault.kind == "storm":
            peer = self._starter.storm(name)
        elif fault.kind == LIE:
            peer = self._starter.liar(name, repr(fault), fault.victim, port)
        else:
            peer = self._starter.hostile(name, repr(fault), port)
        if port:
            self._wires.redirect(fault.victim, port)
        self._running[fault] = peer
        peer.start()

    def end(self, fault: Fault) -> bool:
        """End the process of a fault. Returns whether it was ready before: only then the fault struck."""
        peer = self._running.pop(fault)
        if peer.status() is not None:
            self._crew.ended_by_itself(peer)
        elif fault.detail == "leave":
            peer.order(Stop())
            self._leaving.append(peer)
        else:
            peer.kill()
        if takes_address(fault):
            self._wires.redirect(fault.victim, self._starter.port(fault.victim))
        return self._crew.was_ready(peer)

    def release(self) -> None:
        """Release the storms that have ended as ordered."""
        for peer in [each for each in self._leaving if each.status() is not None]:
            self._leaving.remove(peer)
            if peer.status() == 0:
                peer.forget()
            else:
                self._crew.ended_by_itself(peer)
