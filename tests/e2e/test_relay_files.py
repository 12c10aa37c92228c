"""The files in docs/relays.md lead to a running tree: a service, two relays, and an agent without a database."""

import json
import os
import re
from pathlib import Path

import pytest
from _processes import poll

from pubsub_lib import Settings, Store
from pubsub_lib.cli.main import main as pubsub_db
from pubsub_lib.service.main import main
from tests.e2e.service_host import LONG, ROOT, Host, Watched

FILE = re.compile(r'^```ini title="([^"]+)\.conf"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
FILES = dict(FILE.findall((ROOT / "docs" / "relays.md").read_text()))
NETWORK = f"127.{os.getpid() % 250 + 1}.0."
"""In place of 10.0.0: loopback, and with ports that no other test has."""
QUICK = "max_idle_time = 2\nreading_age = 0.5\nround_trip = 0.5\ndiscovery_interval = 0.5\nannounce_interval = 0.5\n"
TREE = re.findall(r"^\| +([\w-]+) +\| (\w+) +\| +(\d+) \|", (ROOT / "docs" / "relays.md").read_text(), re.MULTILINE)
"""The rows of the page: name, role, number of agents below."""
TOPIC = "tenant-1"


def on_loopback(name: str, database: str, folder: Path) -> str:
    """The text of a file of the page, for this machine."""
    text = re.sub(r"^store_url = .*$", f"store_url = {database}", FILES[name], flags=re.MULTILINE)
    own = f"publisher_multiproc_socket = {folder}/hop/socket\n" if name == "api-1" else ""
    return text.replace("10.0.0.", NETWORK).replace("[pubsub]\n", f"[pubsub]\n{QUICK}{own}")


def host_of(name: str, database: str, folder: Path) -> Host:
    """The host of one service of the page."""
    made = Host(folder / name, database, name)
    made.config.write_text(on_loopback(name, database, folder / name))
    made.settings = Settings.from_file(made.config)
    made.address, made.metrics_port = NETWORK + name.rpartition("-")[2], 8867
    return made


def shown_tree(host: Host, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str, str]]:
    """The rows that pubsub-db shows with the file of this host."""
    capsys.readouterr()
    assert pubsub_db(["--config-file", str(host.config), "tree", "-f", "json"]) == 0
    return [(each["name"], each["role"], str(each["below"])) for each in json.loads(capsys.readouterr().out)]


def write(store: Store, value: int) -> int:
    with store.transaction() as tx:
        tx.set("item", "k", value, topic=TOPIC)
    assert tx.commit is not None
    return tx.commit.point.position


@pytest.mark.parametrize("name", ["api-1", "relay-7", "relay-8"])
def test_files_of_the_page_are_good(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The log of the tests' process must stay as it is.
    monkeypatch.setattr("pubsub_lib.service.main._set_up_logging", lambda config_file, level: {})
    file = tmp_path / "net.conf"
    file.write_text(FILES[name])
    assert main(["--check", "--config-file", str(file)]) == 0
    assert f"at tcp://10.0.0.{name[-1]}:8866" in capsys.readouterr().out


def test_files_of_the_page_lead_to_a_running_tree(
    tmp_path: Path, sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = {name: host_of(name, sqlite_url, tmp_path) for name in FILES if name != "agent"}
    assert sorted(hosts) == ["api-1", "relay-7", "relay-8"]
    agent = tmp_path / "agent.conf"
    agent.write_text(on_loopback("agent", "unused", tmp_path))
    settings = Settings.from_file(agent)
    assert settings.store_url == ""
    try:
        hosts["api-1"].service()
        with Store(sqlite_url) as store:
            write(store, 1)
            relay, _ = hosts["relay-7"].service(), hosts["relay-8"].service()
            with Watched(settings, (TOPIC,)) as watched:
                replica = watched.replica
                watched.must_come_to(write(store, 2), store)
                assert poll(lambda: not replica.status().polling, LONG), replica.status()
                assert replica.publishers == (f"tcp://{NETWORK}7:8866",)
                assert hosts["relay-7"].metric("sync_channel_total", "answered") >= 1
                assert hosts["api-1"].metric("sync_channel_total", "answered") >= 2
                assert len(TREE) == 4
                assert poll(lambda: shown_tree(hosts["api-1"], capsys) == TREE, LONG), shown_tree(
                    hosts["api-1"], capsys
                )
                relay.kill()
                watched.must_come_to(write(store, 3), store)
                there = (f"tcp://{NETWORK}8:8866",)
                assert poll(lambda: replica.publishers == there and not replica.status().polling, LONG)
                watched.must_come_to(write(store, 4), store)
    finally:
        for each in hosts.values():
            each.close()
