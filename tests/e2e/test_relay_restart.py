"""A relay that is killed under writes and started again: the replicas below it read what they missed, and no more."""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.core.model import Delta, SyncAnswer
from pubsub_lib.sync.client import SyncClient
from pubsub_lib.sync.question import SyncQuestion
from tests.e2e.service_host import LONG, Host, Watched, done, order, write
from tests.e2e.test_relays import Tree, listens_to, serve_syncs


@pytest.fixture
def tree(tmp_path: Path, sqlite_url: str) -> Iterator[Tree]:
    made = Tree(tmp_path, sqlite_url)
    yield made
    made.close()


class Answers:
    """The deltas with links that each client of a sync channel was answered, by client and topic."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deltas: Counter[tuple[int, str]] = Counter()
        self._lock = threading.Lock()
        ask, answers = SyncClient.ask, self

        def counted(client: SyncClient, question: SyncQuestion) -> SyncAnswer:
            answer = ask(client, question)
            with answers._lock:
                answers.deltas.update(
                    (id(client), topic)
                    for topic, part in answer.chains.items()
                    if isinstance(part, Delta) and part.links
                )
            return answer

        monkeypatch.setattr(SyncClient, "ask", counted)


def receives(child: Watched, relay: Host, before: int) -> bool:
    """Whether a child listens to the relay, and has received more messages than before."""
    return child.replica.status().driver["received"] > before and listens_to(child, relay)


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("source", ["channel", "database", "parent"], ids="by-{}".format)
def test_children_of_a_single_restarted_relay_read_no_topic_in_full(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    relay = tree.relays[0]
    above = serve_syncs(tree.origin)
    if source == "parent":  # neither the relay nor its children know a URL
        parent = tree.origin.settings.bind_address
        relay.change(f"store_url = {tree.origin.database}", f"parents = {parent}")
    else:
        relay.change("topics = t0, t1", f"topics = t0, t1\nsync_url = {above}")
    url = serve_syncs(relay)
    settings = tree.under(relay)
    if source != "database":
        settings = msgspec.structs.replace(settings, store_url="", sync_url=url if source == "channel" else "")
    tree.origin.service()
    worker = tree.origin.worker()
    position = write(worker, 20)
    process = relay.service()
    with Store(tree.origin.database) as store, ExitStack() as stack:
        children = [stack.enter_context(Watched(settings)) for _ in range(3)]
        for child in children:
            child.must_come_to(position, store)
            assert poll(lambda child=child: listens_to(child, relay), LONG), child.replica.status()  # type: ignore[misc]
        order(worker, 100)
        process.kill()
        assert process.wait(LONG) == -signal.SIGKILL
        done(worker)
        position = write(worker, 20)  # no child receives these
        answers = Answers(monkeypatch)
        relay.service()  # again, with an empty memory
        for child in children:
            child.must_come_to(position, store)  # without another full sync
            # A child syncs before it is connected again, and then misses what is written in between.
            before = child.replica.status().driver["received"]
            assert poll(lambda child=child, before=before: receives(child, relay, before), LONG)  # type: ignore[misc]
        position = write(worker, 20)
        for child in children:
            child.must_come_to(position, store)
        if source != "database":
            assert relay.metric("relayed_total", "joined") >= 1
            # One each: nothing was written until they were connected again.
            assert max(answers.deltas.values()) == 1, answers.deltas
            assert len({client for client, _ in answers.deltas}) == 3
        last = write(worker, 5)
        for child in children:
            child.must_come_to(last, store)
