"""Public methods refuse an argument of a wrong type at once, in one sentence with its name and value."""

import asyncio
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pubsub_lib import AsyncReplica, Publisher, Replica, Settings, Store, Timing, Worker, open_publisher
from pubsub_lib.arguments import check_timeout
from pubsub_lib.core.model import Point
from pubsub_lib.errors import ConfigError, PubSubError, UsageError
from pubsub_lib.service.service import PublisherService
from pubsub_lib.testing.local import Local

TIMEOUTS = ["1", True, [1], object(), math.nan, math.inf, 10**309]
POSITIONS: list[object] = ["5", True, -1, 2.0, (1, 2), Point(1, 1), object()]

REPLICA: dict[str, tuple[Callable[[Any], object], str]] = {
    "add_index by": (lambda on: on.add_index("i", "t", 5), "by must be a function .*, not 5"),
    "add_index name": (lambda on: on.add_index(5, "t", "a"), "name must be a string.*, not 5"),
    "on table": (lambda on: on.on(5, print), "table must be .*, not 5"),
    "on key": (lambda on: on.on("t", print, key=5), "the key 5 is a int"),
    "on topic": (lambda on: on.on("t", print, topic=[]), r"topic must be a string, not \[\]"),
    "on order": (lambda on: on.on("t", print, order=5), "order must be a list of tables, not 5"),
    "records topic": (lambda on: on.records(topic=[]), r"topic must be a string, not \[\]"),
    "lookup index": (lambda on: on.lookup([], 1), r"index must be a string.*, not \[\]"),
    "unsubscribe": (lambda on: on.unsubscribe([]), r"topic must be a string, not \[\]"),
    "resync": (lambda on: on.resync([]), r"topic must be a string, not \[\]"),
    "wait_for topics": (lambda on: on.wait_for(1, 1, topics=5), "topics must be a list of names, not 5"),
    "wait_for a topic": (lambda on: on.wait_for(1, 1, topics=[5]), "topic must be a string, not 5"),
}
STORE: dict[str, tuple[Callable[[Any], object], str]] = {
    "before_write": (lambda store: store.before_write(5), "hook must be a function of one argument.*, not 5"),
    "on_commit": (lambda store: store.on_commit(5), "callback must be a function of one argument.*, not 5"),
    "write": (lambda store: store.write(5), "fn must be a function of one argument.*, not 5"),
    "trim links": (lambda store: store.trim(keep_links=1.5), "keep_links must be an integer, or None, not 1.5"),
    "trim seconds": (lambda store: store.trim(keep_seconds="5"), "keep_seconds must be a number.*, not '5'"),
    "committed": (lambda store: store.committed("x"), "nonce must be an integer.*, not 'x'"),
    "objects topic": (lambda store: list(store.objects(topic=5)), "topic must be a string, or None, not 5"),
    "session": (lambda store: store.session(5), "session must be a SQLAlchemy Session, not 5"),
}


