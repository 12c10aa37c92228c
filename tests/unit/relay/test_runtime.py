"""Relays on real sockets: what leaves them, what they answer, and how replicas below move between them."""

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Publisher, Replica, Settings, Store
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.model import ALL, Delta, Full, SyncAnswer, Want
from pubsub_lib.core.quarantine import CONTRADICTIONS, SPACING
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.errors import StoreUnavailable, TransportError
from pubsub_lib.journal import JournalSettings
from pubsub_lib.journal.reading import read
from pubsub_lib.journal.rows import Row
from pubsub_lib.relay.runtime import RelayRuntime
from pubsub_lib.replica.sources import channel_client
from pubsub_lib.sync.question import SyncQuestion
from tests.unit.relay.sockets import TOPICS, below, bound, relay_of
from tests.unit.world import LONG, QUICK

PATIENT = msgspec.structs.replace(QUICK, max_idle_time=1.5)
"""Of a replica that does not leave its parent although a busy machine delays the proofs."""


@pytest.fixture
def origin(sqlite_url: str) -> Settings:
    return bound(sqlite_url, "api-1")


@pytest.fixture
def store(origin: Settings) -> Iterator[Store]:
    with Store(origin) as store, Publisher(origin, store):
        write(store, 0)
        yield store


def write(store: Store, value: int) -> None:
    with store.transaction() as tx:
        tx.set("a", str(value % 3), value, topic="t")
        tx.set("b", str(value % 5), value, topic="u")


def is_fresh(relay: RelayRuntime) -> bool:
    """Whether the relay is ready, and a proof of each topic is there."""
    return not relay.problems() and relay.reading().served == len(relay.topics)


@contextmanager
def ready(*relays: RelayRuntime) -> Iterator[None]:
    """Wait until these relays are fresh: the time of a replica to leave its parent runs from its own start."""
    assert poll(lambda: all(map(is_fresh, relays)), LONG), [each.problems() for each in relays]
    yield


def asked(wants: Mapping[str, Want]) -> SyncQuestion:
    """The question of a replica below."""
    return SyncQuestion(wants)


def fulls(replica: Replica) -> int:
    return sum(replica.status().counters.fulls.values())


def test_changes_reach_a_replica_through_two_relays(origin: Settings, store: Store) -> None:
    first, second = bound(origin.store_url, "relay-1"), bound(origin.store_url, "relay-2")
    second = msgspec.structs.replace(second, parents=(first.bind_address,))
    reads = Counted(store)
    with (
        relay_of(first, store, origin.bind_address) as upper,
        relay_of(second, store) as lower,
        Replica(below(origin, second, timing=PATIENT), TOPICS, store=reads) as replica,
    ):
        replica.wait_synced(LONG)
        assert poll(lambda: is_fresh(upper) and is_fresh(lower), LONG), (upper.problems(), lower.problems())
        assert replica.publishers == (second.bind_address,)
        assert lower.listens_to == (first.bind_address,)
        assert poll(lambda: replica.status().staleness < 2.0 and not replica.status().polling, LONG)
        before = reads.links
        for value in range(1, 50):
            write(store, value)
        replica.wait_for(store.read_heads(()).store.position, LONG, topics=TOPICS)
        assert replica.get("a", "1") == 49
        # On a busy machine a relay or the replica may read a few links, because a hello was overdue.
        assert poll(lambda: lower.counters()["relayed"]["links"] >= 80, LONG)
        assert reads.links - before <= 40, "most changes did not come through the relays"
        assert poll(lambda: lower.reading().above == 2, LONG), "the relay above, and the publisher above that one"


def rows_in(folder: Path) -> list[Row]:
    """The records of all journals in this folder."""
    return [row for path in folder.glob("*.journal") for row in read(path)]


def received(folder: Path, name: str) -> set[str]:
    """The services whose messages the journals of a replica show."""
    rows = [row for row in rows_in(folder) if row.name == name and row.kind == "data" and row.sequence]
    return {row.service for row in rows}


