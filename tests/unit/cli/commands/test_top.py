"""``pubsub-db top``: its screen and its errors. tests/e2e/test_cli_look.py runs it in real terminals."""

from typing import Any

from _processes import poll
from rich.console import Console

from pubsub_lib import Settings
from pubsub_lib.cli.commands.top import _Shown
from pubsub_lib.cli.listener import listening
from pubsub_lib.core.model import ALL, Heads, Point
from pubsub_lib.errors import StoreUnavailable, TransportError
from tests.e2e.service_host import LONG
from tests.unit.cli.world import World, fill


class FailingStoreAndDriver:
    """A store and a driver that fail while ``store_fails`` and ``driver_fails`` are set."""

    def __init__(self) -> None:
        self.store_fails = self.driver_fails = False
        self.directory = self

    def read_heads(self, topics: object) -> Heads:
        if self.store_fails:
            raise StoreUnavailable("the database is away")
        return Heads(Point(77, 1), {})

    def entries(self) -> list[Any]:
        return []

    def ask(self, topics: object) -> list[str]:
        if self.driver_fails:
            raise TransportError("this subscriber is closed")
        return ["nonce"]


def shown(screen: object) -> str:
    console = Console(width=80, height=24, color_system=None)
    with console.capture() as capture:
        console.print(screen)
    return capture.get()


def test_top_shows_a_store_error_until_the_store_recovers() -> None:
    failing: Any = FailingStoreAndDriver()
    top = _Shown(Settings(store_url="sqlite:///net.db"), [], 1.0)
    top._read(failing, failing)
    assert "head 77 " in shown(top.screen("a_driver"))
    failing.store_fails = True
    top._read(failing, failing)
    text = shown(top.screen("a_driver"))
    assert "the store cannot be read: the database is away" in text
    assert "head 77 " in text
    assert "sqlite:///net.db  by a_driver" in text
    failing.store_fails, failing.driver_fails = False, True
    top._read(failing, failing)
    assert "cannot be read" not in shown(top.screen("a_driver"))


def test_top_shows_stored_and_received_data_and_services(world: World) -> None:
    top = _Shown(world.settings, ["tenant-1"], 1.0)
    with world.open() as store, listening(world.settings, store, ["tenant-1"], top.receive) as listener:
        fill(store)
        head = store.topics()["tenant-1"]

        def text() -> str:
            top._read(store, listener)
            return shown(top.screen(listener.source))

        assert poll(lambda: f"head {store.read_heads([]).store.position} " in text(), LONG), text()
        (row,) = [line.split() for line in text().splitlines() if line.startswith("tenant-1")]
        assert row[1:3] == [str(head.count), str(head.point.position)]
        # Without a service commands poll, and receive their own changes. The lag is shown after a hello reply.
        serves = "db-polling" if world.host is None else world.settings.bind_address

        def answered() -> bool:
            return any(serves in line and line.split()[-2:] == ["0", "0"] for line in text().splitlines())

        assert poll(answered, LONG), text()


def test_top_of_an_empty_store(bare: World) -> None:
    top = _Shown(bare.settings, [], 1.0)
    with bare.open() as store, listening(bare.settings, store, [ALL], top.receive) as listener:
        top._read(store, listener)
        assert "nothing was ever written" in shown(top.screen(listener.source))


def test_top_needs_a_terminal(world: World) -> None:
    world.run("top").failed(2, "this needs a terminal", "watch")


def test_invalid_options_are_rejected(small: World) -> None:
    small.run("top", "--interval", 0).failed(2, "--interval must be a number of seconds from 0.1, not 0.0")
    small.run("top", "").failed(2, "topic")