def named(given: object) -> str:
    """A parameter's name, the same in every process that collects the tests."""
    return "object" if type(given) is object else repr(given)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a program that publishes."""
    timing = Timing(hello_wait=0.01, sync_jitter=0.0)
    return Settings(store_url=f"sqlite:///{tmp_path}/net.db", driver="memory", service_name="api-1", timing=timing)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    """A store with one object."""
    with Store(settings) as made:
        with made.transaction() as tx:
            tx.set("t", "k", 1)
        yield made


@pytest.fixture
def replica(settings: Settings, store: Store) -> Iterator[Any]:
    """A synced replica."""
    with Replica(settings) as made:
        made.wait_synced(60)
        yield made


@pytest.mark.parametrize("case", REPLICA)
def test_replica_refuses(case: str, replica: Any) -> None:
    call, words = REPLICA[case]
    with pytest.raises(UsageError, match=f"^{words}"):
        call(replica)


@pytest.mark.parametrize("case", STORE)
def test_store_refuses(case: str, store: Any) -> None:
    call, words = STORE[case]
    with pytest.raises(UsageError, match=f"^{words}"):
        call(store)


@pytest.mark.parametrize("given", POSITIONS, ids=named)
def test_replicas_refuse_an_invalid_position(given: Any, replica: Any) -> None:
    for wait in (replica.wait_for, replica.wait_handled):
        with pytest.raises(UsageError, match=r"^position must be an integer from 0, or tx\.commit of a .*, not "):
            wait(given, 1)


@pytest.mark.parametrize("given", TIMEOUTS, ids=named)
def test_replicas_refuse_an_invalid_timeout(given: Any, replica: Any) -> None:
    """A wait of nan seconds for a commit that does not exist must not last for ever."""
    waits: list[Callable[[], object]] = [
        lambda: replica.wait_synced(given),
        lambda: replica.wait_for(1, given),
        lambda: replica.wait_for(None, given),
        lambda: replica.wait_for(10**9, given),
        lambda: replica.wait_handled(1, given),
    ]
    for wait in waits:
        with pytest.raises(
            UsageError, match=r"^timeout must be a number of seconds up to .*, or None for no limit, not "
        ):
            wait()
    with Local() as net, pytest.raises(UsageError, match=r"^timeout must be"):
        net.replica().wait_synced(given)


@pytest.mark.parametrize("timeout", [None, 0, -1.5, 1, 2.5, 1e9])
def test_valid_timeouts_are_accepted(timeout: float | None) -> None:
    check_timeout(timeout)


def test_async_replica_refuses_the_same(settings: Settings, store: Store) -> None:
    async def refused(call: Any, words: str) -> None:
        with pytest.raises(UsageError, match=f"^{words}"):
            await call

    async def use() -> None:
        async with AsyncReplica(settings) as made:
            on: Any = made
            await on.wait_synced(60)
            for given in POSITIONS:
                await refused(on.wait_for(given, 1), "position must be")
                await refused(on.wait_handled(given, 1), "position must be")
            for timeout in TIMEOUTS:
                await refused(on.wait_synced(timeout), "timeout must be")
                await refused(on.wait_for(1, timeout), "timeout must be")
                await refused(on.wait_for(None, timeout), "timeout must be")
                await refused(on.wait_handled(1, timeout), "timeout must be")
            await refused(on.add_index("i", "t", 5), "by must be a function")

    asyncio.run(use())


@pytest.mark.parametrize("given", ["x.conf", Path("x.conf"), None, 5, {"store_url": "sqlite:///x.db"}], ids=repr)
def test_settings_must_be_settings(given: Any, store: Store) -> None:
    makers: list[Callable[[], object]] = [
        lambda: Replica(given),
        lambda: AsyncReplica(given),
        lambda: Publisher(given, store),
        lambda: Worker(given, store),
        lambda: open_publisher(given, store),
        lambda: PublisherService(given),
    ]
    for make in makers:
        with pytest.raises(ConfigError, match=r"^settings must be pubsub_lib\.Settings .*, not "):
            make()
    with pytest.raises(ConfigError):
        Store(given)


@pytest.mark.parametrize("given", ["sqlite:///x.db", 5], ids=repr)
def test_constructor_arguments_of_wrong_types_are_refused(given: Any, settings: Settings, store: Store) -> None:
    makers: dict[str, list[Callable[[], object]]] = {
        "store": [
            lambda: Replica(settings, store=given),
            lambda: Publisher(settings, given),
            lambda: Worker(settings, given),
        ],
        "rng": [lambda: Replica(settings, rng=given)],
        "trace": [lambda: Publisher(settings, store, trace=given), lambda: Worker(settings, store, trace=given)],
        "topics": [lambda: Replica(settings, given)],
        "tables": [lambda: Replica(settings, tables=given), lambda: Store(settings, tables=given)],
        "settings": [lambda: Store(settings.store_url, settings=given)],
        "limits": [lambda: Store(settings.store_url, limits=given)],
    }
    for name, each in makers.items():
        for make in each:
            with pytest.raises(UsageError, match=f"^{name} must be "):
                make()


def test_password_of_a_url_in_the_wrong_place_is_not_shown(store: Store) -> None:
    given: Any = "postgresql://me:tOpSeCrEt@db/net"
    with pytest.raises(ConfigError) as caught:
        Replica(given)
    assert "tOpSeCrEt" not in str(caught.value)
    assert "postgresql://me:***@db/net" in str(caught.value)


def test_long_values_are_cut(replica: Any) -> None:
    with pytest.raises(PubSubError) as caught:
        replica.wait_for("x" * 1000, 1)
    assert len(str(caught.value)) < 250


def test_valid_arguments_are_accepted(settings: Settings, store: Store) -> None:
    with Replica(settings, ["a"], store=store, rng=random.Random(1)) as replica:
        replica.on(["t", "u"], print, order=("t", "u"), key="k")
        replica.wait_synced(60)
