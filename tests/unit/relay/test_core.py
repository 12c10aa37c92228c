"""What a relay's step makes is sent, and a refusal of the transport is survived."""

import logging
import random
from pathlib import Path

import pytest

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Delta, SyncAnswer, Want
from pubsub_lib.core.relay_contents import Question, RelayedState
from pubsub_lib.core.relaying import Relay
from pubsub_lib.core.sequencer import HELLO_SPACING
from pubsub_lib.errors import TransportError
from pubsub_lib.journal import Journal, JournalSettings
from pubsub_lib.journal.reading import read
from pubsub_lib.journal.rows import SCHEMA
from pubsub_lib.relay import core as core_module
from pubsub_lib.relay.core import RelayCore
from pubsub_lib.sync.question import SyncQuestion
from tests.unit.core.builders import CALM, UUID, History, envelope, hello

OWN = "ab" * 16


class Rig:
    """A relay of the topic t that is synced and proved. ``now`` is the virtual time."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.history = History()
        self.history.one()
        self.now = 100.0
        self.sent: list[Envelope] = []
        self.loops: list[tuple[str, str]] = []
        self.broken = False
        state = RelayedState(CALM, Limits(), random.Random(0), Cache(), self.now)
        relay = Relay("relay-1", OWN, CALM, Limits(), state, self.now)
        self.core = RelayCore(relay, self._send, lambda *loop: self.loops.append(loop), journal)
        asked = self.core.subscribe(["t"], self.now).hello_requests
        self.now += CALM.hello_wait
        sync = None
        while sync is None:
            step = self.core.tick(self.now)
            asked, sync = step.hello_requests or asked, step.sync
            self.now += 0.1
        self.core.sync_done(sync.number, self.history.answer(sync.wants), self.now)
        self.core.feed(hello(self.history.reading(), nonce=asked[-1].nonce, age=0.0), self.now)
        self.sent.clear()

    def _send(self, made: Envelope) -> None:
        if self.broken:
            raise TransportError("the queue is full")
        self.sent.append(made)


def question(wants: dict[str, Want]) -> SyncQuestion:
    return SyncQuestion(wants)


def test_what_is_sent_is_in_the_journal_before(tmp_path: Path) -> None:
    journal = Journal(JournalSettings(folder=str(tmp_path), to_parquet=False), "relay", "relay-1", SCHEMA)
    rig = Rig(journal)
    link = rig.history.one()
    rig.broken = True
    rig.core.feed(envelope(link), rig.now)
    assert rig.sent == [], "the transport refused it"
    rig.broken = False
    rig.core.hello_requested(HelloRequest("ask", ("t",)), rig.now)
    journal.close()
    rows = [row for path in tmp_path.iterdir() for row in read(path)]
    assert {(row.side, row.name) for row in rows} == {("relay", "relay-1")}
    sent = [row for row in rows if row.kind == "data"]
    assert [(row.outcome, row.uuid, row.sequence) for row in sent] == [("sent", OWN, 1)]
    assert (sent[0].position, sent[0].nonce) == (link.point.position, link.point.nonce)
    assert [(row.peer, row.service, row.uuid) for row in rows if row.kind == "hello"] == [("ask", "relay-1", OWN)]


def test_applied_links_are_sent_on_and_counted() -> None:
    rig = Rig()
    link = rig.history.one()
    rig.core.feed(envelope(link), rig.now)
    assert [message.link for each in rig.sent for message in each.messages] == [link]
    assert rig.core.counts["links"] == 1
    assert rig.sent[0].uuid == OWN


def test_link_is_sent_before_it_is_put_into_the_log_and_is_then_answered() -> None:
    rig = Rig()
    before, contents = rig.history.head("t"), rig.core.relay.contents
    unlogged: list[int] = []
    rig.core._send = lambda made: unlogged.append(len(contents._unlogged))
    link = rig.history.one()
    rig.core.feed(envelope(link), rig.now)
    assert (unlogged, contents._unlogged) == ([1], [])
    rig.now += CALM.round_trip
    _, ready = rig.core.sync_requested(question({"t": Want(before)}), rig.now)
    rig.core.tick(rig.now + CALM.round_trip)
    asked = ready.result(0)
    assert asked is not None
    found = rig.core.answer(asked, rig.now + CALM.round_trip)
    assert found is not None
    assert [each for part in found.chains.values() if isinstance(part, Delta) for each in part.links] == [link]


def test_messages_that_the_transport_refuses_are_counted_and_later_ones_are_sent() -> None:
    rig = Rig()
    rig.broken = True
    rig.core.feed(envelope(rig.history.one()), rig.now)
    rig.core.hello_requested(HelloRequest("nonce", ("t",)), rig.now)
    assert rig.core.counts["unsent"] == 2
    rig.broken = False
    rig.core.feed(envelope(rig.history.one()), rig.now)
    assert [each.sequence for each in rig.sent] == [2], "the hole shows below"


def test_hello_requests_for_above_are_kept_until_they_are_taken() -> None:
    rig = Rig()
    rig.now += CALM.reading_age + 1.0
    assert rig.core.take_requests() == []
    rig.core.hello_requested(HelloRequest("nonce", ("t",)), rig.now)
    assert rig.core.has_requests
    (request,) = rig.core.take_requests()
    assert request.topics == ("t",)
    assert rig.core.take_requests() == []
    rig.core.feed(hello(rig.history.reading(), nonce=request.nonce, age=0.0), rig.now)
    assert [each.hello.nonce for each in rig.sent if each.hello is not None and each.hello.nonce] == ["nonce"]
    assert rig.core.counts["answers"] == 1


def test_question_is_answered_once_the_proof_is_young() -> None:
    rig = Rig()
    _, answer = rig.core.sync_requested(question({"t": Want()}), rig.now)
    assert not answer.done()
    (request,) = rig.core.take_requests()
    rig.now += 0.1
    rig.core.feed(hello(rig.history.reading(), nonce=request.nonce, age=0.0), rig.now)
    asked = answer.result(0)
    assert asked is not None
    assert rig.core.waiting == 0
    found = rig.core.answer(asked, rig.now)
    assert found is not None
    assert found.chains.keys() == {"t"}
    assert rig.core.counts["answered"] == 1
    rig.core.close(rig.now)
    assert rig.core.answer(asked, rig.now) is None, "it stops"
    assert rig.core.counts["answered"] == 1


def test_answers_to_several_questions_are_no_part_of_the_step_that_makes_them_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Links wait for a step: the begin of an answer with all objects takes milliseconds."""
    rig = Rig()
    made: list[str] = []
    contents = rig.core.relay.contents
    answer = contents.answer

    def counted(asked: Question, now: float) -> SyncAnswer | None:
        made.append(asked.asker)
        return answer(asked, now)

    monkeypatch.setattr(contents, "answer", counted)
    waiting = [rig.core.sync_requested(question({"t": Want()}), rig.now)[1] for _ in range(4)]
    (request,) = rig.core.take_requests()
    rig.now += 0.1
    rig.core.feed(hello(rig.history.reading(), nonce=request.nonce, age=0.0), rig.now)
    assert all(each.done() for each in waiting)
    assert made == []
    for number, each in enumerate(waiting, 1):
        asked = each.result(0)
        assert asked is not None
        assert rig.core.answer(asked, rig.now) is not None
        assert len(made) == number


