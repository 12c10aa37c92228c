"""Journals of real runs: their audit finds no anomaly in a correct run, and finds an object that was altered."""

import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Publisher, Replica, Settings, Store
from pubsub_lib.audit.ingest.store_journal import journal_of_store
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.effects import Apply, StartSync
from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Change, Full, Head, Link, Point, SyncAnswer, TopicSnapshot
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.errors import TransportError
from pubsub_lib.journal import Journal, JournalSettings
from pubsub_lib.journal.reading import find, read
from pubsub_lib.journal.rows import Row
from pubsub_lib.publisher.unsent import unsent
from pubsub_lib.replica.fault_log import log_step
from pubsub_lib.replica.journaling import ReplicaJournal
from pubsub_lib.replica.metrics import ReplicaMetrics
from tests.unit.audit.oracle import Oracle
from tests.unit.world import QUICK, settings

SECOND = 1_000_000


def rows(folder: Path) -> list[Row]:
    return [row for path in find([folder]).append for row in read(path)]


def audited(folder: Path) -> Oracle:
    return Oracle(rows(folder), window=SECOND, grace=SECOND, bound=30 * SECOND, silence=60 * SECOND)


def journalled(url: str, folder: Path, **changes: object) -> Settings:
    journal = JournalSettings(str(folder), mark_seconds=0.05, to_parquet=False)
    return settings(url, journal=journal, replica_name="r1", **changes)


def run(url: str, folder: Path, topics: list[str] | None, breaks: str = "", loses: str = "") -> None:
    """Write while a replica runs; ``breaks`` is the key of an object that is altered only in the cache, ``loses`` a
    topic whose number of objects is altered there.
    """
    config = journalled(url, folder)
    with Store(url) as store, Publisher(config, store):
        with store.transaction() as tx:
            tx.set("lport", "before", {"n": 0}, topic="t1")
        with Replica(config, topics=topics) as replica:
            replica.wait_synced(timeout=30)
            for number in range(20):
                with store.transaction() as tx:
                    tx.set("lport", f"p{number % 5}", {"n": number}, topic=f"t{number % 2}")
                    if number == 15:
                        tx.delete("lport", "p1")
            assert tx.commit is not None
            replica.wait_for(tx.commit, timeout=30)
            if breaks:
                replica._engine.read(lambda state: spoil(state.cache, breaks))
            if loses:
                replica._engine.read(lambda state: lose(state.cache, loses))
        journal_of_store(store, folder)


def spoil(cache: Cache, key: str) -> None:
    topic = next(name for name in cache.topics() if any(each.key == key for each in cache.topic_records(name)))
    objects = cache._topics[topic].tables["lport"]
    objects[key] = msgspec.structs.replace(objects[key], value=b'{"n":-1}')


def lose(cache: Cache, topic: str) -> None:
    cache._topics[topic].count -= 1


@pytest.mark.parametrize("topics", [["t0", "t1"], None])
def test_replica_records_what_it_holds_as_the_changelog_has_it(
    sqlite_url: str, tmp_path: Path, topics: list[str] | None
) -> None:
    run(sqlite_url, tmp_path / "j", topics)
    found = rows(tmp_path / "j")
    links = {(row.topic, row.position): (row.count, row.digest) for row in found if row.outcome == "committed"}
    held = [row for row in found if row.kind == "held" and row.position]
    assert {row.topic for row in held} == {"t0", "t1"}
    for row in held:
        at = max(position for topic, position in links if topic == row.topic and position <= row.position)
        assert (row.count, row.digest) == links[row.topic, at]
    assert max(row.position for row in held) == max(position for _, position in links)


def test_replica_with_another_number_of_objects_than_the_changelog_diverges(sqlite_url: str, tmp_path: Path) -> None:
    run(sqlite_url, tmp_path / "j", ["t0", "t1"], loses="t1")
    one = audited(tmp_path / "j")
    assert [(each.name, each.topic, each.key, each.verdict) for each in one.state()] == [("r1", "t1", "", "diverged")]
    assert one.bits() == 4


