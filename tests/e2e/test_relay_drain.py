"""A relay that is stopped sends the replicas below it to another relay, and they read nothing from the database."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Store
from tests.e2e.service_host import LONG, Host, Watched, done, order, write
from tests.e2e.test_relays import OPTIONS, Tree, listens_to, serve_syncs

PATIENT = {**OPTIONS, "max_idle_time": 10.0, "verify_interval": 0.0}
"""A replica whose last proof is old polls, and so reads; one that runs long enough verifies. That must not happen on a
busy machine.
"""


class WideTree(Tree):
    """Three relays, of which the first sends its replicas to the third."""

    def __init__(self, folder: Path, database: str) -> None:
        super().__init__(folder, database, PATIENT)
        self.relays.append(Host(folder / "relay-3", database, "relay-3", role="relay", **PATIENT))
        to = f"tcp://127.0.0.1:9, {self.relays[2].settings.bind_address}"
        self.relays[0].change("[publisher_service]\n", f"[publisher_service]\ndrain_to = {to}\n")


@pytest.fixture
def tree(tmp_path: Path, sqlite_url: str) -> Iterator[WideTree]:
    made = WideTree(tmp_path, sqlite_url)
    yield made
    made.close()


def test_drained_relay_sends_its_replicas_to_a_parent_of_theirs(tree: WideTree) -> None:
    first, second, third = tree.relays
    urls = [serve_syncs(relay) for relay in (first, third)]
    named = tree.under(first, second, third)
    by_channel = msgspec.structs.replace(named, store_url="", sync_url=", ".join(urls))
    tree.origin.service()
    worker = tree.origin.worker()
    position = write(worker, 20)
    stopped, *_ = [relay.service() for relay in tree.relays]
    with Store(tree.origin.database) as store, ExitStack() as stack:
        children = [stack.enter_context(Watched(settings)) for settings in (by_channel, by_channel, named)]
        elsewhere = stack.enter_context(Watched(tree.under(first, second)))
        for child in (*children, elsewhere):
            child.must_come_to(position, store)
            assert poll(lambda child=child: listens_to(child, first), LONG), child.replica.status()  # type: ignore[misc]
        syncs = [child.syncs() for child in (*children, elsewhere)]
        stopped.terminate()
        assert stopped.wait(LONG) == 0
        for child in children:
            assert poll(lambda child=child: listens_to(child, third), LONG), child.replica.status()  # type: ignore[misc]
        assert poll(lambda: listens_to(elsewhere, second), LONG), "the named relays are not among its parents"
        assert [child.syncs() for child in (*children, elsewhere)] == syncs, "nothing was missed, so nothing is read"
        position = write(worker, 20)
        for child in (*children, elsewhere):
            child.must_come_to(position, store)


@pytest.mark.long
def test_replicas_of_a_relay_drained_under_writes_read_from_relays_alone(tree: WideTree) -> None:
    first, _, third = tree.relays
    above = serve_syncs(tree.origin)
    for relay in (first, third):
        relay.change("topics = t0, t1", f"topics = t0, t1\nsync_url = {above}")
    urls = [serve_syncs(relay) for relay in (first, third)]
    settings = msgspec.structs.replace(tree.under(first, third), store_url="", sync_url=", ".join(urls))
    tree.origin.service()
    worker = tree.origin.worker()
    position = write(worker, 20)
    stopped = first.service()
    third.service()
    with Store(tree.origin.database) as store, ExitStack() as stack:
        children = [stack.enter_context(Watched(settings)) for _ in range(3)]
        for child in children:
            child.must_come_to(position, store)
            assert poll(lambda child=child: listens_to(child, first), LONG), child.replica.status()  # type: ignore[misc]
        order(worker, 100)
        stopped.terminate()
        assert stopped.wait(LONG) == 0
        done(worker)
        position = write(worker, 20)
        for child in children:
            child.must_come_to(position, store)  # without another full sync
            assert poll(lambda child=child: listens_to(child, third), LONG), child.replica.status()  # type: ignore[misc]
        # The replicas know no other source than the relays, and the other relay has all links.
        assert third.metric("relayed_total", "joined") == 0
