"""Publishers are added from the directory, and removed when they are missing from it several times in a row."""

import random
import socket
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Publisher, Replica, Store
from pubsub_lib.curve_keys import check_key
from pubsub_lib.errors import StoreUnavailable, TransportError
from pubsub_lib.replica import discovery as discovery_module
from pubsub_lib.replica.discovery import MAX_MISSED, Discovery, resolved
from pubsub_memory import MemoryDriver
from pubsub_memory.subscriber import MemorySubscriber
from tests.unit.world import LONG, QUICK, settings


class Addresses:
    """A subscriber's list of addresses."""

    def __init__(self, refuses: str = "") -> None:
        self.addresses: list[str] = []
        self._refuses = refuses

    def register_listen_address(self, address: str) -> None:
        if address == self._refuses:
            raise TransportError("no such transport")
        assert address not in self.addresses
        self.addresses.append(address)

    def know_publishers(self, uuids: Collection[str]) -> None:
        self.known = [*uuids]

    def unregister_listen_address(self, address: str) -> None:
        self.addresses.remove(address)


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with Store(sqlite_url) as store:
        yield store


class Pins(Addresses):
    """A subscriber with keys."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, str] = {}
        self.unproven = 0

    def pin_key(self, address: str, public_key: str) -> None:
        self.keys[address] = check_key(public_key)

    def register_listen_address(self, address: str) -> None:
        assert address in self.keys, "it would connect without a key"
        super().register_listen_address(address)

    def counters(self) -> dict[str, int]:
        return {"unproven": self.unproven}


def enter(store: Store, name: str) -> None:
    store.directory.register(name, name, f"tcp://{name}:1", 60.0)


def looking(store: Store, subscriber: Addresses, *configured: str) -> Discovery:
    return Discovery(store.directory.live, subscriber, configured, 5.0)


def test_discovery_adds_and_removes_publishers(store: Store) -> None:
    subscriber = Addresses()
    discovery = looking(store, subscriber)
    assert discovery.step(1.0) == 6.0
    assert subscriber.addresses == []
    enter(store, "api-1")
    enter(store, "api-2")
    discovery.step(2.0)
    discovery.step(3.0)
    assert subscriber.addresses == ["tcp://api-1:1", "tcp://api-2:1"]
    store.directory.unregister("api-1")
    for look in range(MAX_MISSED):
        assert "tcp://api-1:1" in subscriber.addresses, f"removed at step {look}"
        discovery.step(4.0)
    assert subscriber.addresses == ["tcp://api-2:1"]
    enter(store, "api-1")
    discovery.step(5.0)
    assert sorted(discovery.addresses) == sorted(subscriber.addresses) == ["tcp://api-1:1", "tcp://api-2:1"]


def test_an_entry_that_is_missing_for_a_short_time_keeps_its_connection(store: Store) -> None:
    subscriber = Addresses()
    discovery = looking(store, subscriber)
    for _ in range(3):
        enter(store, "api-1")
        discovery.step(0.0)
        store.directory.unregister("api-1")
        for _ in range(MAX_MISSED - 1):
            discovery.step(0.0)
    assert subscriber.addresses == ["tcp://api-1:1"]  # Addresses would have refused a second registration


def test_configured_addresses_and_services_without_an_address_are_ignored(store: Store) -> None:
    subscriber = Addresses()
    discovery = looking(store, subscriber, "tcp://api-1:1")
    enter(store, "api-1")
    store.directory.register("quiet", "quiet", "", 60.0)
    for _ in range(2 * MAX_MISSED):
        discovery.step(0.0)
        store.directory.unregister("api-1")
    assert subscriber.addresses == []
    assert subscriber.known == ["quiet"], "each reading names the live publishers to the driver"


def test_a_publisher_configured_by_name_and_registered_by_ip_address_is_one_publisher(store: Store) -> None:
    names = {"tcp://api-1.example:1": "tcp://10.0.0.1:1", "tcp://api-2:1": "tcp://10.0.0.2:1"}
    subscriber = Addresses()
    discovery = Discovery(
        store.directory.live,
        subscriber,
        ["tcp://api-1.example:1", "tcp://10.0.0.2:1"],
        5.0,
        lambda address: names.get(address, address),
    )
    for name, address in (("1", "tcp://10.0.0.1:1"), ("2", "tcp://api-2:1"), ("3", "tcp://10.0.0.3:1")):
        store.directory.register(name, name, address, 60.0)
    discovery.step(0.0)
    assert subscriber.addresses == ["tcp://10.0.0.3:1"]
    # While a name cannot be looked up, the IP address counts as another publisher. Later it is removed.
    known = names.pop("tcp://api-1.example:1")
    discovery.step(1.0)
    assert subscriber.addresses == ["tcp://10.0.0.3:1", "tcp://10.0.0.1:1"]
    names["tcp://api-1.example:1"] = known
    for _ in range(MAX_MISSED):
        discovery.step(2.0)
    assert subscriber.addresses == ["tcp://10.0.0.3:1"]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (["10.0.0.1", "10.0.0.1"], "tcp://10.0.0.1:8866"),
        (["10.0.0.1", "10.0.0.2"], "tcp://host.example:08866"),
        ([], "tcp://host.example:08866"),
    ],
)
def test_a_name_with_one_ip_address_is_resolved(
    numbers: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(host: str, *_: object) -> list[Any]:
        assert host == "host.example"
        if not numbers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in numbers]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert resolved("tcp://host.example:08866") == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("tcp://localhost:1", "tcp://127.0.0.1:1"),
        ("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"),
        ("tcp://[0:0::1]:1", "tcp://[::1]:1"),
        ("ipc:///run/socket:1", "ipc:///run/socket:1"),
        ("not an address", "not an address"),
        (f"tcp://{'x' * 70}.example:1", f"tcp://{'x' * 70}.example:1"),
    ],
)
def test_addresses_are_made_comparable(address: str, expected: str) -> None:
    assert resolved(address) == expected


def test_an_unusable_address_does_not_affect_the_others(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    subscriber = Addresses(refuses="tcp://api-1:1")
    discovery = looking(store, subscriber)
    enter(store, "api-1")
    enter(store, "api-2")
    discovery.step(0.0)
    discovery.step(0.0)
    assert subscriber.addresses == ["tcp://api-2:1"]
    assert caplog.text.count("cannot listen to the publisher at tcp://api-1:1: no such transport") == 1


def test_reading_that_was_requested_removes_no_publisher(store: Store) -> None:
    """It may follow the reading before within a second, and a restart takes longer."""
    subscriber = Addresses()
    discovery = looking(store, subscriber)
    enter(store, "api-1")
    assert discovery.step(0.0) == 5.0
    store.directory.unregister("api-1")
    enter(store, "api-2")
    for _ in range(2 * MAX_MISSED):
        discovery.wake()
        assert discovery.step(1.0) == 5.0, "the regular readings keep their times"
    assert subscriber.addresses == ["tcp://api-1:1", "tcp://api-2:1"]
    for number in range(MAX_MISSED):
        discovery.wake()
        assert discovery.step(5.0 + 5.0 * number) == 10.0 + 5.0 * number
    assert subscriber.addresses == ["tcp://api-2:1"]


def test_uuids_of_live_services_are_reported(store: Store) -> None:
    read: list[list[str]] = []
    discovery = looking(store, Addresses())
    enter(store, "api-1")
    discovery.start(lambda uuids: read.append([*uuids]))
    assert poll(lambda: read == [["api-1"]], 20.0)
    enter(store, "api-2")
    discovery.wake()
    assert poll(lambda: read == [["api-1"], ["api-1", "api-2"]], 20.0)
    discovery.close(20.0)


def test_while_the_directory_is_unavailable_publishers_are_kept(store: Store) -> None:
    subscriber = Addresses()
    down = [False]

    def live() -> Any:
        if down[0]:
            raise StoreUnavailable("out")
        return store.directory.live()

    discovery = Discovery(live, subscriber, (), 5.0)
    enter(store, "api-1")
    discovery.step(0.0)
    down[0] = True
    for _ in range(2 * MAX_MISSED):
        with pytest.raises(StoreUnavailable):
            discovery.step(0.0)
    assert subscriber.addresses == ["tcp://api-1:1"]


def test_pause_after_a_failed_reading_is_jittered_and_doubles_up_to_the_interval(store: Store) -> None:
    down = [True]

    def live() -> Any:
        if down[0]:
            raise StoreUnavailable("out")
        return store.directory.live()

    def failed() -> float:
        with pytest.raises(StoreUnavailable):
            discovery.step(0.0)
        return discovery.pause()

    discovery = Discovery(live, Addresses(), (), 5.0, rng=random.Random(0))
    maxima = (0.5, 1.0, 2.0, 4.0, *[5.0] * 2000)
    pauses = [failed() for _ in maxima]
    assert all(most / 2 <= pause <= most for most, pause in zip(maxima, pauses, strict=True))
    assert max(pauses[4:]) - min(pauses[4:]) > 2.0
    down[0] = False
    discovery.step(0.0)
    down[0] = True
    assert failed() <= 0.5


def test_thread_waits_for_the_pause_after_a_failed_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[None] = []

    def live() -> Any:
        readings.append(None)
        raise StoreUnavailable("out")

    pauses = [LONG, 0.0]
    monkeypatch.setattr(Discovery, "pause", lambda discovery: pauses.pop())
    discovery = Discovery(live, Addresses(), (), LONG)
    discovery.start()
    assert poll(lambda: not pauses, LONG)
    discovery.close(LONG)
    assert len(readings) == 2


@pytest.fixture
def bind_based(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory driver is one whose publishers bind an address."""
    binding = msgspec.structs.replace(MemoryDriver.capabilities, bind_based=True)
    monkeypatch.setattr(MemoryDriver, "capabilities", binding)
    for name in ("register_listen_address", "unregister_listen_address"):
        monkeypatch.setattr(MemorySubscriber, name, lambda subscriber, address: None, raising=False)


