"""A replica's metrics, read from its endpoint."""

import sys
import urllib.error
import urllib.request

import msgspec
import pytest
from _patience import longest
from _processes import free_port
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pubsub_lib import Publisher, Replica, Settings, Store, __version__
from pubsub_lib.core.model import Point
from pubsub_lib.core.quarantine import QuarantinedPublisher
from pubsub_lib.errors import ClosedError, ConfigError, TransportError
from pubsub_lib.journal import JournalSettings
from pubsub_lib.replica.metrics import MAX_PUBLISHERS, MAX_TOPICS, ReplicaMetrics
from pubsub_lib.replica.status import ChainStatus
from tests.unit.replica.test_inspection_routes import quarantine
from tests.unit.world import settings

LONG = longest(120.0)

Samples = dict[tuple[str, tuple[str, ...]], float]


def with_endpoint(url: str) -> Settings:
    return settings(url, replica_metrics_port=free_port())


def get(config: Settings, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{config.replica_metrics_port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(text: str) -> Samples:
    return {
        (sample.name.removeprefix("pubsub_replica_"), tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_have_the_values_of_the_status(sqlite_url: str) -> None:
    config = msgspec.structs.replace(with_endpoint(sqlite_url), journal=JournalSettings("/proc/nowhere"))
    with Store(sqlite_url) as store:
        with store.transaction() as tx:
            tx.set("a", "k", 1, topic="t")
        with Replica(config, ["t", "u"], default_topic=False) as replica:
            replica.on("a", lambda change: None)
            replica.wait_synced(LONG)
            replica.wait_handled(1, LONG, topics=["t"])
            assert get(config, "/ready") == (200, "ready\n")
            found = samples(get(config, "/metrics")[1])
            quarantine(replica)
            assert samples(get(config, "/metrics")[1])["quarantined_publishers", ()] == 1.0
    assert found["ready", ()] == found["synced", ()] == 1.0
    assert found["quarantined_publishers", ()] == 0.0
    assert 0.0 <= found["staleness_seconds", ()] < LONG
    assert found["topics", ()] == 2.0
    assert found["topic_known_position", ("t",)] == found["known_position", ("highest",)] == 1.0
    assert found["topic_known_position", ("u",)] == found["known_position", ("lowest",)] == 0.0
    assert sum(value for (name, labels), value in found.items() if name == "syncs_total" and "full" in labels) == 2.0
    assert found["handlers_total", ("handled",)] == 1.0
    assert found["faults_total", ("guarded",)] == found["faults_total", ("mismatches",)] == 0.0
    assert found["dropped_total", ("old",)] == 0.0
    assert found["sequences_total", ("holes",)] == 0.0
    assert found["journal_records_total", ("written",)] == 0.0, "the folder cannot be written"
    assert found["journal_records_total", ("lost",)] > 0.0
    assert found["journal_failing", ()] == 1.0
    for name in ("handlers_lag_seconds", "handlers_waiting", "handlers_parked_objects", "polling", "waiting_messages"):
        assert (name, ()) in found
    with pytest.raises(urllib.error.URLError):
        get(config, "/ready")


def test_quarantined_publishers_are_named_up_to_a_maximum(sqlite_url: str) -> None:
    """Any program can choose the service name in its messages."""
    given = [QuarantinedPublisher(f'api"\n{number}', f"{number:032x}", 60.0) for number in range(MAX_PUBLISHERS + 2)]
    with Store(sqlite_url), Replica(with_endpoint(sqlite_url), ["t"]) as replica:
        status = msgspec.structs.replace(replica.status(), quarantined=given)
    found = samples(generate_latest(ReplicaMetrics(lambda: status)).decode())
    named = {labels: value for (name, labels), value in found.items() if name == "quarantine_seconds"}
    assert named == {(each.service, each.uuid): 60.0 for each in given[2:]}
    assert found["quarantined_publishers", ()] == len(given)


def test_histograms_count_links_and_calls_but_no_full_sync(sqlite_url: str) -> None:
    config = with_endpoint(sqlite_url)
    with Store(sqlite_url) as store, Publisher(config, store), Replica(config, ["t"], default_topic=False) as replica:
        with store.transaction() as tx:
            tx.set("a", "read", 0, topic="t")
        replica.on("a", lambda change: None)
        replica.on("a", lambda change: None, key="1")
        replica.wait_handled(tx.commit, LONG)
        before = samples(get(config, "/metrics")[1])
        for value in range(3):
            with store.transaction() as tx:
                tx.set("a", str(value), value, topic="t")
                tx.set("b", str(value), value, topic="t")
        replica.wait_for(tx.commit, LONG)
        replica.wait_handled(tx.commit, LONG)
        found = samples(get(config, "/metrics")[1])
        status = replica.status()

    def grown(name: str, *labels: str) -> float:
        return found[name, labels] - before[name, labels]

    assert grown("commit_to_applied_seconds_count") == grown("links_applied_total") == 3.0
    assert grown("commit_to_handled_seconds_count") == 4.0  # two handlers of one of the changes
    for step in ("applied", "handled"):
        assert grown(f"commit_to_{step}_seconds_bucket", "60.0") >= 3.0
        assert 0.0 <= grown(f"commit_to_{step}_seconds_sum") < LONG
        assert found["negative_latencies_total", (step,)] >= 0.0
    assert status.commit_to_applied.count == found["commit_to_applied_seconds_count", ()]
    assert status.handlers.commit_to_handled.count == found["commit_to_handled_seconds_count", ()]
    assert found["pubsub_build_info", (__version__,)] == 1.0


def test_first_sync_is_not_in_the_histograms(sqlite_url: str) -> None:
    config = with_endpoint(sqlite_url)
    with Store(sqlite_url) as store, store.transaction() as tx:
        tx.set("a", "k", 1, topic="t")
    with Replica(config, ["t"]) as replica:
        replica.on("a", lambda change: None)
        replica.wait_handled(1, LONG, topics=["t"])
        found = samples(get(config, "/metrics")[1])
    assert found["handlers_total", ("handled",)] == 1.0
    assert found["commit_to_applied_seconds_count", ()] == found["commit_to_handled_seconds_count", ()] == 0.0


def test_changes_of_a_delta_are_in_the_histograms(sqlite_url: str) -> None:
    """The changelog has the time of each commit. Without a publisher the replica polls, and reads deltas."""
    config = with_endpoint(sqlite_url)
    with Store(sqlite_url) as store, Replica(config, ["t"], default_topic=False) as replica:
        replica.on("a", lambda change: None)
        replica.wait_synced(LONG)
        with store.transaction() as tx:
            tx.set("a", "k", 1, topic="t")
        replica.wait_for(tx.commit, LONG)
        replica.wait_handled(tx.commit, LONG)
        found = samples(get(config, "/metrics")[1])
        assert sum(replica.status().counters.deltas.values()) > 0
    assert found["commit_to_applied_seconds_count", ()] == found["commit_to_handled_seconds_count", ()] == 1.0


@pytest.mark.empty_database
def test_ready_answers_503_with_the_reason_before_the_first_sync(sqlite_url: str) -> None:
    config = with_endpoint(sqlite_url)
    with Replica(config, ["t"]):  # the database does not exist
        status, text = get(config, "/ready")
        assert (status, text.partition(";")[0].strip()) == (503, "the replica is not synced yet")
        assert samples(get(config, "/metrics")[1])["ready", ()] == 0.0


def test_positions_by_topic_are_left_out_beyond_the_maximum_of_topics(sqlite_url: str) -> None:
    with Store(sqlite_url), Replica(settings(sqlite_url), ["t"]) as replica:
        now = replica.status()
    for count, shown in ((MAX_TOPICS, MAX_TOPICS), (MAX_TOPICS + 1, 0)):
        chains = {f"t{number}": ChainStatus("following", Point(number, 1), 0.0, 0) for number in range(count)}
        many = msgspec.structs.replace(now, chains=chains)
        families = {family.name: family.samples for family in ReplicaMetrics(lambda many=many: many).collect()}  # type: ignore[misc]
        assert len(families.get("pubsub_replica_topic_known_position", [])) == shown
        assert [each.value for each in families["pubsub_replica_known_position"]] == [0.0, count - 1.0]


def test_start_with_a_used_port_raises_transport_error(sqlite_url: str) -> None:
    config = with_endpoint(sqlite_url)
    with Store(sqlite_url), Replica(config, ["t"]):
        second = Replica(config, ["t"])
        with pytest.raises(
            TransportError, match=rf":{config.replica_metrics_port} .*replica_metrics_port in \[pubsub\]"
        ):
            second.start()
        assert get(config, "/ready")[0] in (200, 503)  # the first replica's endpoint still runs


def test_a_close_during_the_start_leaves_no_endpoint_open(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = Replica(with_endpoint(sqlite_url), ["t"])
    endpoint = replica._endpoint
    assert endpoint is not None
    start = endpoint.start

    def overtaken() -> None:
        replica.close()
        start()

    monkeypatch.setattr(endpoint, "start", overtaken)
    with pytest.raises(ClosedError):
        replica.start()
    assert endpoint.port == 0


def test_error_for_a_missing_dependency_names_the_extra(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pubsub_lib.replica.metrics", None)
    monkeypatch.delattr("pubsub_lib.replica.metrics", raising=False)
    with pytest.raises(ConfigError, match=r"pip install pubsub-lib\[metrics\]"):
        Replica(with_endpoint(sqlite_url), ["t"])
    Replica(settings(sqlite_url), ["t"]).close()