def test_relays_record_what_they_receive_and_what_they_send(origin: Settings, store: Store, tmp_path: Path) -> None:
    journal = JournalSettings(folder=str(tmp_path), mark_seconds=0.05, to_parquet=False)
    first = bound(origin.store_url, "relay-1", journal=journal)
    second = bound(origin.store_url, "relay-2", journal=journal, parents=(first.bind_address,))
    agent = below(origin, second, journal=journal, replica_name="agent", timing=PATIENT)
    with relay_of(first, store, origin.bind_address) as upper, relay_of(second, store) as lower:
        with Replica(agent, TOPICS, store=store) as replica:
            replica.wait_synced(LONG)
            assert poll(lambda: is_fresh(upper) and is_fresh(lower) and not replica.status().polling, LONG)
            write(store, 1)
            replica.wait_for(store.read_heads(()).store.position, LONG, topics=TOPICS)
            assert poll(lambda: received(tmp_path, "agent") == {"relay-2"}, LONG)
        names = {"relay-1", "relay-2"}
        assert poll(lambda: {row.name for row in rows_in(tmp_path) if row.kind == "mark"} >= names, LONG)
        written = lower.counters()["journal"]
        assert written["written"] > 10
        assert (written["lost"], lower.journal_error) == (0, "")
        uuids = {"relay-1": upper.uuid, "relay-2": lower.uuid}
    rows = rows_in(tmp_path)
    for name, uuid in uuids.items():
        of = [row for row in rows if row.name == name]
        assert {row.side for row in of} == {"relay", "replica"}
        interest = {(row.topic, row.cause, row.service, row.uuid) for row in of if row.kind == "interest"}
        assert interest == {(topic, "relay", name, uuid) for topic in (*TOPICS, "default")}
        sent = [(row.topic, row.position) for row in of if row.outcome == "sent"]
        applied = [(row.topic, row.position) for row in of if row.outcome == "applied"]
        assert sent == applied != []
        assert {row.uuid for row in of if row.outcome == "sent"} == {uuid}
        assert {row.kind for row in of} >= {"ask", "hello", "held", "listing", "sync_end", "mark", "close"}
    parents = {(row.name, row.cause, row.service, row.uuid) for row in rows if row.kind == "parent"}
    assert parents == {
        ("relay-2", first.bind_address, "", ""),
        ("relay-2", first.bind_address, "relay-1", uuids["relay-1"]),
        ("agent", second.bind_address, "", ""),
        ("agent", second.bind_address, "relay-2", uuids["relay-2"]),
    }
    assert received(tmp_path, "agent") == {"relay-2"}


class Counted:
    """A reader that counts the links that it reads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.links = 0

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        answer = self._store.read_sync(wants)
        self.links += sum(len(part.links) for part in answer.chains.values() if isinstance(part, Delta))
        return answer


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relays give up no answer because their threads do not run for a moment."""
    monkeypatch.setattr("pubsub_lib.relay.engine.SLACK", LONG)


@pytest.mark.usefixtures("patient")
def test_relay_answers_full_and_delta_syncs_from_memory(origin: Settings, store: Store) -> None:
    config = bound(origin.store_url, "relay-1")
    with relay_of(config, store, origin.bind_address) as relay:
        assert poll(lambda: is_fresh(relay), LONG), relay.problems()
        whole = relay.answer(asked({"t": Want(), "u": Want()}))
        assert whole is not None
        assert whole.store_id == store.store_id
        part = whole.chains["t"]
        assert isinstance(part, Full)
        assert [record.value for record in part.topics["t"].records] == [b"0"]
        for value in range(1, 4):
            write(store, value)
        head = store.read_heads(["t"]).topics["t"].point
        assert poll(lambda: relay.counters()["relayed"]["links"] >= 6, LONG)
        answer = relay.answer(asked({"t": Want(after=part.head)}))
        assert answer is not None
        assert answer.ages is not None
        delta = answer.chains["t"]
        assert isinstance(delta, Delta)
        assert (len(delta.links), delta.head) == (3, head)
        assert relay.answer(asked({"nothing": Want()})) is None
        assert relay.counters()["relayed"]["questions"] == 3


def test_questions_of_many_threads_are_answered_in_bounded_time(
    origin: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsub_lib.relay.engine.SLACK", 10.0)
    config = bound(origin.store_url, "relay-1")
    with relay_of(config, store, origin.bind_address) as relay:
        assert poll(lambda: is_fresh(relay), LONG), relay.problems()
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda _: relay.answer(asked({"t": Want()})), range(64)))
        assert all(each is not None for each in found)
        assert relay.reading().waiting == 0


@pytest.mark.usefixtures("patient")
def test_relay_without_an_answer_above_answers_with_its_true_age(origin: Settings) -> None:
    config = bound(origin.store_url, "relay-1")
    with Store(origin) as store:
        reader = Unreadable(store)
        publisher = Publisher(origin, store)
        with publisher, relay_of(config, reader, origin.bind_address) as relay:
            write(store, 1)
            assert poll(lambda: is_fresh(relay), LONG), relay.problems()
            reader.broken = True
            publisher.close()
            before = relay.reading().staleness
            assert poll(lambda: relay.reading().staleness > before + 1.0, LONG)
            answer = relay.answer(asked({"t": Want()}))
            assert answer is not None
            assert answer.ages is not None
            assert answer.ages["t"].age > 0.9