@pytest.mark.usefixtures("bind_based")
def test_a_replica_of_a_bind_based_driver_runs_discovery(sqlite_url: str, store: Store) -> None:
    enter(store, "api-1")
    with Replica(settings(sqlite_url, discovery_interval=0.01), ["t"]) as replica:
        assert poll(lambda: replica.publishers == ("tcp://api-1:1",), 20.0)
    for off in (settings(sqlite_url, discovery_interval=0.0), settings(sqlite_url, driver="db_polling_pubsub_driver")):
        with Replica(msgspec.structs.replace(off, driver_options={}), ["t"]) as replica:
            replica.wait_synced(20.0)
            assert replica.publishers == ()


@pytest.mark.usefixtures("bind_based")
def test_rule_14_own_publisher_is_used_beside_a_service(sqlite_url: str, store: Store) -> None:
    """Without an entry its links would not be used, and each replica would read a delta for each change."""
    enter(store, "api-1")
    patient = msgspec.structs.replace(QUICK, max_idle_time=1000.0, verify_interval=0.0)
    config = settings(sqlite_url, discovery_interval=1000.0, timing=patient)
    with Replica(config, ["t"]) as replica:
        replica.wait_synced(LONG)
        assert poll(lambda: replica._engine.read(lambda state: state.leased.required), LONG)
        with Publisher(config, store) as publisher:
            assert poll(lambda: publisher.uuid in replica._engine.read(lambda state: state.leased.live), LONG)
            with store.transaction() as tx:
                tx.set("a", "1", 1, topic="t")
            assert poll(lambda: replica.get("a", "1") is not None, LONG)
            assert replica.status().counters.deltas == {}


