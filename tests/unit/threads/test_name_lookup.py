"""Looking up a host's addresses with a timeout, also while the system does not answer."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from _patience import longest
from _processes import poll

from pubsub_lib.threads import name_lookup
from pubsub_lib.threads.name_lookup import NameLookup

LONG = longest(30.0)
FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 7000))]


class Hanging:
    """Name servers that answer only when they are released."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.released = threading.Event()

    def __call__(self, *arguments: Any, **_: Any) -> list[Any]:
        self.asked.append(arguments)
        assert self.released.wait(LONG)
        return FOUND


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    made = Hanging()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.released.set()
    assert poll(lambda: not looking_up(), LONG)


def looking_up() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "pubsub-name-lookup"]


def test_addresses_are_those_of_the_system() -> None:
    assert NameLookup("127.0.0.1", 7000).addresses(LONG)[0][4] == ("127.0.0.1", 7000)


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1")])
def test_numeric_host_needs_no_thread(host: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise AssertionError(thread.name)

    monkeypatch.setattr(name_lookup, "start_thread", refused)
    (found,) = NameLookup(host, 6379).addresses(LONG)
    assert found[4][:2] == (address, 6379)


@pytest.mark.parametrize("host", ["host.invalid", f"{'x' * 70}.example"])
def test_an_unknown_or_wrong_name_is_the_error_of_the_system(host: str) -> None:
    with pytest.raises((socket.gaierror, UnicodeError)):
        NameLookup(host, 7000).addresses(LONG)


def test_a_look_up_that_hangs_ends_after_the_timeout_and_is_not_begun_twice(hanging: Hanging) -> None:
    lookup = NameLookup("host", 7000)
    for _ in range(3):
        with pytest.raises(socket.gaierror, match=r"no name server answered for 'host' within 0\.01 s"):
            lookup.addresses(0.01)
    assert poll(lambda: hanging.asked == [("host", 7000)], LONG)
    assert len(looking_up()) == 1
    hanging.released.set()
    assert lookup.addresses(LONG) == FOUND
    before = len(hanging.asked)  # 2 when the first look-up had ended before it was waited for
    assert lookup.addresses(LONG) == FOUND
    assert len(hanging.asked) == before + 1, "an old answer was used again"


@pytest.mark.parametrize("in_time", [True, False])
def test_end_ends_the_wait_for_a_look_up_that_hangs(hanging: Hanging, in_time: bool) -> None:
    lookup = NameLookup("host", 7000)
    errors: list[str] = []

    def ask() -> None:
        try:
            lookup.addresses(3600.0)
        except OSError as error:
            errors.append(str(error))

    asking = threading.Thread(target=ask)
    calls: list[Callable[[], Any]] = [asking.start, lambda: poll(lambda: bool(hanging.asked), LONG)]
    for call in (*calls, lookup.end) if in_time else (lookup.end, asking.start):
        call()
    asking.join(LONG)
    assert not asking.is_alive()
    assert errors == ["closed meanwhile"]
    assert len(hanging.asked) == in_time
