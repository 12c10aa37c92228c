"""``pubsub-db top``: what it shows, and where it cannot run; tests/e2e/test_cli_look.py runs it in real terminals."""

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


class Odd:
    """A store and a driver that fail when they are told to."""

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


def test_a_store_that_goes_away_is_shown_and_forgotten_when_it_is_back() -> None:
    odd: Any = Odd()
    top = _Shown(Settings(store_url="sqlite:///net.db"), [])
    top._read(odd, odd)
    assert "head 77 " in shown(top.screen("a_driver"))
    odd.store_fails = True
    top._read(odd, odd)
    text = shown(top.screen("a_driver"))
    assert "the store cannot be read: the database is away" in text
    assert "head 77 " in text
    assert "sqlite:///net.db  by a_driver" in text
    odd.store_fails, odd.driver_fails = False, True
    top._read(odd, odd)
    assert "cannot be read" not in shown(top.screen("a_driver"))


def test_it_shows_what_is_stored_heard_and_who_serves(world: World) -> None:
    top = _Shown(world.settings, ["tenant-1"])
    with world.open() as store, listening(world.settings, store, ["tenant-1"], top.receive) as tap:
        fill(store)
        head = store.topics()["tenant-1"]

        def text() -> str:
            top._read(store, tap)
            return shown(top.screen(tap.source))

        assert poll(lambda: f"head {store.read_heads([]).store.position} " in text(), LONG), text()
        (row,) = [line.split() for line in text().splitlines() if line.startswith("tenant-1")]
        assert row[1:3] == [str(head.count), str(head.point.position)]
        # Without a service commands poll, and hear themselves. A lag is there once the question was answered.
        serves = "db-polling" if world.host is None else world.settings.bind_address

        def answered() -> bool:
            return any(serves in line and line.split()[-2:] == ["0", "0"] for line in text().splitlines())

        assert poll(answered, LONG), text()


def test_a_store_in_which_nothing_was_ever_written(bare: World) -> None:
    top = _Shown(bare.settings, [])
    with bare.open() as store, listening(bare.settings, store, [ALL], top.receive) as tap:
        top._read(store, tap)
        assert "nothing was ever written" in shown(top.screen(tap.source))


def test_it_needs_a_terminal(world: World) -> None:
    world.run("top").failed(2, "this needs a terminal", "watch")


def test_bad_options(small: World) -> None:
    small.run("top", "--interval", 0).failed(2, "--interval 0.0")
    small.run("top", "").failed(2, "topic")