KEY, NEWER = "a" * 40, "b" * 40


def test_with_keys_an_address_without_a_key_is_refused(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    subscriber = Pins()
    discovery = Discovery(store.directory.live, subscriber, (), 5.0, pins=subscriber)
    enter(store, "plain")
    store.directory.register("api-1", "u1", "tcp://api-1:1", 60.0, KEY)
    discovery.step(1.0)
    discovery.step(7.0)
    assert subscriber.addresses == ["tcp://api-1:1"]
    assert subscriber.keys == {"tcp://api-1:1": KEY}
    assert caplog.text.count("tcp://plain:1: it has no key") == 1


def test_with_keys_the_newest_entry_of_an_address_counts(store: Store) -> None:
    subscriber = Pins()
    discovery = Discovery(store.directory.live, subscriber, (), 5.0, pins=subscriber)
    store.directory.register("api-1", "u2", "tcp://api-1:1", 50.0, KEY)
    discovery.step(1.0)
    store.directory.register("api-1", "u1", "tcp://api-1:1", 60.0, NEWER)
    discovery.step(7.0)
    assert subscriber.keys == {"tcp://api-1:1": NEWER}
    store.directory.register("api-1", "u3", "tcp://api-1:1", 70.0, "")  # without keys
    for now in (13.0, 19.0, 25.0):
        discovery.step(now)
    assert subscriber.addresses == []


def test_with_keys_the_entry_renewed_last_counts_also_with_the_shorter_lease(store: Store) -> None:
    """A killed service's entry lasts for its whole lease."""
    directory, subscriber = store.directory, Pins()
    discovery = Discovery(directory.live, subscriber, (), 5.0, pins=subscriber)
    directory.register("api-1", "killed", "tcp://api-1:1", 3600.0, KEY)
    discovery.step(1.0)
    directory.register("api-1", "restarted", "tcp://api-1:1", 10.0, NEWER)
    for now in (7.0, 13.0):
        discovery.step(now)
        assert subscriber.keys == {"tcp://api-1:1": NEWER}
    started_later = Pins()
    discovery = Discovery(directory.live, started_later, (), 5.0, pins=started_later)
    discovery.step(1.0)
    directory.register("api-1", "restarted", "tcp://api-1:1", 10.0, NEWER)
    discovery.step(7.0)
    assert started_later.keys == {"tcp://api-1:1": NEWER}


def test_with_keys_a_failed_proof_causes_a_reading_soon(store: Store) -> None:
    subscriber = Pins()
    discovery = Discovery(store.directory.live, subscriber, (), 5.0, pins=subscriber)
    assert discovery.step(1.0) == 2.0
    store.directory.register("api-1", "u1", "tcp://api-1:1", 60.0, KEY)
    assert discovery.step(2.0) == 3.0
    assert subscriber.addresses == []
    subscriber.unproven = 1
    assert discovery.step(3.0) == 4.0
    assert subscriber.addresses == ["tcp://api-1:1"]
    store.directory.register("api-1", "u1", "tcp://api-1:1", 60.0, NEWER)
    assert discovery.step(5.5) == 6.0, "the regular readings keep their times"
    assert subscriber.keys == {"tcp://api-1:1": KEY}
    discovery.step(6.0)
    assert subscriber.keys == {"tcp://api-1:1": NEWER}


def test_with_keys_readings_because_of_failed_proofs_remove_no_publisher(store: Store) -> None:
    """Each is within a second of the one before, and a publisher's restart takes longer."""
    subscriber = Pins()
    discovery = Discovery(store.directory.live, subscriber, (), 60.0, pins=subscriber)
    store.directory.register("api-1", "u1", "tcp://api-1:1", 60.0, KEY)
    assert discovery.step(0.0) == 1.0
    store.directory.unregister("u1")
    for number in range(1, 2 * MAX_MISSED):
        subscriber.unproven += 1
        discovery.step(float(number))
    assert subscriber.addresses == ["tcp://api-1:1"]
    for number in range(1, 1 + MAX_MISSED):
        subscriber.unproven += 1
        discovery.step(60.0 * number)
    assert subscriber.addresses == []


def test_with_keys_an_invalid_key_does_not_affect_the_others(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """The directory refuses one, but a restored or altered database may hold it."""
    subscriber = Pins()
    store.directory.register("api-1", "u1", "tcp://api-1:1", 60.0, KEY)
    store.directory.register("api-2", "u2", "tcp://api-2:1", 60.0, KEY)
    altered = {"u1": "no key"}

    def live() -> list[Any]:
        return [
            msgspec.structs.replace(each, public_key=altered.get(each.uuid, each.public_key))
            for each in store.directory.live()
        ]

    discovery = Discovery(live, subscriber, (), 5.0, pins=subscriber)
    for now in (1.0, 7.0):
        discovery.step(now)
    assert subscriber.addresses == ["tcp://api-2:1"]
    assert caplog.text.count("publisher at tcp://api-1:1: the key 'no key' is not a CURVE key") == 1
    altered.clear()
    discovery.step(13.0)
    assert sorted(subscriber.addresses) == ["tcp://api-1:1", "tcp://api-2:1"]


def test_with_keys_a_key_that_the_driver_rejects_does_not_affect_the_others(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Drivers of other packages have errors of their own."""

    class Rejecting(Pins):
        def pin_key(self, address: str, public_key: str) -> None:
            if public_key == NEWER:
                raise TransportError("the key is revoked")
            super().pin_key(address, public_key)

    subscriber = Rejecting()
    store.directory.register("api-1", "u1", "tcp://api-1:1", 60.0, NEWER)
    store.directory.register("api-2", "u2", "tcp://api-2:1", 60.0, KEY)
    discovery = Discovery(store.directory.live, subscriber, (), 5.0, pins=subscriber)
    for now in (1.0, 7.0):
        discovery.step(now)
    assert subscriber.addresses == ["tcp://api-2:1"]
    assert caplog.text.count("publisher at tcp://api-1:1: the key is revoked; restart that publisher") == 1
    assert [vars(each)["pubsub_address"] for each in caplog.records if "revoked" in each.message] == ["tcp://api-1:1"]


@pytest.mark.parametrize("cause", ["wake", "unproven"])
def test_extra_reading_that_failed_is_repeated(store: Store, cause: str) -> None:
    subscriber = Pins()
    readings: list[bool] = []
    down = [False]

    def live() -> Any:
        readings.append(not down[0])
        if down[0]:
            raise StoreUnavailable("out")
        return store.directory.live()

    discovery = Discovery(live, subscriber, (), 5.0, pins=subscriber)
    discovery.step(0.0)
    down[0] = True
    if cause == "wake":
        discovery.wake()
    else:
        subscriber.unproven = 1
    with pytest.raises(StoreUnavailable):
        discovery.step(1.0)
    down[0] = False
    discovery.step(1.5)
    assert readings == [True, False, True]
    discovery.step(2.5)
    assert len(readings) == 3, "it succeeded"


def test_wake_during_a_reading_causes_another_one(store: Store) -> None:
    subscriber = Pins()
    readings = 0

    def live() -> Any:
        nonlocal readings
        readings += 1
        if readings == 2:
            discovery.wake()
        return store.directory.live()

    discovery = Discovery(live, subscriber, (), 5.0, pins=subscriber)
    discovery.step(0.0)
    discovery.wake()
    for now in (1.0, 1.1, 1.2):
        discovery.step(now)
    assert readings == 3


@pytest.mark.parametrize("down", [False, True])
def test_wake_at_any_line_of_a_step_is_followed_by_a_reading(store: Store, down: bool) -> None:
    """Also when the reading of that step fails."""
    subscriber = Pins()
    events: list[str] = []
    fails = [False]

    def live() -> Any:
        events.append("reading")
        if fails[0]:
            raise StoreUnavailable("out")
        return store.directory.live()

    def run(wake_at: int, unproven: int) -> int:
        """Returns the number of lines that the step ran."""
        discovery = Discovery(live, subscriber, (), 5.0, pins=subscriber)
        lines = 0

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal lines
            if frame.f_code is not Discovery.step.__code__:
                return None
            if event == "line":
                lines += 1
                if lines == wake_at:
                    discovery.wake()
                    events.append("wake")
            return trace

        discovery.step(0.0)
        events.clear()
        subscriber.unproven += unproven
        fails[0] = down
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with suppress(StoreUnavailable):
                discovery.step(1.0)
        finally:
            sys.settrace(before)
        fails[0] = False
        discovery.step(1.5)
        return lines

    for unproven in (0, 1):
        number = 1
        while run(number, unproven) >= number:
            assert events.index("wake") < len(events) - 1, f"no reading after a wake at line {number} of the step"
            assert events[-1] == "reading"
            number += 1
        assert number > 5, "the step has some lines"


@pytest.mark.parametrize("cause", ["wake", "unproven"])
def test_extra_reading_whose_use_failed_is_repeated(store: Store, cause: str) -> None:
    """The directory was read, but its addresses were not used."""
    subscriber = Pins()
    discovery = Discovery(store.directory.live, subscriber, (), 5.0, pins=subscriber)
    discovery.step(0.0)
    store.directory.register("api-1", "u1", "tcp://api-1:1", 60.0, KEY)
    if cause == "wake":
        discovery.wake()
    else:
        subscriber.unproven = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "_on_read", lambda uuids: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            discovery.step(1.0)
    discovery.step(1.5)
    assert subscriber.addresses == ["tcp://api-1:1"]


@pytest.mark.parametrize("cause", ["wake", "unproven"])
def test_thread_repeats_an_extra_reading_that_failed_long_before_the_next_regular_one(
    store: Store, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(discovery_module, "RETRY", 0.01)
    subscriber = Pins()
    failures = [False, True, True, False]
    readings: list[bool] = []

    def live() -> Any:
        failed = failures[len(readings)]
        readings.append(not failed)
        if failed:
            raise StoreUnavailable("out")
        return store.directory.live()

    discovery = Discovery(live, subscriber, (), 3600.0, pins=subscriber)
    used: list[Sequence[str]] = []
    discovery.start(used.append)
    assert poll(lambda: used == [[]], 20.0)
    store.directory.register("api-1", "u1", "tcp://api-1:1", 60.0, KEY)
    if cause == "wake":
        discovery.wake()
    else:
        subscriber.unproven = 1
    assert poll(lambda: discovery.addresses == ("tcp://api-1:1",), 20.0)
    discovery.close(20.0)
    assert readings == [True, False, False, True]


def test_relays_are_not_listened_to_unless_they_are_parents(store: Store) -> None:
    subscriber = Addresses()
    discovery = looking(store, subscriber)
    enter(store, "api-1")
    store.directory.register("relay-1", "u1", "tcp://relay-1:1", 60.0, role="relay")
    reported: list[str] = []
    discovery._on_read = reported.extend
    discovery.step(1.0)
    assert subscriber.addresses == ["tcp://api-1:1"]
    assert reported == ["api-1", "u1"], "but their leases count"


def test_with_parents_only_leases_and_the_parents_keys_are_used(store: Store) -> None:
    subscriber = Pins()
    store.directory.register("api-1", "u0", "tcp://api-1:1", 60.0, KEY)
    store.directory.register("relay-1", "u1", "tcp://relay-1:1", 60.0, NEWER, "relay")
    parents = ("tcp://relay-1:1", "tcp://relay-2:1")
    discovery = Discovery(store.directory.live, subscriber, (), 5.0, pins=subscriber, parents=parents)
    reported: list[str] = []
    discovery._on_read = reported.extend
    discovery.step(1.0)
    assert (subscriber.addresses, subscriber.keys) == ([], {"tcp://relay-1:1": NEWER})
    assert reported == ["u0", "u1"]
    without = Discovery(store.directory.live, Addresses(), (), 5.0, parents=parents)
    without.step(1.0)
    assert without.addresses == ()
