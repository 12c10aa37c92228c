"""``publisher-service --check`` rejects contradicting options, in one sentence, with exit code 2."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsub_lib.config.reading import Configuration
from pubsub_lib.service import main as main_module
from pubsub_lib.service.contradictions import find
from pubsub_lib.service.main import main
from pubsub_lib.service.settings import load

OURS = "[pubsub]\nstore_url = postgresql://pubsub@db/net\nenable_pub_sub = true\nservice_name = api-1\n"
BOUND = "publisher_bind_address = $local_ip\n"
HERE = OURS + "local_ip = 10.0.0.5\ninsecure = true\n" + BOUND

# The configuration of two API hosts as Dragonflow's devstack writes it: redis for the database, ZeroMQ in between.
DRAGONFLOW = (
    "[DEFAULT]\ndebug = True\n"
    "[df]\nremote_db_ip = 10.0.0.9\nremote_db_port = 4001\nremote_db_hosts = 10.0.0.9:4001\n"
    "nb_db_class = etcd_nb_db_driver\nlocal_ip = 10.0.0.5\nmanagement_ip = 10.0.0.5\ntunnel_types = geneve,vxlan\n"
    "apps_list = l2,l3_proactive,dhcp\nintegration_bridge = br-int\nenable_df_pub_sub = True\n"
    "pub_sub_driver = zmq_pubsub_driver\npublishers_ips = $local_ip,10.0.0.2\npublisher_port = 8877\n"
    "publisher_bind_address = *\npub_sub_use_multiproc = True\npublisher_rate_limit_timeout = 180\n"
    "publisher_rate_limit_count = 1\nmonitor_table_poll_time = 30\ndb_sync_time = 120\n"
    "enable_selective_topology_distribution = True\n[df_dnat_app]\nexternal_network_bridge = br-ex\n"
)
MOVED = "[pubsub]\nstore_url = postgresql://pubsub@db/net\nservice_name = api-1\ninsecure = true\n"
WITHOUT_KEYS = MOVED.replace("insecure = true\n", "")
ALONE = DRAGONFLOW.replace("publisher_bind_address = *", "publisher_bind_address = $local_ip")

RELAY = "topics = a\n[publisher_service]\nrole = relay\n"

# File -> a part of the expected sentence. Each exits with 2.
WRONG: dict[str, tuple[str, str]] = {
    "a relay of everything": (HERE + RELAY.replace("topics = a\n", ""), "needs named topics"),
    "a relay below nothing": (HERE + "discovery_interval = 0\n" + RELAY, "parents is empty and discovery_interval is"),
    "a relay below itself": (HERE + "parents = tcp://10.0.0.5:8866\n" + RELAY, "its own address tcp://10.0.0.5:8866"),
    "a relay that commits": (HERE + "group_commit = host\n" + RELAY, "set group_commit = process"),
    "a relay on a broker": (
        HERE + "pub_sub_driver = nats_pubsub_driver\n" + RELAY,
        "lacks the capability 'bind_based', needed by role = relay in [publisher_service]",
    ),
    "a parent without a scheme": (HERE + "parents = 10.0.0.7\n" + RELAY, "'10.0.0.7', which is no address"),
    "dragonflow: without a store": (DRAGONFLOW, "'store_url' in group [pubsub] is missing"),
    "dragonflow: no keys": (
        DRAGONFLOW + WITHOUT_KEYS,
        "others could reach tcp://10.0.0.5:8877 (publisher_bind_address in [pubsub]), and there are no keys",
    ),
    "a host name without keys": (OURS + "publisher_bind_address = api-1\n", "others could reach tcp://api-1:8866"),
    "another spelling of every interface": (
        OURS + "insecure = true\npublisher_bind_address = [::0]\n",
        "publisher_bind_address = [::0] lets other hosts connect, but the directory would name",
    ),
    "an endpoint for all, without keys": (
        OURS + "[publisher_service]\nmetrics_address = 0.0.0.0\n",
        "others could reach http://0.0.0.0:8867 (metrics_address in [publisher_service]), and there are no keys",
    ),
    "a socket file in a folder of all users": (
        OURS + "publisher_transport = ipc\npublisher_bind_address = /tmp/publisher-socket\n",
        "others could reach ipc:///tmp/publisher-socket",
    ),
    "dragonflow: redis in between": (
        DRAGONFLOW.replace("zmq_pubsub_driver", "redis_db_pubsub_driver") + MOVED,
        "the driver 'redis_db_pubsub_driver' is not installed",
    ),
    "dragonflow: etcd in between": (
        DRAGONFLOW.replace("zmq_pubsub_driver", "etcd_pubsub_driver") + MOVED,
        "the driver 'etcd_pubsub_driver' is not installed",
    ),
    "dragonflow: an option with a typo": (
        DRAGONFLOW.replace("publisher_port", "publisher_prt") + MOVED,
        "[df] sets an unknown option 'publisher_prt'; did you mean 'publisher_port'?",
    ),
    "dragonflow: bound elsewhere": (
        DRAGONFLOW.replace("publisher_bind_address = *", "publisher_bind_address = 10.0.1.5") + MOVED,
        "publishers_ips names this host by 10.0.0.5, but the service binds 10.0.1.5 alone",
    ),
    "dragonflow: loopback bound": (
        DRAGONFLOW.replace("publisher_bind_address = *", "publisher_bind_address = 127.0.0.1") + MOVED,
        "publishers_ips names this host by 10.0.0.5, but the service binds 127.0.0.1 alone",
    ),
    "dragonflow: no local_ip": (
        DRAGONFLOW.replace("local_ip = 10.0.0.5\n", "").replace("$local_ip,10.0.0.2", "10.0.0.5,10.0.0.2")
        + WITHOUT_KEYS,
        "publishers_ips names other hosts (10.0.0.5, 10.0.0.2), but this service binds 127.0.0.1",
    ),
    "dragonflow: every interface, no local_ip": (
        DRAGONFLOW.replace("local_ip = 10.0.0.5\n", "").replace("$local_ip,10.0.0.2", "10.0.0.5,10.0.0.2") + MOVED,
        "the directory would name the service as tcp://127.0.0.1:8877, which leads every replica to its own host",
    ),
    "dragonflow: a database of one host": (
        DRAGONFLOW + MOVED.replace("postgresql://pubsub@db/net", "sqlite:////var/lib/net.db"),
        "publishers_ips names other hosts (10.0.0.2), but store_url is the file /var/lib/net.db of this host",
    ),
    "dragonflow: publish-subscribe off": (
        DRAGONFLOW.replace("enable_df_pub_sub = True", "enable_df_pub_sub = False") + MOVED,
        "set enable_pub_sub = true",
    ),
    "dragonflow: programs that bind by themselves": (
        ALONE.replace("pub_sub_use_multiproc = True", "pub_sub_use_multiproc = False") + MOVED,
        "every program would bind tcp://10.0.0.5:8877 itself",
    ),
    "dragonflow: epgm": (
        ALONE + MOVED + "publisher_transport = epgm\n",
        "'epgm://10.0.0.5:8877' begins with neither tcp:// nor ipc://",
    ),
    "dragonflow: publishers everywhere": (
        DRAGONFLOW.replace("$local_ip,10.0.0.2", "*") + MOVED,
        "'publishers_ips' in group [pubsub] holds '*', to which no replica can connect",
    ),
    "a group with a typo": (HERE + "[publisher_servce]\nlease = 3\n", "did you mean [publisher_service]?"),
    "a driver's group with a typo": (HERE + "[pubsub_zqm]\nsend_hwm = 3\n", "did you mean [pubsub_zmq]?"),
    "a group of a missing driver": (HERE + "[pubsub_kafka]\nurl = x\n", "reads the group [pubsub_kafka]"),
    "an option with a typo": (HERE + "publisher_prot = 3\n", "did you mean 'publisher_port'?"),
    "an option in another group": (HERE + "[publisher_service]\ntopics = a\n", "move it to group [pubsub]"),
    "an option of the service in another group": (HERE + "keep_links = 3\n", "move it to group [publisher_service]"),
    "an option in DEFAULT": (
        HERE + "[DEFAULT]\ndebug = true\npublisher_port = 9000\n",
        "publisher_port is set in [DEFAULT] and belongs in [pubsub]",
    ),
    "a driver's option in another group": (HERE + "send_hwm = 3\n", "move it to group [pubsub_zmq]"),
    "dragonflow: an option of ours": (
        DRAGONFLOW.replace("[df]\n", "[df]\nmax_idle_time = 3\n") + MOVED,
        "max_idle_time is set in [df] and belongs in [pubsub]",
    ),
    "dragonflow: the switch in DEFAULT": (
        DRAGONFLOW.replace("enable_df_pub_sub = True\n", "").replace(
            "debug = True\n", "debug = True\nenable_df_pub_sub = True\n"
        )
        + MOVED,
        "enable_df_pub_sub is set in [DEFAULT] and belongs in [df]",
    ),
    "an option twice": (HERE + "publisher_port = 1\npublisher_port = 2\n", "publisher_port is set 2 times in [pubsub]"),
    "a driver within one process": (
        OURS + "pub_sub_driver = memory\n",
        "lacks the capability 'cross_process', needed by the publisher service",
    ),
    "a relay's address that is not bound": (
        HERE + RELAY + "address = tcp://127.0.0.1:8866\n",
        "address in [publisher_service] is tcp://127.0.0.1:8866, but the service binds 10.0.0.5",
    ),
    "a relay on every interface, no local_ip": (
        OURS + "insecure = true\npublisher_bind_address = *\n" + RELAY,
        "the directory would name the service as tcp://127.0.0.1:8866, which leads every replica to its own host",
    ),
    "an address that is not bound": (
        HERE + "[publisher_service]\naddress = tcp://127.0.0.1:8866\n",
        "address in [publisher_service] is tcp://127.0.0.1:8866, but the service binds 10.0.0.5",
    ),
    "loopback by number for replicas of this host": (
        HERE + "publishers_ips = 127.0.0.1, 10.0.0.2\n",
        "names this host by 127.0.0.1, but the service binds 10.0.0.5 alone",
    ),
    "a service without discovery": (
        HERE + "publishers_ips = 10.0.0.2\ndiscovery_interval = 0\n",
        "discovery_interval is 0 and publishers_ips (10.0.0.2) does not name 10.0.0.5",
    ),
    "files of hosts": (
        HERE.replace(BOUND, "publisher_bind_address = /run/x/out\n")
        + "publisher_transport = ipc\npublishers_ips = 10.0.0.5,10.0.0.2\n",
        "publisher_transport is ipc, which has no hosts, but publishers_ips names 10.0.0.5, 10.0.0.2",
    ),
    "one port for two endpoints": (
        HERE + "replica_metrics_port = 8867\n",
        "replica_metrics_port in [pubsub] and metrics_port in [publisher_service] are both 8867",
    ),
    "one port for endpoint and publisher": (
        HERE + "replica_metrics_port = 8866\nreplica_metrics_address = *\n",
        "replica_metrics_port and publisher_port in [pubsub] are both 8866",
    ),
    "a socket over the database": (
        HERE.replace("postgresql://pubsub@db/net", "sqlite:////var/lib/x/net.db")
        + "publisher_multiproc_socket = /var/lib/x/net.db\n",
        "store_url and publisher_multiproc_socket are both /var/lib/x/net.db",
    ),
    "journals that are removed at once": (
        HERE + "journal_folder = /var/lib/x\njournal_keep_bytes = 1000\n",
        "journal_keep_bytes (1000) is below journal_roll_bytes",
    ),
    "a changelog that is trimmed too early": (
        HERE + "[publisher_service]\nkeep_time = 0.5\n",
        "keep_time in [publisher_service] is 0.5 s, so links would leave the changelog before",
    ),
}

Written = Callable[[str], Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(text: str) -> Path:
        path = tmp_path / "net.conf"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("case", sorted(WRONG))
def test_check_rejects_contradicting_options(
    case: str, written: Written, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_module, "_set_up_logging", lambda config_file, level: None)
    text, sentence = WRONG[case]
    assert main(["--check", "--config-file", str(written(text))]) == 2
    output = capsys.readouterr()
    print(output.err, file=sys.stderr)
    assert output.out == ""
    assert sentence in output.err
    assert output.err.startswith("publisher-service: ")
    assert output.err.count("\n") == 1, "one sentence for one cause"


GOOD = {
    "a relay without the database": HERE.replace(
        "store_url = postgresql://pubsub@db/net", "sync_url = http://10.0.0.1:8867"
    )
    + "parents = tcp://10.0.0.1:8866\n"
    + RELAY,
    "a relay without the database on every interface": (
        "[pubsub]\nenable_pub_sub = true\nservice_name = relay-1\ninsecure = true\npublisher_bind_address = *\n"
        "sync_url = http://10.0.0.1:8867\nparents = tcp://10.0.0.1:8866\n"
    )
    + RELAY,
    "a standby": HERE
    + "pub_sub_use_multiproc = false\npublishers_ips = 10.0.0.2\n"
    + "[publisher_service]\nrole = standby\nserve_syncs = true\n",
    "a relay": HERE + "pub_sub_use_multiproc = false\npublishers_ips = 10.0.0.2\n" + RELAY,
    "a relay below another": HERE + "discovery_interval = 0\nparents = tcp://10.0.0.7:8866\n" + RELAY,
    "one host": OURS,
    "one host, SQLite": OURS.replace("postgresql://pubsub@db/net", "sqlite:////var/lib/net.db"),
    "keys without the key of a client": OURS + BOUND + "local_ip = 10.0.0.5\nkeys = true\n",
    "one of several": HERE + "publishers_ips = 10.0.0.5, 10.0.0.2\n",
    "dragonflow, moved": ALONE + MOVED,
    "dragonflow, moved, everywhere": DRAGONFLOW + MOVED,
    "by name": HERE + "publishers_ips = api-1.example, api-2.example\ndiscovery_interval = 0\n",
    "behind a translated address": HERE
    + "publishers_ips = 192.0.2.1\n[publisher_service]\naddress = tcp://192.0.2.1:9000\n",
    "a tunnel on this host": HERE.replace(BOUND, "")
    + "publisher_bind_address = 127.0.0.1\n[publisher_service]\naddress = tcp://10.0.0.5:9000\n",
    "every interface": HERE.replace(BOUND, "publisher_bind_address = 0.0.0.0\n"),
    "IP version 6": OURS
    + "local_ip = fe80::5\npublishers_ips = [fe80::5]\npublisher_bind_address = [$local_ip]\ninsecure = true\n",
    "files": OURS + "publisher_transport = ipc\npublisher_bind_address = /run/x/out\n",
    "another program's options in DEFAULT": HERE
    + "topics = a\n[DEFAULT]\ntopics = b\nlog_file = /var/log/x\nreport_interval = 3\nseed = 1\n",
    "another program's groups": HERE + "[database]\nconnection = x\n[nova]\nconnection = y\nconnection = z\n",
}


def found_in(path: Path) -> list[str]:
    configuration = Configuration.read(path)
    return find(configuration, *load(configuration))


@pytest.mark.parametrize("case", sorted(GOOD))
def test_check_accepts_consistent_options(case: str, written: Written) -> None:
    assert found_in(written(GOOD[case])) == []


def test_check_reads_the_key_of_a_client_that_the_file_names(written: Written, tmp_path: Path) -> None:
    text = OURS + BOUND + f"local_ip = 10.0.0.5\nkeys = true\nclient_key_file = {tmp_path}/agent.key\n"
    (sentence,) = found_in(written(text))
    assert f"{tmp_path}/agent.key" in sentence


def test_check_finds_an_option_set_by_its_old_and_its_new_name(written: Written) -> None:
    (sentence,) = found_in(written(HERE + "queue_limit = 3\nhandler_queue_limit = 9\n"))
    assert sentence.startswith("handler_queue_limit is set 2 times in [pubsub]")


def test_check_rejects_journal_folder_below_missing_socket_folder(written: Written, tmp_path: Path) -> None:
    """With mode 0755, and the start rejects such a folder for its socket."""
    hop = tmp_path / "hop"

    def found(journals: Path) -> list[str]:
        return found_in(written(HERE + f"publisher_multiproc_socket = {hop}/socket\njournal_folder = {journals}\n"))

    (sentence,) = found(hop / "a" / "journals")
    assert f"journal_folder ({hop}/a/journals) is below the folder {hop} of publisher_multiproc_socket" in sentence
    assert f"run: mkdir -p -m 700 {hop}" in sentence
    assert found(hop) == []  # created for its owner only
    assert found(tmp_path / "journals") == []
    hop.mkdir(mode=0o700)
    assert found(hop / "a" / "journals") == []


def test_check_names_every_contradiction(
    written: Written, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_module, "_set_up_logging", lambda config_file, level: None)
    path = written(HERE + "publisher_port = 8866\npublisher_port = 8868\n[pubsub_kafka]\na = 1\n")
    assert main(["--check", "--config-file", str(path)]) == 2
    output = capsys.readouterr().err.splitlines()
    assert len(output) == 2
    assert all(line.startswith("publisher-service: ") for line in output)


def test_dragonflow_file_binds_the_registered_address(written: Written) -> None:
    settings, service = load(Configuration.read(written(ALONE + MOVED)))
    assert settings.bind_address == service.address == "tcp://10.0.0.5:8877"
    assert settings.addresses == ("tcp://10.0.0.5:8877", "tcp://10.0.0.2:8877")