def test_rule_r1_staleness_below_a_relay_that_is_cut_off_stays_true_until_it_is_left(
    origin: Settings, store: Store
) -> None:
    """The first relay loses its publisher and the database, and goes on answering. The replica's database is gone."""
    other = bound(origin.store_url, "api-2")
    one, two = bound(origin.store_url, "relay-1"), bound(origin.store_url, "relay-2")
    reader, own = Unreadable(store), Unreadable(store)
    publisher = Publisher(other, store)
    with (
        publisher,
        relay_of(one, reader, other.bind_address) as cut,
        relay_of(two, store, origin.bind_address) as healthy,
        ready(cut, healthy),
        Replica(below(origin, one, two, timing=PATIENT), TOPICS, store=own) as replica,
    ):
        replica.wait_synced(LONG)
        assert poll(lambda: not replica.status().polling, LONG)
        assert replica.publishers == (one.bind_address,)
        reader.broken = own.broken = True
        publisher.close()
        closed = time.monotonic()
        while replica.publishers == (one.bind_address,):
            now = time.monotonic()
            assert now < closed + LONG
            staleness = replica.status().staleness
            if replica.publishers == (one.bind_address,):
                assert staleness >= now - closed, "no proof is from after the cut"
            replica._engine.pause(0.05)
        assert poll(lambda: replica.status().staleness < time.monotonic() - closed - 0.2, LONG), replica.status()


