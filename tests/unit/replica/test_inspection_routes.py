"""The HTTP routes by which a replica is compared with the store."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from _patience import longest
from _processes import free_port, poll

from pubsub_lib import Replica, Settings, Store
from pubsub_lib.core import digest
from pubsub_lib.core.model import ALL
from pubsub_lib.core.quarantine import CONTRADICTIONS, SECONDS, SPACING
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.errors import InvalidValueError, NotSubscribedError
from pubsub_lib.http_routes import POST_HEADER
from tests.unit.world import settings

LONG = longest(120.0)
LIAR = ("api-1", "0123456789abcdef" * 2)


def quarantine(replica: Replica) -> None:
    """As after three changes that the store does not contain."""

    def contradict(state: ReplicaState) -> None:
        now = replica._engine.now()
        for number in range(CONTRADICTIONS):
            state.quarantine.contradicted(LIAR, now + number * (SPACING + 1.0), now)

    replica._engine.read(contradict)


@pytest.fixture
def config(sqlite_url: str) -> Settings:
    # Not paranoid: an altered value in memory must be found by the routes, not by the consistency check.
    return settings(sqlite_url, replica_metrics_port=free_port(), paranoid=False)


@pytest.fixture
def store(config: Settings) -> Iterator[Store]:
    with Store(config.store_url) as store:
        with store.transaction() as tx:
            for number in range(20):
                tx.set("t", f"k{number}", number, topic="a")
            tx.set("t", "other", 1, topic="b")
        yield store


@pytest.fixture(params=[("a", "b"), (ALL,)], ids=["topics", "everything"])
def replica(request: pytest.FixtureRequest, config: Settings, store: Store) -> Iterator[Replica]:
    with Replica(config, request.param) as replica:
        replica.wait_synced(LONG)
        yield replica


def ask(config: Settings, target: str, method: str = "GET") -> tuple[int, Any]:
    url = f"http://127.0.0.1:{config.replica_metrics_port}{target}"
    request = urllib.request.Request(url, headers={POST_HEADER: "1"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_count_and_digests_equal_the_stores_at_the_same_point(config: Settings, store: Store, replica: Replica) -> None:
    head = store.topics()["a"]
    # On a busy machine the replica may be polling now, because this test has no publisher.
    assert poll(lambda: ask(config, "/verify?topic=a")[1]["state"] == "following", LONG)
    code, found = ask(config, "/verify?topic=a")
    assert code == 200
    assert (found["topic"], found["objects"]) == ("a", head.count)
    assert (found["digest"], found["position"]) == (head.digest, head.point.position)
    assert found["nonce"] == head.point.nonce
    assert {int(bucket): value for bucket, value in found["buckets"].items()} == store.bucket_digests("a")
    assert 0 <= found["staleness"] < LONG


def test_objects_returns_the_objects_of_chosen_buckets(config: Settings, store: Store, replica: Replica) -> None:
    mine = [each for each in store.objects(topic="a") if digest.bucket_of("t", each.key) in (3, 7, 200)]
    wanted = sorted([each.table, each.key, each.version, each.fingerprint] for each in mine)
    buckets = "".join(f"&bucket={digest.bucket_of('t', each.key)}" for each in mine) or "&bucket=3"
    assert sorted(ask(config, f"/objects?topic=a{buckets}")[1]["objects"]) == wanted
    everything = "".join(f"&bucket={number}" for number in range(digest.BUCKETS))
    assert len(ask(config, f"/objects?topic=a{everything}")[1]["objects"]) == 20


def test_verify_shows_an_altered_value_and_resync_repairs_it(config: Settings, store: Store, replica: Replica) -> None:
    changes: list[tuple[str, Any, Any]] = []
    replica.on("t", lambda change: changes.append((change.key, change.old, change.new)))
    entry = replica._engine.read(lambda state: state.cache._topics["a"].tables["t"]["k3"])
    entry.value = b'"rot"'
    assert ask(config, "/verify?topic=a")[1]["digest"] != store.topics()["a"].digest
    assert ask(config, "/resync?topic=a", "POST") == (200, {"topics": ["a"]})
    assert poll(lambda: ask(config, "/verify?topic=a")[1]["digest"] == store.topics()["a"].digest, LONG)
    assert poll(lambda: ("k3", "rot", 3) in changes, LONG)
    assert replica.status().counters.fulls["asked"] == 1


def test_resync_without_a_topic_reads_everything_again(config: Settings, replica: Replica) -> None:
    assert ask(config, "/resync", "POST") == (200, {"topics": []})
    wanted = len(replica.topics)
    assert poll(lambda: replica.status().counters.fulls.get("asked") == wanted, LONG)
    assert poll(lambda: all(each.state == "following" for each in replica.status().chains.values()), LONG)


BAD = [
    ("GET", "/verify?topic=never", 404, "not subscribed to the topic 'never'; its topics are ['a', 'default']"),
    ("POST", "/resync?topic=a&topic=never", 404, "not subscribed to the topic 'never'"),
    ("GET", "/verify", 400, "name one topic"),
    ("GET", "/verify?topic=", 400, "topic"),
    ("GET", "/objects?topic=a", 400, "from 0 to 255"),
    ("GET", "/objects?topic=a&bucket=256", 400, "from 0 to 255"),
    ("GET", "/objects?topic=a&bucket=x", 400, "from 0 to 255"),
    ("GET", "/resync", 405, "POST /resync"),
    ("POST", "/verify?topic=a", 405, "GET /verify"),
    (
        "GET",
        "/nothing",
        404,
        "use one of GET /metrics, GET /objects, GET /quarantined, GET /ready, GET /verify, POST /resync",
    ),
]


def test_invalid_requests_are_refused(config: Settings, store: Store) -> None:
    with Replica(config, ["a"]) as replica:
        replica.wait_synced(LONG)
        for method, target, code, words in BAD:
            got, body = ask(config, target, method)
            assert (got, words in body) == (code, True), (target, body)
        assert replica.status().counters.fulls.get("asked", 0) == 0


@pytest.mark.empty_database
def test_verify_of_a_replica_before_its_first_sync(config: Settings, sqlite_url: str) -> None:
    with Replica(config, ["a"]):  # the database does not exist yet
        code, found = ask(config, "/verify?topic=a")
    assert code == 200
    assert (found["position"], found["nonce"], found["staleness"], found["objects"]) == (None, None, None, 0)


def test_quarantined_publishers_are_named(config: Settings, store: Store) -> None:
    with Replica(config, ["a"]) as replica:
        replica.wait_synced(LONG)
        assert ask(config, "/quarantined") == (200, {"quarantined": []})
        quarantine(replica)
        code, found = ask(config, "/quarantined")
        (publisher,) = found["quarantined"]
        assert (code, publisher["service"], publisher["uuid"]) == (200, *LIAR)
        assert SECONDS - LONG < publisher["seconds_left"] <= SECONDS
        assert [(each.service, each.uuid) for each in replica.status().quarantined] == [LIAR]


def test_contents_and_resync_called_directly(config: Settings, replica: Replica) -> None:
    assert [each.key for each in replica.contents("b").records] == ["other"]
    with pytest.raises(InvalidValueError, match="topic"):
        replica.contents("")
    if replica.topics != (ALL,):
        with pytest.raises(NotSubscribedError, match="not subscribed to the topic 'never'"):
            replica.contents("never")
        with pytest.raises(NotSubscribedError, match="not subscribed to the topic 'never'"):
            replica.resync("never")