def test_question_that_was_given_up_or_is_one_too_many_gets_no_answer() -> None:
    rig = Rig()
    asker, answer = rig.core.sync_requested(question({"t": Want()}), rig.now)
    rig.core.give_up(asker)
    rig.now += CALM.round_trip
    rig.core.tick(rig.now)
    assert not answer.done()
    for _ in range(core_module.MAX_WAITING):
        _, answer = rig.core.sync_requested(question({"t": Want()}), rig.now)
        assert not answer.done()
    assert rig.core.sync_requested(question({"t": Want()}), rig.now)[1].result(0) is None


def test_nothing_is_sent_after_the_goodbye() -> None:
    rig = Rig()
    _, answer = rig.core.sync_requested(question({"t": Want()}), rig.now)
    rig.core.close(rig.now)
    rig.core.close(rig.now)
    assert answer.result(0) is None
    assert [each.hello.goodbye for each in rig.sent if each.hello is not None] == [True]
    rig.core.feed(envelope(rig.history.one()), rig.now)
    rig.core.connected(rig.now)
    assert len(rig.sent) == 1
    assert rig.core.sync_requested(question({"t": Want()}), rig.now)[1].result(0) is None


def test_goodbye_names_the_relays_to_go_to() -> None:
    rig = Rig()
    rig.core.close(rig.now, ("tcp://10.0.0.8:8866",))
    named = [(each.hello.goodbye, each.hello.instead) for each in rig.sent if each.hello is not None]
    assert named == [(True, ("tcp://10.0.0.8:8866",))]
    assert rig.core.relay.hello({}, rig.now, nonce="n", goodbye=False).instead == ()


