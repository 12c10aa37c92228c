"""Checks the broadcast hellos of publishers: their rate, their topics, and one hello after each connection.

The evidence is the hellos that a publisher gave to its transport, and the connections that it was notified of.
"""

from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.sequencer import HELLO_DELAY, HELLO_SPACING, HELLO_TOPICS
from simulator.invariants import CLOCK_SLACK, Violation
from simulator.plan import QUICK, TIMING

NEVER_YET = float("-inf")
GREETING = HELLO_DELAY + HELLO_SPACING + 2 * QUICK
"""Maximum seconds from a connection to the broadcast that it causes, while the database works: its subscriptions, the
interval since the previous broadcast, a reading."""


class HelloWatch:
    """One start of a publisher. Times are true times. Methods raise Violation."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sent_on: set[str] = set()
        self._sent_at = NEVER_YET
        self._broadcast = NEVER_YET
        self._connected = NEVER_YET
        self._refused = False
        self._broadcast_last = self._broadcast_refused = False

    def connected(self, now: float) -> None:
        """The publisher is notified of a connection."""
        self._connected = now

    def burst(self) -> None:
        """The publisher begins to send all due hellos."""
        self._refused = False

    def refused(self) -> None:
        """The transport did not take a hello of this burst."""
        self._refused = True
        self._broadcast_refused |= self._broadcast_last

    def sent(self, envelope: Envelope, now: float) -> None:
        """The publisher made this envelope, to be sent at once."""
        hello = envelope.hello
        if hello is None:
            self._sent_on.add(envelope.topic)
            self._sent_at = now
            return
        if self._refused:
            raise Violation("refusal", f"{self._name} makes another hello right after one was refused")
        if not hello.nonce and not hello.goodbye:
            self._check_topics(hello)
            self._check_time(now)
            self._broadcast = self._sent_at = now
            self._broadcast_refused = False
        self._broadcast_last = not hello.nonce

    def _check_topics(self, hello: Hello) -> None:
        named = {*hello.sequences, *hello.heads}
        if not named <= self._sent_on:
            raise Violation("own topics", f"{self._name} names {sorted(named - self._sent_on)}, and never sent on them")
        if len(named) > HELLO_TOPICS:
            raise Violation("own topics", f"{self._name} names {len(named)} topics in one broadcast")

    def _check_time(self, now: float) -> None:
        """A broadcast needs a reason: a start, an idle time, recent connections or a refused broadcast. The contents of
        the store are not one.
        """
        apart = now - self._broadcast
        if apart < HELLO_SPACING - CLOCK_SLACK:
            raise Violation("broadcasts", f"{self._name} sends two within {apart:.3f} s")
        # A subscriber that connected right before a broadcast may have missed it.
        called_for = self._broadcast == NEVER_YET or self._connected >= self._broadcast - HELLO_DELAY - CLOCK_SLACK
        called_for = called_for or self._broadcast_refused
        if not called_for and now - self._sent_at < TIMING.max_idle_time - CLOCK_SLACK:
            raise Violation("broadcasts", f"{self._name} is not idle, and no subscriber has connected")

    def check_greeting(self, since: float, now: float) -> None:
        """A connected subscriber gets a hello in time. ``since``: when the database began to work."""
        if since <= self._connected < now - GREETING and self._broadcast < self._connected:
            raise Violation("greeted", f"{self._name} sent no hello in {now - self._connected:.3f} s from a connection")


def about(envelope: Envelope) -> str:
    """The contents of an envelope, for the trace."""
    hello = envelope.hello
    if hello is None:
        return " ".join(
            f"{at.link.prev.position}>{at.link.point.position}({at.part}/{at.parts})" for at in envelope.messages
        )
    kind = f"own {hello.nonce[:6]}" if hello.nonce else "hello"
    return f"{kind} store {hello.store and hello.store.position} age {hello.age:.3f}"
