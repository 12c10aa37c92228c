"""Nonces, UUIDs and keys come from the operating system: who knows the state of :mod:`random` predicts none of them."""

import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Publisher, Replica, Settings, Store, Worker, loader
from pubsub_lib.cli.listener import Listener
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.limits import Limits
from pubsub_lib.curve_keys import new_pair
from pubsub_lib.journal import JournalSettings
from pubsub_lib.journal.writer import open_journal
from pubsub_lib.relay.full_syncs import FullSyncReader
from pubsub_lib.replica.own_agent import OwnAgent
from pubsub_lib.service.standby_service import StandbyService
from pubsub_lib.store.administration import new_id
from pubsub_lib.store.links import Commit
from pubsub_memory.subscriber import MemorySubscriber
from pubsub_nats.driver import NatsDriver
from pubsub_redis.driver import RedisDriver
from pubsub_sql.follower import ChangelogFollower
from pubsub_zmq.subscriber import ZmqSubscriber
from tests.unit.relay.sockets import bound, relay_of
from tests.unit.world import LONG, settings

SEED = 1


class Predictable(random.Random):
    """In place of ``random.Random``. Also with a seed of the system, 624 of its numbers determine all further ones."""

    def __init__(self, seed: Any = None) -> None:
        super().__init__(SEED)


@pytest.fixture(autouse=True)
def predictable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each generator of :mod:`random` is predictable, except ``SystemRandom``."""
    state = random.getstate()
    monkeypatch.setattr(random, "Random", Predictable)
    yield
    random.setstate(state)


def write(store: Store) -> Commit:
    """Commit a new object."""
    with store.transaction() as tx:
        tx.create("a", uuid.uuid4().hex, 1, topic="t")
    assert tx.commit is not None
    return tx.commit


def uuid_of_a_publisher(config: Settings, store: Store) -> str:
    publisher = Publisher(config, store)
    publisher.close()
    return publisher.uuid


def uuid_of_a_worker(config: Settings, store: Store) -> str:
    driver = loader.load_publisher(config)
    with Worker(config, store, driver), patch.object(driver, "send_event_by", MagicMock()) as sent:
        write(store)
        return str(sent.call_args.args[0].uuid)


def uuid_of_a_relay(config: Settings, store: Store) -> str:
    relay = relay_of(bound(config.store_url, "relay-1"), store)
    relay.close()
    return relay.uuid


def uuid_of_a_standby(config: Settings, store: Store) -> str:
    service = StandbyService(config, ServiceSettings(role="standby", serve_syncs=True))
    service.close()
    return service.uuid


def uuid_of_an_agent(config: Settings, store: Store) -> str:
    announcing = msgspec.structs.replace(config, sync_url="http://127.0.0.1:1")
    with patch("pubsub_lib.replica.sources.OwnAgent", wraps=OwnAgent) as made, Replica(announcing, ["t"]):
        return str(made.call_args.args[1])


def uuid_of_a_reader_of_the_changelog(config: Settings, store: Store) -> str:
    return ChangelogFollower(Limits(), 10).uuid


def uuid_of_a_journal(config: Settings, store: Store) -> str:
    folder = Path(config.store_url.removeprefix("sqlite:///")).parent / "journals"
    journal = open_journal(JournalSettings(folder=str(folder)), "writer", "api-1")
    assert journal is not None
    journal.close()
    return journal.run


def uuid_of_a_lease(config: Settings, store: Store) -> str:
    return FullSyncReader(store, store.directory, 1.0)._holder


def id_of_a_new_store(config: Settings, store: Store) -> str:
    with Store(f"{config.store_url}-{uuid.uuid4().hex}") as another:
        return another.store_id.hex()


def new_id_of_a_store(config: Settings, store: Store) -> str:
    return new_id(config.store_url)[1]


def nonce_of_a_transaction(config: Settings, store: Store) -> str:
    return str(write(store).point.nonce)


def requested(kind: type, participant: Any) -> str:
    """The nonce of the first hello request of a participant with this subscriber."""
    with patch.object(kind, "request_hello", MagicMock()) as request, participant:
        assert poll(lambda: request.called, LONG)
        return str(request.call_args_list[0].args[0])


def nonce_of_a_replica(config: Settings, store: Store) -> str:
    return requested(MemorySubscriber, Replica(config, ["t"], store=store))


def nonce_of_a_relay(config: Settings, store: Store) -> str:
    return requested(ZmqSubscriber, relay_of(bound(config.store_url, "relay-1"), store, "tcp://127.0.0.1:1"))


def nonce_of_an_observer(config: Settings, store: Store) -> str:
    return Listener(MagicMock(), "memory", None, ()).ask(["t"])[0]


def inbox_at_redis(config: Settings, store: Store) -> str:
    driver = settings(config.store_url, driver="redis", driver_options={"url": "redis://127.0.0.1:1"}).for_driver()
    return str(RedisDriver.subscriber(driver)._inbox)  # type: ignore[attr-defined]


def inbox_at_nats(config: Settings, store: Store) -> str:
    driver = settings(config.store_url, driver="nats", driver_options={"servers": ("nats://127.0.0.1:1",)}).for_driver()
    return str(NatsDriver.subscriber(driver)._inbox)  # type: ignore[attr-defined]


def secret_key(config: Settings, store: Store) -> str:
    return new_pair().secret


MAKERS: tuple[Callable[[Settings, Store], str], ...] = (
    uuid_of_a_publisher,
    uuid_of_a_worker,
    uuid_of_a_relay,
    uuid_of_a_standby,
    uuid_of_an_agent,
    uuid_of_a_reader_of_the_changelog,
    uuid_of_a_journal,
    uuid_of_a_lease,
    id_of_a_new_store,
    new_id_of_a_store,
    nonce_of_a_transaction,
    nonce_of_a_replica,
    nonce_of_a_relay,
    nonce_of_an_observer,
    inbox_at_redis,
    inbox_at_nats,
    secret_key,
)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_same_seed_gives_another_value(make: Callable[[Settings, Store], str], config: Settings, store: Store) -> None:
    found = []
    for _ in range(2):
        random.seed(SEED)
        found.append(make(config, store))
    assert found[0] != found[1]
    if make.__name__.startswith(("uuid_", "id_", "new_id_")):
        assert [uuid.UUID(hex=each).version for each in found] == [4, 4], "uuid1 is the host's address and the time"


def test_predictable_generators_give_the_same_value() -> None:
    """The check of this test itself."""
    assert random.Random().getrandbits(96) == random.Random().getrandbits(96)
    assert random.SystemRandom().getrandbits(96) != random.SystemRandom().getrandbits(96)
