"""Both ends of the hop from workers to their service: threads that push at once, and a service that is closed."""

from typing import Any

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import TransportError
from tests.scheduler.explore import World, explore
from tests.scheduler.sockets import ControlledPuller, PushDouble, pusher
from tests.unit.core.builders import UUID, History, envelope

SOON = 0.01
WAIT = 0.5


def numbered(history: History, topic: str, sequence: int) -> Envelope:
    return Envelope("api-1", UUID, topic, sequence, [Message(history.one(topic), 1, 1)])


def sent(push: PushDouble) -> list[tuple[str, int]]:
    """(topic, sequence) of the sent messages, in order."""
    return [(each.topic, each.sequence) for each in (codec.decode(list(frames), Limits()) for frames in push.sent)]


def test_messages_pushed_by_several_threads_stay_whole_and_in_order() -> None:
    def scenario(world: World) -> None:
        publisher, push = pusher(world, wait=WAIT)
        history = History()

        def send(topic: str) -> None:
            for sequence in (1, 2):
                publisher.send_event(numbered(history, topic, sequence))

        world.together(lambda: send("t"), lambda: send("u"))
        for topic in ("t", "u"):
            own = [sequence for each, sequence in sent(push) if each == topic]
            world.check(own == [1, 2], f"of {topic!r} left {own}")

    explore(scenario, deviations=2)
    explore(scenario, seeds=range(100))


def test_waits_for_room_of_several_threads_do_not_add_up() -> None:
    def scenario(world: World) -> None:
        publisher, push = pusher(world, wait=WAIT)
        push.room = 0
        history = History()

        def send(topic: str) -> None:
            began = world.now
            try:
                publisher.send_event(numbered(history, topic, 1))
            except TransportError:
                pass
            world.check(world.now - began <= WAIT + SOON, f"a commit waited {world.now - began:g} s for room")

        def later(topic: str) -> None:
            world.sleep(WAIT / 2)
            send(topic)

        world.together(lambda: send("t"), lambda: later("u"), lambda: later("v"))

    explore(scenario, deviations=1)


def test_pusher_closed_during_pushes_ends() -> None:
    def scenario(world: World) -> None:
        publisher, push = pusher(world, wait=WAIT)
        history = History()
        accepted = []

        def send(topic: str) -> None:
            try:
                publisher.send_event(numbered(history, topic, 1))
            except TransportError:
                return
            accepted.append(topic)

        world.together(lambda: send("t"), publisher.close, lambda: send("u"))
        world.check(sorted(topic for topic, _ in sent(push)) == sorted(accepted), f"{accepted} were accepted")
        world.check(push.closed, "the socket is open")

    explore(scenario, deviations=2)


def test_messages_are_delivered_whenever_they_arrive() -> None:
    """The descriptor that the service polls signals a message only until the socket is used again."""

    def scenario(world: World) -> None:
        puller = ControlledPuller(world)
        history = History()
        received: list[Message] = []
        puller.initialize(lambda made: received.extend(made.messages), lambda: None)
        puller.register_topic(ALL)
        world.replace("pubsub_zmq.multiproc.subscriber", "_BATCH", 2)
        puller.daemonize()

        def push(*sequences: int) -> None:
            for sequence in sequences:
                puller.pull.deliver(*codec.encode(envelope(history.one(), sequence=sequence), Limits()))

        world.together(lambda: push(1, 2, 3), lambda: world.sleep(0.0))
        world.until(lambda: len(received) == 3, "all messages", SOON)
        push(4)
        world.until(lambda: len(received) == 4, "the last message", SOON)
        puller.close()

    explore(scenario, deviations=2)
    explore(scenario, seeds=range(100))


def test_closed_service_takes_only_messages_pushed_before() -> None:
    def scenario(world: World) -> None:
        puller = ControlledPuller(world)
        history = History()
        received: list[Envelope] = []
        may_be_called = True

        def receive(made: Envelope) -> None:
            world.check(may_be_called, "a message is delivered after close()")
            received.append(made)

        def push(sequence: int) -> None:
            puller.pull.deliver(*codec.encode(envelope(history.one(), sequence=sequence), Limits()))

        puller.initialize(receive, lambda: None)
        puller.register_topic(ALL)
        puller.daemonize()
        push(1)
        world.until(lambda: received, "the first message", SOON)
        world.replace("pubsub_zmq.multiproc.subscriber", "_BATCH", 1)  # more messages wait than are taken at once
        push(2)
        push(3)
        began = world.now
        world.together(puller.close, lambda: world.scheduler.point("no worker pushes any more"))
        may_be_called = False
        world.check(world.now - began <= 0.2, f"close() took {world.now - began:g} s")  # no message for 0.1 s ends it
        world.check([each.sequence for each in received] == [1, 2, 3], f"received {received}")
        push(4)
        world.sleep(2.0)
        thread: Any = puller._life._thread
        world.check(not thread.is_alive() and puller.pull.closed, "the thread runs after close()")

    explore(scenario, deviations=2)
    explore(scenario, seeds=range(100))
