"""A relay that has no database, on a host that cannot reach it, and a replica without one below that relay."""

import json
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Settings, Store
from tests.conftest import IN_CI
from tests.e2e.network import Namespace, missing, namespaces
from tests.e2e.service_host import LONG, Host, Watched, done, order, write
from tests.e2e.test_relays import OPTIONS, listens_to


@pytest.fixture
def there() -> Iterator[Namespace]:
    """The relay's host."""
    why = missing()
    if why:
        if IN_CI:
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    with namespaces(1) as made:
        yield made[0]


@pytest.fixture
def origin(there: Namespace, tmp_path: Path) -> Iterator[Host]:
    """A service at this machine's end of the cable, with a database in a file."""
    (tmp_path / "database").mkdir()
    made = Host(tmp_path / "api-1", f"sqlite:///{tmp_path}/database/net.db", announce_interval=0.5, **OPTIONS)
    made.change("127.0.0.1", there.ours)
    made.change("insecure = false", "insecure = true")
    made.change("[publisher_service]\n", "[publisher_service]\nserve_syncs = true\n")
    made.address = there.ours
    yield made
    made.close()


@pytest.fixture
def relay(there: Namespace, origin: Host, tmp_path: Path) -> Iterator[Host]:
    """It knows the address of the service, and nothing of the database."""
    options = {**OPTIONS, "announce_interval": 0.5, "journal_folder": tmp_path / "journals"}
    made = Host(tmp_path / "relay-1", origin.database, "relay-1", there, role="relay", **options)
    made.change(f"store_url = {origin.database}\n", f"sync_url = http://{there.ours}:{origin.metrics_port}\n")
    port, own = (each.settings.bind_address.rpartition(":")[2] for each in (origin, made))
    made.change(f"publisher_port = {own}\n", f"publisher_port = {port}\npublishers_ips = {there.ours}\n")
    made.change("[publisher_service]\n", "[publisher_service]\nserve_syncs = true\n")
    # In a mount namespace of its own, the folder of the database is empty.
    hide = f'mount -t tmpfs none "{tmp_path}/database" && exec "$@"'
    made._prefix = [*there.prefix, "unshare", "--mount", "sh", "-c", hide, "sh"]
    yield made
    made.close()


def below(origin: Host, relay: Host) -> Settings:
    """The settings of a replica below the relay."""
    return msgspec.structs.replace(
        origin.settings, store_url="", sync_url=f"http://{relay.address}:{relay.metrics_port}",
        parents=(relay.settings.bind_address,), replica_name="agent-1",
    )  # fmt: skip


def got(host: Host, path: str) -> str:
    """The answer of a service's endpoint."""
    with urllib.request.urlopen(f"http://{host.address}:{host.metrics_port}{path}", timeout=LONG) as answer:
        return str(answer.read().decode())


def announced(host: Host) -> set[tuple[str, str, str]]:
    """The name, role and parent of each agent that this service knows."""
    return {(each["name"], each["role"], each["parent"]) for each in json.loads(got(host, "/agents"))["agents"]}


@pytest.mark.long
def test_relay_without_the_database_is_killed_and_its_child_reads_no_topic_in_full(origin: Host, relay: Host) -> None:
    origin.service()
    worker = origin.worker()
    position = write(worker, 20)
    process = relay.service()
    file = Path(origin.database.removeprefix("sqlite:///"))
    assert file.exists()
    assert not Path(f"/proc/{process.pid}/root{file}").exists(), "the relay can see the database"
    assert "store_url" not in relay.config.read_text()
    with Store(origin.database) as store, Watched(below(origin, relay)) as watched:
        replica = watched.replica
        watched.must_come_to(position, store)
        assert poll(lambda: listens_to(watched, relay), LONG), replica.status()
        assert replica.status().store_id == store.store_id.hex()
        before = relay.metric("relayed_total", "links")
        with store.transaction() as tx:
            tx.set("item", "k", 1, topic="t0")
        assert tx.commit is not None
        replica.wait_for(tx.commit, LONG, topics=watched.topics)
        assert poll(lambda: relay.metric("relayed_total", "links") > before, LONG), (
            "the change did not come through the relay"
        )
        agents = {("relay-1", "relay", ""), ("agent-1", "replica", "relay-1")}
        assert poll(lambda: announced(origin) == agents, LONG), announced(origin)
        assert [each.service for each in store.directory.live()] == ["api-1"]
        order(worker, 100)
        process.kill()
        assert process.wait(LONG) == -signal.SIGKILL
        process = relay.service()  # again, with an empty memory
        done(worker)
        watched.must_come_to(write(worker, 20), store)  # without another full sync
        assert poll(lambda: listens_to(watched, relay), LONG), replica.status()
        before = relay.metric("relayed_total", "links")
        watched.must_come_to(write(worker, 5), store)
        assert relay.metric("relayed_total", "links") - before >= 5
        assert relay.metric("journal_total", "written") > 0
        page = got(relay, "/status")
        assert "This relay has no database" in page
        assert "No problems." in page
        process.send_signal(signal.SIGHUP)
        log = relay.config.with_name("stderr")
        assert poll(lambda: "the configuration is reloaded" in log.read_text(), LONG), log.read_text()
        assert relay.is_ready()
        process.terminate()
        assert process.wait(LONG) == 0
    assert "internal error" not in log.read_text()
    assert "lease" not in log.read_text()
