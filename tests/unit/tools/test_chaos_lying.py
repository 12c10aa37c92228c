"""The liars of ``tools/chaos``: their links fit true heads, and what they prove by hellos is false."""

import threading
from pathlib import Path

import msgspec
import pytest
from _chaos import lying
from _chaos.lying import Lies, truth
from _chaos.messages import Lied, LieTask, Message, Ready
from _chaos.plan import FALSE
from _processes import free_port, poll

from pubsub_lib import Replica, Settings, Store
from pubsub_lib.core import digest
from pubsub_lib.core.envelope import HelloRequest
from pubsub_lib.core.model import Head, Link, Point

HEADS = {"t1": Head(Point(5, 11), 3, 77), "t2": Head(Point(9, 12), 4, 78)}
LONG = 60.0


def connects(link: Link, head: Head) -> bool:
    """Whether the link continues this head."""
    return (link.prev, link.point.position, link.count) == (head.point, head.point.position + 1, head.count + 1)


def fits(link: Link, head: Head) -> bool:
    """Whether its digest is that of its objects."""
    (change,) = link.changes
    added = digest.fingerprint(change.table, change.key, change.version, change.value or b"")
    return link.digest == digest.add(head.digest, added)


def test_links_continue_true_heads_with_right_and_wrong_digests_and_are_repeated() -> None:
    lies = Lies("1", "service-1")
    links = [lies.link(HEADS) for _ in range(300)]
    assert all(connects(link, HEADS[link.topic]) for link in links)
    assert {link.topic for link in links} == {*HEADS}
    assert {fits(link, HEADS[link.topic]) for link in links} == {True, False}
    assert len({link.point for link in links}) < len(links)
    assert {change.table for link in links for change in link.changes} == {FALSE}


def test_hello_claims_the_last_false_head_and_true_ones_of_other_topics() -> None:
    lies = Lies("1", "service-1")
    request = HelloRequest("ab" * 8, ("t1", "t2", "unknown"))
    assert lies.hello(request, HEADS, 9).heads == HEADS
    link = lies.link({"t1": HEADS["t1"]})
    found = lies.hello(request, HEADS, 9)
    assert found.heads == {**HEADS, "t1": Head(link.point, link.count, link.digest)}
    assert (found.nonce, found.store) == (request.nonce, Point(9, 7))


def test_same_seed_gives_the_same_lies() -> None:
    def points(seed: str) -> list[Point]:
        lies = Lies(seed, "service-1")
        return [lies.link(HEADS).point for _ in range(10)]

    assert points("1") == points("1") != points("2")


def test_lie_needs_a_lease_and_a_written_topic(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        assert truth(store, "service-1", ["t"]) is None
        with store.transaction() as tx:
            tx.set("item", "k", 1, topic="t")
        assert truth(store, "service-1", ["t"]) is None
        store.directory.register("service-1", "ab" * 16, "", LONG)
        assert truth(store, "service-1", ["none"]) is None
        found = truth(store, "service-1", ["t", "none"])
        assert found is not None
        assert (found.uuid, found.position, sorted(found.heads)) == ("ab" * 16, 1, ["t"])


class Killed(BaseException):
    """Ends a liar's loop, which otherwise ends with its process."""


def test_liar_at_the_address_of_a_service_is_believed_and_undone(sqlite_url: str, tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "net.conf"
    config.write_text(
        f"[pubsub]\nstore_url = {sqlite_url}\nenable_pub_sub = true\nservice_name = service-1\n"
        f"publishers_ips = 127.0.0.1\npublisher_port = {port}\nmax_idle_time = 1.0\nverify_interval = 1.0\n"
    )
    ended = threading.Event()

    def wait(seconds: float) -> None:
        if ended.wait(seconds):
            raise Killed

    ready = threading.Event()
    sent: list[Message] = []

    def send(message: Message) -> None:
        sent.append(message)
        if isinstance(message, Ready):
            ready.set()

    def run() -> None:
        with pytest.raises(Killed):
            lying.run(LieTask("lie-1", "1", "service-1", str(config), ("t",), port), send, wait)

    seen = threading.Event()
    with Store(sqlite_url) as store:
        with store.transaction() as tx:
            tx.set("item", "k", 1, topic="t")
        store.directory.register("service-1", "ab" * 16, "", LONG)
        settings = msgspec.structs.replace(Settings.from_file(config), replica_name="replica-1")
        with Replica(settings, ["t"]) as replica:
            replica.on(FALSE, lambda _: seen.set())
            replica.wait_synced(LONG)
            liar = threading.Thread(target=run)
            liar.start()
            assert ready.wait(LONG)
            assert seen.wait(LONG), "no replica believed the lie"
            ended.set()
            liar.join(LONG)
            assert poll(lambda: not replica.records(FALSE), LONG), "the lie was not undone"
    assert isinstance(sent[0], Lied), "each link is reported before it is sent"
    assert {type(each) for each in sent} == {Lied, Ready}
    assert {each.place[:2] for each in sent if isinstance(each, Lied)} == {("t", 2)}