def test_a_correct_run_has_no_anomaly(sqlite_url: str, tmp_path: Path) -> None:
    run(sqlite_url, tmp_path / "j", ["t0", "t1"])
    one = audited(tmp_path / "j")
    verdicts = Counter(row.verdict for row in one.delivery())
    assert one.bits() == 0, (verdicts, one.strays(), one.store(), one.state())
    assert verdicts["ok"] + verdicts["duplicate_dropped"] >= 15
    assert verdicts.keys() <= {"ok", "excused", "repaired", "reordered"}
    assert one.state() == []
    assert [len(each) for each in one.databases()] == [1], "every participant names the same store"
    sides = {row.side for row in one.rows if row.kind == "close" and row.peer}
    assert sides == {row.side for row in one.rows if row.kind == "close"}


def test_a_correct_run_of_everything_has_no_anomaly(sqlite_url: str, tmp_path: Path) -> None:
    run(sqlite_url, tmp_path / "j", None)
    one = audited(tmp_path / "j")
    assert one.bits() == 0, (one.delivery(), one.strays(), one.store(), one.state())
    assert sum(row.kind == "listing" for row in rows(tmp_path / "j") if row.side == "replica") == 2


def test_only_an_altered_object_is_an_anomaly(sqlite_url: str, tmp_path: Path) -> None:
    run(sqlite_url, tmp_path / "j", ["t0", "t1"], breaks="p2")
    one = audited(tmp_path / "j")
    assert [(each.name, each.table, each.key, each.verdict) for each in one.state()] == [
        ("r1", "lport", "p2", "wrong_value")
    ]
    assert one.bits() == 4


