"""A publisher that a replica does not use any more: the log, the metrics and ``pubsub-db status`` name it (rule 14)."""

import logging
import secrets
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from _processes import free_port, poll
from prometheus_client.parser import text_string_to_metric_families

from pubsub_lib import Store
from pubsub_lib.cli.main import main as pubsub_db
from pubsub_lib.core.quarantine import SECONDS
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.test_forged_changes import TOPIC, VERIFY, Squatter

Labels = Mapping[str, str]


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(
        tmp_path,
        sqlite_url,
        publishers_ips="127.0.0.1",
        max_idle_time=1.0,
        verify_interval=VERIFY,
        replica_metrics_port=free_port(),
    )
    yield found
    found.close()


def quarantines(address: str) -> list[tuple[Labels, float]]:
    """The quarantined publishers and their times, by the metrics at ``address``."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=LONG) as answer:
        text = answer.read().decode()
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "pubsub_replica_quarantine_seconds"
    ]


def test_rule_14_log_metrics_and_status_name_a_quarantined_publisher(
    host: Host, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    service, worker = host.service(), host.worker()
    write(worker, 5)
    at = f"http://127.0.0.1:{host.settings.replica_metrics_port}"
    status = ["--database", host.database, "status", "--ask", "0", "-f", "json", "--replica", at]
    uuid = secrets.token_hex(16)
    with Store(host.database) as store, Watched(host.settings, (TOPIC,)) as watched:
        replica = watched.replica
        head = store.read_heads([TOPIC]).topics[TOPIC]
        assert poll(lambda: replica.status().chains[TOPIC].known == head.point, LONG)
        assert quarantines(at) == []
        service.kill()
        service.wait(LONG)
        store.directory.register("api-2", uuid, "", 1000.0)
        address = f"tcp://127.0.0.1:{host.settings.bind_address.rpartition(':')[2]}"
        squatter = Squatter(address, head, store.store_id, uuid)
        try:
            assert poll(lambda: bool(replica.status().quarantined), LONG), "it goes on for ever"
            ((labels, left),) = quarantines(at)
            capsys.readouterr()
            assert pubsub_db(status) == 0
        finally:
            squatter.close()
    # The service name is what it sends, that of the service whose address it took.
    assert labels == {"service": "api-1", "uuid": uuid}
    assert 0.0 < left <= SECONDS
    (shown,) = msgspec.json.decode(capsys.readouterr().out)["quarantined"]
    assert (shown["service"], shown["uuid"]) == ("api-1", uuid)
    (line,) = [each for each in caplog.records if "its messages are not used" in each.getMessage()]
    assert line.levelno == logging.ERROR
    assert f"the publisher 'api-1' with the UUID {uuid} sent" in line.getMessage()
