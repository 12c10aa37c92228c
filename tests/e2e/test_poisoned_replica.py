"""A controller with a change that was never committed: ``pubsub-db verify`` and the audit name it."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from _processes import free_port, poll

from pubsub_lib import Store
from pubsub_lib.audit.main import main as audit
from pubsub_lib.cli.main import main as pubsub_db
from pubsub_lib.cli.replica_client import ReplicaClient
from pubsub_lib.core.model import Point
from pubsub_lib.errors import PubSubError
from tests.e2e.service_host import LONG, Host, answer, write
from tests.e2e.test_forged_changes import TOPIC, Squatter


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    """Its controllers never verify their chains, so that nothing repairs them."""
    found = Host(
        tmp_path / "host",
        sqlite_url,
        publishers_ips="127.0.0.1",
        max_idle_time=1.0,
        verify_interval=0.0,
        replica_metrics_port=free_port(),
        journal_folder=tmp_path / "journals",
    )
    yield found
    found.close()


def known(controller: ReplicaClient) -> Point | None:
    """The controller's point of the topic; None while it does not answer or has none."""
    try:
        return controller.contents(TOPIC).known
    except PubSubError:
        return None


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("commits", "verdict", "bit"),
    [(4, "foreign_history", 4), (5, "unknown", 32)],
    ids=["beyond the store", "at the position of another topic's commit"],
)
def test_verify_and_audit_name_a_controller_that_took_what_was_never_committed(
    commits: int, verdict: str, bit: int, host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``commits``: the last of an even number is of the attacked topic. Else a restored backup would look alike, so the
    audit has no verdict of its own, only incomplete evidence (audit.md, "State").
    """
    service, worker = host.service(), host.worker()
    write(worker, commits)
    worker.communicate()
    endpoint = f"127.0.0.1:{host.settings.replica_metrics_port}"
    controller, client = host.controller(), ReplicaClient(f"http://{endpoint}")
    assert answer(controller) == "synced\n"
    uuid = secrets.token_hex(16)
    with Store(host.database) as store:
        head = store.read_heads([TOPIC]).topics[TOPIC]
        assert poll(lambda: known(client) == head.point, LONG)
        verify = ["--database", host.database, "verify", TOPIC, "--against", endpoint]
        assert pubsub_db(verify) == 0
        service.terminate()
        assert service.wait(LONG) == 0
        store.directory.register("api-2", uuid, "", 1000.0)
        address = f"tcp://127.0.0.1:{host.settings.bind_address.rpartition(':')[2]}"
        squatter = Squatter(address, head, store.store_id, uuid)
        try:
            false = Point(head.point.position + 1, 7)
            assert poll(lambda: known(client) == false, LONG), "the attack does not work"
            capsys.readouterr()
            code, shown = pubsub_db(verify), capsys.readouterr().out
            assert code == 1, shown
            assert f"replica: point at {false.position}" in shown
            assert known(client) == false, "nothing repaired it"
        finally:
            controller.communicate(timeout=LONG)  # the end of its input ends it
            squatter.close()
    assert controller.returncode == 0
    # Without grace: the store is read just after the controller's end, and all clocks are that of this machine.
    code = audit(
        ["run", str(tmp_path / "journals"), "--store", host.database, "--grace", "0", "-f", "json", "--bound", "10"]
    )
    found = msgspec.json.decode(capsys.readouterr().out)
    state = {each["verdict"]: each["count"] for each in found["counts"] if each["of"] == "state"}
    assert state == {verdict: 1}
    assert code & bit
    assert not found["problems"]
    (delivery,) = [each for each in found["first"] if each["of"] == "delivery"]
    assert (delivery["verdict"], delivery["detail"]) == ("unknown", "unrecorded")
    assert (delivery["topic"], delivery["uuid"]) == (TOPIC, uuid), "the publisher that sent it"
