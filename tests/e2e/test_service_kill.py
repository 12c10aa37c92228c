"""A service and its workers killed at each of their failpoints, with real processes, sockets and databases.

At each kill, at least one committed change was not sent. Afterwards every replica equals the database, without a full
sync, and no handler was called twice for one version.
"""

import signal
from pathlib import Path

import pytest
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.cli.listener import listening
from pubsub_lib.testing.rig import Collector
from tests.e2e.service_host import LONG, Host, Watched, done, fork, order, pause_between_transactions, write


@pytest.mark.quick_variants("service.after_send", "service.while_taking_over")
@pytest.mark.parametrize(
    "failpoint",
    [
        "service.before_receive=kill@6",
        "service.after_receive=kill@6",
        "service.before_send=kill@6",
        "service.after_send=kill@6",
        "service.while_following=kill",
        "service.while_taking_over=kill",
    ],
)
def test_replicas_converge_after_a_service_kill(failpoint: str, host: Host, store: Store) -> None:
    host.change("max_idle_time = 3.0", "max_idle_time = 60.0")  # no replica polls what it must miss
    service = host.service(failpoint)
    with Watched(host.settings) as watched:
        worker = host.worker()
        write(worker, 5)
        if "taking_over" in failpoint:
            write(host.worker(origin=""), 1)  # handed over, so it must not be taken over and sent twice
            with store.transaction(origin="") as tx:  # a link that no worker hands over
                tx.set("item", "orphan", 1, topic="t0")
        order(worker, 300)  # links that wait together are sent together, and the sixth sending ends the service
        assert service.wait(LONG) == -signal.SIGKILL
        done(worker)
        # These links are unsent: they are committed after the service's end, and the worker's buffer ends with it.
        last = write(worker, 5)
        worker.kill()
        assert worker.wait(LONG) == -signal.SIGKILL
        assert store.read_heads(()).store.position == last
        assert watched.differs(store)
        host.service()
        last = write(host.worker(), 3)
        watched.must_come_to(last, store)


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("failpoint", ["writer.after_commit=kill@4", "worker.after_push=kill@4"])
def test_service_publishes_the_unsent_links_of_a_killed_worker(failpoint: str, host: Host, store: Store) -> None:
    host.service()
    with Watched(host.settings) as watched:
        worker = host.worker(failpoint)
        order(worker, 10)
        assert worker.wait(LONG) == -signal.SIGKILL
        head = store.read_heads(()).store.position
        assert head == 4  # the fourth transaction is stored
        if failpoint.startswith("writer"):
            assert poll(lambda: host.metric("links_total", "followed") >= 1, LONG)
        watched.must_come_to(head, store)
        watched.must_come_to(write(host.worker(), 5), store)


def test_other_service_publishes_the_unsent_links_of_a_dead_service(tmp_path: Path, host: Host, store: Store) -> None:
    """Two hosts, one database: when one host is dead, its links become orphans when its lease expires."""
    other = Host(tmp_path / "other", host.database, "api-2")
    try:
        first, _ = host.service(), other.service()
        with Watched(other.settings) as watched:  # by the directory: the replica is configured with one publisher only
            worker = host.worker()
            write(worker, 3)
            first.kill()
            first.wait(LONG)
            write(worker, 5)
            worker.kill()
            head = store.read_heads(()).store.position
            assert poll(lambda: other.metric("links_total", "took_over") >= 5, LONG)
            watched.must_come_to(head, store)
            host.service()  # restarted: no callback is called twice for a version
            watched.must_come_to(write(host.worker(), 3), store)
    finally:
        other.close()


def test_sigterm_sends_pushed_messages_and_then_a_goodbye(host: Host, store: Store) -> None:
    service, worker, received = host.service(), host.worker(), Collector(LONG)
    with listening(host.settings, store, ["t0", "t1"], received):

        def arrived() -> bool:
            write(worker, 1)
            return received.waits(lambda: received.envelopes, 0.1)

        assert poll(arrived, LONG)
        before = store.read_heads(()).store.position
        pause_between_transactions(service, store)
        last = write(worker, 20)
        service.terminate()
        service.send_signal(signal.SIGCONT)
        assert service.wait(LONG) == 0
        received.until(lambda: any(each.hello and each.hello.goodbye for each in list(received.envelopes)), "a goodbye")
    assert store.directory.live() == []
    ended = next(n for n, each in enumerate(received.envelopes) if each.hello and each.hello.goodbye)
    sent = {message.link.point.position for each in received.envelopes[:ended] for message in each.messages}
    assert len([each for each in sent if before < each <= last]) == 20


@pytest.mark.long
def test_spawned_workers_hand_over_like_forked_ones(host: Host, store: Store) -> None:
    host.service()
    with Watched(host.settings) as watched:
        worker = host.worker()
        write(worker, 1)
        before = host.metric("links_total", "handed")
        watched.must_come_to(fork(worker, 3, "spawn"), store)
        assert host.metric("links_total", "handed") - before >= 3
