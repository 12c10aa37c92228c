"""A replica process without a database, on a host that reaches a relay and nothing else."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from _private_server import PrivateServer

from pubsub_lib import Store
from tests.e2e.network import Cable, Forwarder, Namespace, namespaces
from tests.e2e.service_host import LONG, Host, answer, write
from tests.e2e.test_relays import OPTIONS, serve_syncs

CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()
    print("connected")
except OSError as error:
    print(error.strerror)
"""


def connects(at: Namespace | None, host: str, port: int) -> str:
    """What comes of a connection from this host to an address: "connected", or the system's error."""
    prefix = [] if at is None else at.prefix
    command = [*prefix, sys.executable, "-c", CONNECT, host, str(port)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LONG).stdout.strip()


@pytest.mark.long
@pytest.mark.usefixtures("_with_namespaces")
def test_replica_that_cannot_reach_the_database_becomes_equal_to_it(
    private_postgres: PrivateServer, tmp_path: Path
) -> None:
    local = private_postgres.url
    port = int(local.rpartition(":")[2].partition("/")[0])
    with ExitStack() as ending:
        middle, apart = ending.enter_context(namespaces(1, apart=1))
        cable = Cable(1, middle, apart)
        forwarder = Forwarder(port)
        ending.callback(forwarder.close)
        origin = Host(tmp_path / "api-1", local, "api-1", **OPTIONS)
        ending.callback(origin.close)
        origin.change("127.0.0.1\n", f"{middle.ours}\n")
        origin.change("insecure = false", "insecure = true")
        origin.address = middle.ours
        # The relay reads the database. It has two cables, and forwards no packets.
        url = local.replace(f"127.0.0.1:{port}", f"{middle.ours}:{forwarder.port}")
        relay = Host(tmp_path / "relay-1", url, "relay-1", middle, role="relay", **OPTIONS)
        ending.callback(relay.close)
        known = cable.addresses[middle]
        relay.change(f"publisher_bind_address = {middle.its}", f"publisher_bind_address = *\nlocal_ip = {known}")
        relay.change(f"metrics_address = {middle.its}", "metrics_address = 0.0.0.0")
        serve_syncs(relay)
        agent = Host(tmp_path / "agent", "none", "agent-1", apart, **OPTIONS)
        ending.callback(agent.close)
        parent = f"tcp://{known}:{relay.settings.bind_address.rpartition(':')[2]}"
        agent.change("store_url = none\nservice_name = agent-1", f"parents = {parent}\nreplica_name = agent-1")

        assert connects(middle, middle.ours, forwarder.port) == "connected"
        assert connects(apart, middle.ours, forwarder.port) == "Network is unreachable"
        assert connects(None, "127.0.0.1", port) == "connected"
        assert connects(apart, "127.0.0.1", port) == "Connection refused"

        origin.service()
        worker = origin.worker()
        write(worker, 20)
        relay.service()
        process = agent.controller()
        assert answer(process) == "synced\n"
        assert process.stdin is not None
        with Store(local) as store:
            for count in (1, 20, 5):
                process.stdin.write(f"{write(worker, count)}\n")
                process.stdin.flush()
                held = json.loads(answer(process))
                assert held == {each.key: [each.version, each.value.decode()] for each in store.objects()}
        assert relay.metric("sync_channel_total", "answered") >= 1
        assert relay.metric("relayed_total", "links") >= 20
        assert connects(apart, known, relay.metrics_port) == "connected"