class Unreadable:
    """A reader whose database is out of reach from some time on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.broken = False

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        if self.broken:
            raise StoreUnavailable("out of reach")
        return self._store.read_sync(wants)


def test_rule_r5_replica_leaves_a_relay_that_stops_and_one_that_is_gone(origin: Settings, store: Store) -> None:
    one, two = bound(origin.store_url, "relay-1"), bound(origin.store_url, "relay-2")
    with (
        relay_of(one, store, origin.bind_address) as first,
        relay_of(two, store, origin.bind_address) as second,
        ready(first, second),
        Replica(below(origin, one, two, timing=PATIENT), TOPICS, store=store) as replica,
    ):
        replica.wait_synced(LONG)
        assert poll(lambda: not replica.status().polling, LONG)
        begun = fulls(replica)
        assert replica.publishers == (one.bind_address,)
        first.close()  # it sends a goodbye
        assert poll(lambda: replica.publishers == (two.bind_address,), LONG)
        write(store, 7)
        replica.wait_for(store.read_heads(()).store.position, LONG, topics=TOPICS)
        second._subscriber.close()
        second._sender.close()  # without a goodbye
        assert poll(lambda: replica.publishers == (one.bind_address,), LONG)
        with relay_of(one, store, origin.bind_address) as again:
            assert poll(lambda: is_fresh(again), LONG)
            write(store, 8)
            replica.wait_for(store.read_heads(()).store.position, LONG, topics=TOPICS)
            assert poll(lambda: not replica.status().polling, LONG), "it is proved by the parent again"
        assert fulls(replica) == begun


def test_rule_r6_relays_that_listen_to_each_other_are_not_ready(origin: Settings, store: Store) -> None:
    one, two = bound(origin.store_url, "relay-1"), bound(origin.store_url, "relay-2")
    one = msgspec.structs.replace(one, parents=(two.bind_address,))
    two = msgspec.structs.replace(two, parents=(one.bind_address,))
    with relay_of(one, store) as first, relay_of(two, store) as second:
        relays = (first, second)
        assert poll(lambda: any("is below this relay" in why for each in relays for why in each.problems()), LONG)


def test_second_address_of_the_same_parent_is_used_as_the_first_one(origin: Settings, store: Store) -> None:
    above = bound(origin.store_url, "relay-1")
    addresses = above.bind_address, above.bind_address.replace("127.0.0.1", "localhost")
    lower = msgspec.structs.replace(bound(origin.store_url, "relay-2", timing=PATIENT), parents=addresses)
    with relay_of(above, store, origin.bind_address) as first:
        first.serve_syncs_at(8867)
        assert poll(lambda: is_fresh(first), LONG)
        with relay_of(lower, store) as second:
            parents = second.parents
            assert parents is not None
            assert poll(lambda: parents.channel == (addresses[0], 8867), LONG)
            with parents._lock:
                assert parents._parents.leave(time.monotonic())
                parents._moved("its network is cut")
            parents._thread.wake()
            assert poll(lambda: parents.channel == (addresses[1], 8867), LONG), "its hellos are taken for late ones"


def test_what_a_relay_finds_wrong_is_counted(origin: Settings, store: Store) -> None:
    relay = relay_of(bound(origin.store_url, "relay-1"), store, origin.bind_address)
    with relay:
        assert poll(lambda: is_fresh(relay) and not relay.reading().polling, LONG)

        def quarantine(state: ReplicaState) -> None:
            now = relay._engine.now()
            for number in range(CONTRADICTIONS):
                state.quarantine.contradicted(("api-1", "1" * 32), now + number * (SPACING + 1.0), now)

        relay._engine.read(quarantine)
        assert relay.reading().quarantined == 1
        relay._engine.faults.rotted += 2
        assert relay.counters()["faults"] == {"guarded": 0, "mismatches": 0, "rotted": 2, "contradicted": 0}


def test_rule_r6_hellos_do_not_name_a_parent_that_was_left(origin: Settings, store: Store) -> None:
    parents = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"
    settings = bound(origin.store_url, "relay-1", timing=PATIENT, parents=parents)
    relay = relay_of(settings, store)
    assert relay.parents is not None
    publisher = "1" * 32
    made = Envelope("relay-2", publisher, ALL, 0, (), Hello({}, {}, None, 0.0, ""))
    relay.parents.initialize(relay._engine.on_envelope, lambda: None)
    relay.parents._receive(made)
    assert relay.reading().above == 1
    now = time.monotonic()
    assert relay.parents._parents.leave(now)
    relay.parents.step(now)
    assert relay.parents.current == parents[1]
    assert relay.reading().above == 0
    relay.close()


def test_address_in_use_is_refused_and_nothing_is_left(origin: Settings, store: Store) -> None:
    before = threading.active_count()
    relay = relay_of(msgspec.structs.replace(origin, service_name="relay-1"), store)
    with pytest.raises(TransportError, match="in use"):
        relay.start()
    assert relay.answer(asked({"t": Want()})) is None
    relay.close()
    assert poll(lambda: threading.active_count() <= before, LONG)


def test_server_of_the_parent_that_was_left_is_asked_last() -> None:
    parents, urls = ("tcp://10.0.0.7:8866", "tcp://10.0.0.8:8866"), "http://10.0.0.7:8867,http://10.0.0.8:8867"
    settings = bound("", "relay-1", parents=parents, sync_url=urls)
    reader = channel_client(settings)
    relay = relay_of(settings, reader)
    assert relay.parents is not None
    relay.parents._listens_to, relay.parents._serves = parents[0], 8867
    relay.parents._moved("it proved nothing")
    assert reader._left() == ("10.0.0.7", 8867)


@pytest.mark.parametrize("alone", [True, False], ids=["parents alone", "sync_url"])
def test_rule_09_failures_at_the_old_parent_delay_no_sync_at_the_next_one(
    alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``sync_url`` the same servers are asked as before."""
    parents = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"
    settings = bound("", "relay-1", parents=parents, sync_url="" if alone else "http://127.0.0.1:1")
    relay = relay_of(settings, None if alone else channel_client(settings))
    assert relay.parents is not None
    woken: list[str] = []
    monkeypatch.setattr(relay._engine.clock, "wake", lambda: woken.append("clock"))
    relay.parents.initialize(relay._engine.on_envelope, lambda: None)

    def fail(state: ReplicaState) -> None:
        for _ in range(10):
            state.tracker.syncs.begin(relay._engine.now(), 1)
            state.tracker.syncs.failed(relay._engine.now())

    def due(state: ReplicaState) -> float:
        state.tracker.syncs.need(relay._engine.now())
        return state.tracker.syncs.next_time() - relay._engine.now()

    relay._engine.read(fail)
    assert relay._engine.read(due) > 0.0
    now = time.monotonic()
    assert relay.parents._parents.leave(now)
    relay.parents.step(now)
    assert (relay._engine.read(due) <= settings.timing.sync_jitter) == alone
    assert woken
    relay.close()


def test_rule_r6_relay_that_is_its_own_parent_by_another_name_listens_to_the_next_one(
    origin: Settings, store: Store
) -> None:
    config = bound(origin.store_url, "relay-1")
    own = config.bind_address.replace("127.0.0.1", "localhost")
    config = msgspec.structs.replace(config, parents=(own, origin.bind_address))
    with relay_of(config, store) as relay:
        assert relay.parents is not None
        assert poll(lambda: is_fresh(relay), LONG), relay.problems()
        assert relay.parents.current == origin.bind_address
        # It may have read the store before the parent's first hello.
        assert poll(lambda: relay.parents.publisher == "api-1", LONG)  # type: ignore[union-attr]
        links = relay.counters()["relayed"]["links"]
        write(store, 7)
        assert poll(lambda: relay.counters()["relayed"]["links"] == links + 2, LONG), "each link is sent on once"