def test_an_altered_object_is_noted_logged_and_counted_once(
    sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The recount finds and repairs it. Without ``paranoid``, which would compare with the store after each sync."""
    often = msgspec.structs.replace(QUICK, recount_time=0.2)
    config = journalled(sqlite_url, tmp_path / "j", timing=often, paranoid=False)
    with Store(sqlite_url) as store, Publisher(config, store), Replica(config, topics=["t"]) as replica:
        replica.wait_synced(timeout=30)
        with store.transaction() as tx:
            tx.set("lport", "p1", {"n": 1}, topic="t")
        replica.wait_for(tx.commit, timeout=30)
        replica._engine.read(lambda state: spoil(state.cache, "p1"))
        assert poll(lambda: replica.get("lport", "p1") == {"n": 1}, 30), "the object is not repaired"
        rounds = replica._engine.read(lambda state: state.recount.rounds)
        # The round that runs now may have begun before the repair; the next one would find the object again.
        assert poll(lambda: replica._engine.read(lambda state: state.recount.rounds) >= rounds + 2, 30)
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in ReplicaMetrics(replica.status).collect()
            for sample in family.samples
        }
    assert found["pubsub_replica_faults_total", "rotted"] == 1.0
    (line,) = [each.getMessage() for each in caplog.records if "altered or lost" in each.getMessage()]
    assert line.startswith("1 objects of the topic 't' were altered or lost in this process's memory (lport 'p1')")
    noted = [(row.topic, row.cause, row.count) for row in rows(tmp_path / "j") if row.kind == "rot"]
    assert noted == [("t", "memory", 1)]


def test_a_publishers_journal_has_only_unsent_links_as_handed(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(sqlite_url) as store, Publisher(journalled(sqlite_url, tmp_path), store) as publisher:
        for broken in (False, True):
            if broken:
                monkeypatch.setattr(publisher._driver, "send_event", fail)
            with store.transaction() as tx:
                tx.set("lport", "p", {"n": broken}, topic="t1")
    found = [(row.position, row.outcome) for row in rows(tmp_path) if row.kind == "data"]
    assert found == [(1, "sent"), (2, "sent"), (2, "handed")]


def test_only_the_unsent_links_of_a_transaction_are_noted_as_handed(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(sqlite_url) as store, Publisher(journalled(sqlite_url, tmp_path), store) as publisher:
        monkeypatch.setattr(publisher._driver, "send_event", lambda each: fail(each) if each.topic == "t2" else None)
        with store.transaction() as tx:
            for topic in ("t1", "t2", "t3"):
                tx.set("lport", topic, {"n": 1}, topic=topic)
    found = [(row.topic, row.outcome) for row in rows(tmp_path) if row.kind == "data"]
    assert found == [("t1", "sent"), ("t2", "sent"), ("t2", "handed"), ("t3", "handed")]


def test_a_large_link_that_was_sent_in_part_counts_as_not_sent() -> None:
    first, large = link(3), link(4)
    parts = [Envelope("s", "ab" * 16, "t", 5 + part, [Message(large, part, 3)]) for part in (1, 2, 3)]
    sent = [Envelope("s", "ab" * 16, "t", 5, [Message(first)]), *parts[:2]]
    assert unsent([first, large], sent) == [large]
    assert unsent([first, large], [*sent, parts[2]]) == []


def fail(_envelope: Envelope) -> None:
    raise TransportError("the transport refuses the message")


def test_messages_that_the_driver_rejects_are_noted(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = journalled(sqlite_url, tmp_path)
    with Store(sqlite_url), Replica(config, topics=["t1"]) as replica:
        counters = replica._subscriber.counters
        monkeypatch.setattr(replica._subscriber, "counters", lambda: {**counters(), "foreign": 2, "lost": 9})
    found = [(row.cause, row.count) for row in rows(tmp_path) if row.kind == "reject"]
    assert found == [("foreign", 2)]


def test_a_correct_run_of_a_polling_replica_has_no_anomaly(sqlite_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "j"
    config = journalled(sqlite_url, folder, driver="db_polling_pubsub_driver", driver_options={})
    with Store(sqlite_url) as store:
        with Replica(config, topics=["t1"]) as replica:
            replica.wait_synced(timeout=30)
            with store.transaction() as tx:
                tx.set("lport", "a", {"n": 1}, topic="t1")
            assert tx.commit is not None
            replica.wait_for(tx.commit, timeout=30)
        journal_of_store(store, folder)
    one = audited(folder)
    assert [(row.kind, row.verdict, row.way) for row in one.delivery()] == [("polled", "ok", "polling")]
    assert one.bits() == 0


def test_the_audit_expects_objects_without_a_topic_at_a_replica_of_named_topics(
    sqlite_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "j"
    config = journalled(sqlite_url, folder)
    with Store(config) as store:
        with Publisher(config, store), Replica(config, topics=["t1"]) as replica:
            replica.wait_synced(timeout=30)
            with store.transaction() as tx:
                tx.set("chassis", "c1", {"n": 1})
            replica.wait_for(tx.commit, timeout=30)
        journal_of_store(store, folder)
    one = audited(folder)
    assert [(row.topic, row.verdict) for row in one.delivery()] == [("default", "ok")]
    assert one.bits() == 0


def test_an_unwritable_journal_is_in_the_status_and_does_not_stop_the_replica(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = journalled(sqlite_url, tmp_path / "file" / "j")
    with Store(sqlite_url) as store, Publisher(config, store), Replica(config, topics=["t"]) as replica:
        replica.wait_synced(timeout=30)
        with store.transaction() as tx:
            tx.set("lport", "a", {"n": 1}, topic="t")
        assert tx.commit is not None
        replica.wait_for(tx.commit, timeout=30)
        status = replica.status()
    assert status.ready
    assert status.journal_error == "Not a directory"
    assert status.journal["written"] == 0 < status.journal["lost"]


# -- records of messages that are not simply applied ----------------------------------------------------


def link(position: int, topic: str = "t") -> Link:
    change = Change("a", "k", "set", position, b"1")
    return Link(topic, Point(position - 1, 0), Point(position, 0), [change], 1, 1, Point(position - 1, 0), 1)


def outcomes(tmp_path: Path, messages: list[Message], applied: list[Link], known: int, topic: str = "t") -> list[str]:
    tracker = Tracker(QUICK, Limits(), random.Random(1), 0.0)
    tracker.subscribe(["t"], 0.0)
    tracker.chain("t").known = applied[-1].point if applied else Point(known, 0)
    journal = ReplicaJournal(Journal(JournalSettings(str(tmp_path), to_parquet=False), "replica", "r"), polls=False)
    journal.received(Envelope("s", "ab" * 16, topic, 5, messages), [Apply(applied)] if applied else [], tracker)
    journal.close()
    return [f"{row.position}:{row.sequence}:{row.outcome}" for row in rows(tmp_path) if row.kind == "data"]


def test_old_waiting_and_applied_messages_have_different_outcomes(tmp_path: Path) -> None:
    links = [link(3), link(4), link(6)]
    found = outcomes(tmp_path, [Message(each) for each in links], [links[1]], known=4)
    assert found == ["3:5:old", "4:6:applied", "6:7:waiting"]


def test_a_waiting_link_is_noted_when_it_is_applied(tmp_path: Path) -> None:
    now, waited = link(4), link(5)
    assert outcomes(tmp_path, [Message(now)], [now, waited], known=5) == ["4:5:applied", "5:0:applied"]


def test_outcomes_of_the_parts_of_a_large_link(tmp_path: Path) -> None:
    whole = link(4)
    parts = [Message(link(4), part, 3) for part in (1, 2, 3)]
    assert outcomes(tmp_path / "a", parts[:2], [], known=3) == ["4:5:part", "4:6:part"]
    assert outcomes(tmp_path / "b", parts[1:], [whole], known=4) == ["4:5:part", "4:6:applied"]
    assert outcomes(tmp_path / "c", parts[2:], [], known=4) == ["4:5:old"]


def test_applied_links_are_noted_in_the_order_in_which_they_are_applied(tmp_path: Path) -> None:
    """They arrived in another order: 3 waited, and connects 2 with 4."""
    tracker = Tracker(QUICK, Limits(), random.Random(1), 0.0)
    tracker.subscribe(["t"], 0.0, known={"t": Point(1, 0)})
    journal = ReplicaJournal(Journal(JournalSettings(str(tmp_path), to_parquet=False), "replica", "r"), polls=False)
    applied = []
    for sequence, batch in ((1, [link(3)]), (2, [link(2), link(4)])):
        envelope = Envelope("s", "ab" * 16, "t", sequence, [Message(each) for each in batch])
        effects = tracker.feed(envelope, 0.1)
        journal.received(envelope, effects, tracker)
        applied += [each.point.position for effect in effects if isinstance(effect, Apply) for each in effect.links]
    journal.close()
    found = [(row.position, row.sequence, row.outcome) for row in rows(tmp_path) if row.kind == "data"]
    assert found == [(3, 1, "waiting"), (2, 2, "applied"), (3, 0, "applied"), (4, 3, "applied")]
    assert [position for position, _, outcome in found if outcome == "applied"] == applied


def test_records_of_an_unordered_batch_keep_the_orders_of_receipt_and_application(tmp_path: Path) -> None:
    links = [link(4), link(2), link(3), link(9)]
    found = outcomes(tmp_path, [Message(each) for each in links], [links[1], links[2], links[0]], known=1)
    assert found == ["4:5:waiting", "2:6:applied", "3:7:applied", "9:8:waiting", "4:0:applied"]


def test_the_first_copy_of_a_repeated_link_is_applied(tmp_path: Path) -> None:
    now = link(2)
    assert outcomes(tmp_path, [Message(now), Message(link(2))], [now], known=1) == ["2:5:applied", "2:6:old"]
    parts = [Message(now, 1, 2), Message(now, 2, 2), Message(now, 2, 2)]
    assert outcomes(tmp_path / "p", parts, [now], known=1) == ["2:5:part", "2:6:applied", "2:7:old"]


def test_a_skipped_link_is_not_noted_as_old(tmp_path: Path) -> None:
    """A correct tracker does not skip links: the audit must see this link as received and never applied."""
    links = [link(2), link(3), link(4)]
    found = outcomes(tmp_path, [Message(each) for each in links], [links[0], links[2]], known=1)
    assert found == ["2:5:applied", "3:6:waiting", "4:7:applied"]


def test_old_messages_are_determined_by_the_point_before_the_step(tmp_path: Path) -> None:
    """The second batch skips link 3, which a correct tracker does not do."""
    tracker = Tracker(QUICK, Limits(), random.Random(1), 0.0)
    tracker.subscribe(["t"], 0.0)
    journal = ReplicaJournal(Journal(JournalSettings(str(tmp_path), to_parquet=False), "replica", "r"), polls=False)
    for sequence, batch, applied in ((1, [link(2)], [link(2)]), (2, [link(2), link(3), link(4)], [link(4)])):
        tracker.chain("t").known = applied[-1].point
        envelope = Envelope("s", "ab" * 16, "t", sequence, [Message(each) for each in batch])
        journal.received(envelope, [Apply(applied)], tracker)
    journal.close()
    found = [(row.position, row.outcome) for row in rows(tmp_path) if row.kind == "data"]
    assert found == [(2, "applied"), (2, "old"), (3, "waiting"), (4, "applied")]


def test_a_link_that_waited_during_a_full_sync_is_noted_after_it(tmp_path: Path) -> None:
    """It is applied to the objects that were read, which may be older than before (after a restored backup)."""
    tracker = Tracker(QUICK, Limits(), random.Random(1), 0.0)
    tracker.subscribe(["t"], 0.0)
    journal = ReplicaJournal(Journal(JournalSettings(str(tmp_path), to_parquet=False), "replica", "r"), polls=False)
    effects = tracker.tick(QUICK.hello_wait + QUICK.sync_jitter + 0.1)
    effects += tracker.tick(QUICK.hello_wait + 2 * QUICK.sync_jitter + 0.2)
    (sync,) = [each for each in effects if isinstance(each, StartSync)]
    envelope = Envelope("s", "ab" * 16, "t", 1, [Message(link(3))])
    assert tracker.feed(envelope, 9.0) == []
    full = Full({"t": TopicSnapshot(Head(Point(2, 0), 0, 0), [])}, Point(2, 0))
    answer = SyncAnswer(Point(2, 0), {"t": full})
    done = tracker.sync_done(sync.number, answer, 9.0)
    journal.synced(answer, sync.number, done, tracker)
    journal.close()
    found = [(row.kind, row.position, row.outcome) for row in rows(tmp_path) if row.kind in ("data", "sync_end")]
    assert found == [("sync_end", 2, "full"), ("data", 3, "applied")]


def test_a_message_of_a_topic_that_is_not_subscribed_is_dropped(tmp_path: Path) -> None:
    assert outcomes(tmp_path, [Message(link(4, "u"))], [], known=3, topic="u") == ["4:5:dropped"]


def test_publishers_with_false_digests_are_written_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(JournalSettings(str(tmp_path), to_parquet=False), "replica", "r1")
    log_step(StepResult(quarantined=[("api-1", "f" * 32)]), ReplicaJournal(journal, polls=False))
    journal.close()
    (row,) = [row for row in rows(tmp_path) if row.kind == "contradicted"]
    assert (row.service, row.uuid, row.topic, row.position, row.cause) == ("api-1", "f" * 32, "", 0, "quarantined")
    (record,) = caplog.records
    assert "f" * 32 in record.getMessage()
    assert "counts, digests, changes or positions that the database denies" in record.getMessage()
    log_step(StepResult(quarantined=[("api-1", "f" * 32)]), None)


def test_contradicted_publishers_are_written(tmp_path: Path) -> None:
    journal = Journal(JournalSettings(str(tmp_path), to_parquet=False), "replica", "r1")
    liar, honest = ("api-1", "f" * 32), ("api-2", "e" * 32)
    points = {"t": (Point(7, 77), Point(5, 55)), "u": (Point(8, 88), Point(6, 66)), "v": (Point(9, 9), Point(9, 9))}
    ReplicaJournal(journal, polls=False).history_changed(HistoryChange(points, {"t": liar, "u": honest}, (liar,)))
    journal.close()
    found = [row for row in rows(tmp_path) if row.kind == "contradicted"]
    assert [(row.topic, row.service, row.uuid, row.position, row.nonce, row.prev_position, row.cause)
            for row in found] == [
        ("t", *liar, 7, 77, 5, "quarantined"), ("u", *honest, 8, 88, 6, ""),
    ]  # fmt: skip