def test_port_of_the_sync_channel_is_in_every_hello_but_the_goodbye() -> None:
    rig = Rig()
    assert rig.core.relay.hello({}, rig.now, nonce="n", goodbye=False).serves == 0
    rig.core.serve_syncs_at(8867, rig.now)
    assert rig.core.relay.hello({}, rig.now, nonce="n", goodbye=False).serves == 8867
    rig.core.close(rig.now, ("tcp://10.0.0.8:8866",))
    assert [each.hello.serves for each in rig.sent if each.hello is not None and each.hello.goodbye] == [0]


def test_port_that_is_known_after_the_first_hello_is_in_a_hello_soon() -> None:
    """A relay binds its endpoint after its publisher: a replica may have received a hello in between."""
    rig = Rig()
    assert rig.core.counts["hellos"] == 1
    rig.core.serve_syncs_at(8867, rig.now)
    until = rig.now + 2 * HELLO_SPACING
    while not rig.sent and rig.now < until:
        rig.now = max(rig.core.next_time(), rig.now + 0.001)
        rig.core.tick(rig.now)
    assert [each.hello.serves for each in rig.sent if each.hello is not None] == [8867]


def test_rule_r6_parent_below_is_reported() -> None:
    rig = Rig()
    rig.core.feed(envelope(rig.history.one(), uuid=OWN), rig.now)
    assert rig.loops == []
    own = hello(rig.history.reading(), nonce="", age=0.0, uuid=OWN)
    rig.core.feed(own, rig.now)
    assert [uuid for _, uuid in rig.loops] == [OWN]
    rig.core.directory_read([UUID], rig.now)
    assert rig.core.next_time() > rig.now


def test_each_wanted_topic_that_the_relay_does_not_follow_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    many = {f"u{number}": Want() for number in range(core_module.MAX_UNFOLLOWED)}
    with caplog.at_level(logging.WARNING):
        for wants in ({"t": Want()}, {"u": Want()}, {"t": Want(), "u": Want()}, many, {"v": Want()}):
            rig.core.sync_requested(question(wants), rig.now)
    logged = [record.getMessage() for record in caplog.records]
    assert [each.partition("follow: ")[2].partition(";")[0] for each in logged] == [
        "'u'", "'u0', 'u1', 'u10', 'u100', 'u101' and 995 more"
    ]  # fmt: skip


def test_topic_that_the_relay_follows_from_now_on_is_no_longer_among_the_logged_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    many = {f"u{number}": Want() for number in range(core_module.MAX_UNFOLLOWED)}
    with caplog.at_level(logging.WARNING):
        for wants in (many, {"v": Want()}):
            rig.core.sync_requested(question(wants), rig.now)
        assert len(caplog.records) == 1, "v is one too many"
        rig.core.subscribe(list(many), rig.now)
        for wants in (many, {"v": Want()}, many):
            rig.core.sync_requested(question(wants), rig.now)
    assert [record.getMessage().partition("follow: ")[2].partition(";")[0] for record in caplog.records[1:]] == ["'v'"]
    assert rig.core.relay.unserved == 3
