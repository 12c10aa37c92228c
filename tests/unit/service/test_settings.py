"""The service's own options: every wrong value is one sentence that names it."""

from pathlib import Path

import pytest

from pubsub_lib.config.pubsub import POLLING_DRIVER
from pubsub_lib.config.reading import Configuration
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.errors import ConfigError
from pubsub_lib.service.settings import load, names_channel, reachable

GOOD = "[pubsub]\nstore_url = sqlite:///net.db\nenable_pub_sub = true\nservice_name = api-1\n"


def read(tmp_path: Path, text: str) -> ServiceSettings:
    path = tmp_path / "net.conf"
    path.write_text(text)
    return load(Configuration.read(path))[1]


def test_defaults_of_a_file(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD) == ServiceSettings(address="tcp://127.0.0.1:8866")


def test_load_returns_both_settings_from_one_file(tmp_path: Path) -> None:
    path = tmp_path / "net.conf"
    path.write_text(GOOD + "[publisher_service]\nlease = 3\nkeep_links = 7\n[pubsub_ipc]\nbuffer = 5\n")
    settings, service = load(Configuration.read(path))
    assert (settings.service_name, settings.driver) == ("api-1", "zmq_pubsub_driver")
    assert settings.for_multiproc().options["buffer"] == 5
    assert settings.for_multiproc().bind_address == "ipc:///var/run/zmq_pubsub/zmq-publisher-socket"
    assert (service.lease, service.keep_links) == (3.0, 7)


RELAY = GOOD + "topics = a, b\n[publisher_service]\nrole = relay\n"


def test_free_ports_are_no_conflict(tmp_path: Path) -> None:
    free = GOOD + "publisher_port = 0\n[publisher_service]\nmetrics_port = {}\n"
    for port in (0, -1, 8867):
        service = read(tmp_path, free.format(port))
        assert (service.address, service.metrics_port) == ("tcp://127.0.0.1:0", port)
    given = free.format(-1) + "address = tcp://nat.example:0\n"
    assert read(tmp_path, given).address == "tcp://nat.example:0"


def test_relay_is_read_from_a_file(tmp_path: Path) -> None:
    service = read(tmp_path, RELAY)
    assert (service.role, service.address) == ("relay", "tcp://127.0.0.1:8866")
    drained = read(tmp_path, RELAY + "drain_to = tcp://127.0.0.2:8866, tcp://relay-8:8866\n")
    assert drained.drain_to == ("tcp://127.0.0.2:8866", "tcp://relay-8:8866")
    beside = "http://127.0.0.1:8868, http://127.0.0.2:8867"
    assert read(tmp_path, RELAY + f"sibling_urls = {beside}\n").sibling_urls == beside
    above = "http://127.0.0.1:8868, http://127.0.0.2:8867, https://localhost:8867, http://relay-8:8867"
    assert read(tmp_path, RELAY.replace("topics", f"sync_url = {above}\ntopics")) == service


STANDBY = GOOD + "[publisher_service]\nrole = standby\nserve_syncs = true\n"


def test_standby_sends_nothing_whatever_the_file_has_for_a_publisher(tmp_path: Path) -> None:
    path = tmp_path / "net.conf"
    lines = "publisher_port = 8867\nkeys = true\ninsecure = true\n"  # the port of its HTTP endpoint, which is free
    path.write_text(STANDBY.replace("[publisher_service]", f"{lines}[publisher_service]\naddress = tcp://nat:1"))
    settings, service = load(Configuration.read(path))
    assert (service.role, service.address, settings.driver) == ("standby", "", POLLING_DRIVER)
    assert (settings.bind_address, settings.multiproc_driver, settings.keys) == ("", "", False)
    assert not names_channel(settings, service)
    file = STANDBY.replace("sqlite:///net.db", "sqlite:///file:net.db?mode=ro&uri=true")
    assert read(tmp_path, file.replace("enable_pub_sub = true\n", "")).role == "standby"


BARE = RELAY.replace("store_url = sqlite:///net.db", "sync_url = http://10.0.0.1:8867")


def test_relay_without_the_database_is_read_from_a_file(tmp_path: Path) -> None:
    for above in ("parents = tcp://10.0.0.1:8866", "publishers_ips = 10.0.0.1, 10.0.0.2"):
        service = read(tmp_path, BARE.replace("topics", f"{above}\ndiscovery_interval = 0\ntopics"))
        assert (service.role, service.address) == ("relay", "tcp://127.0.0.1:8866")
    alone = RELAY.replace("store_url = sqlite:///net.db", "parents = tcp://10.0.0.1:8866")
    assert read(tmp_path, alone).role == "relay"


SERVES = "insecure = true\n[publisher_service]\nserve_syncs = true\n"


@pytest.mark.parametrize(
    ("publisher", "endpoint", "named"),
    [
        ("publisher_bind_address = 127.0.0.1\n", "", True),
        ("publisher_bind_address = 127.0.0.1\n", "metrics_address = localhost\n", True),
        ("publisher_bind_address = 10.0.0.7\n", "metrics_address = 10.0.0.7\n", True),
        ("publisher_bind_address = [fd00::7]\n", "metrics_address = fd00::7\n", True),
        ("publisher_bind_address = 10.0.0.7\n", "metrics_address = 0.0.0.0\n", True),
        ("publisher_bind_address = *\nlocal_ip = 10.0.0.7\n", "metrics_address = 10.0.0.7\n", True),
        ("publisher_bind_address = /run/net\npublisher_transport = ipc\n", "", True),
        ("publisher_bind_address = [fd00::7]\n", "metrics_address = ::\n", True),
        ("publisher_bind_address = [fd00::7]\n", "metrics_address = 0.0.0.0\n", False),
        ("publisher_bind_address = 10.0.0.7\n", "", False),
        ("publisher_bind_address = 10.0.0.7\n", "metrics_address = 10.0.0.8\n", False),
        ("publisher_bind_address = /run/net\npublisher_transport = ipc\n", "metrics_address = 10.0.0.7\n", False),
        ("pub_sub_driver = nats_pubsub_driver\n", "", False),
    ],
)
def test_hellos_name_the_channel_only_where_replicas_reach_it(
    publisher: str, endpoint: str, named: bool, tmp_path: Path
) -> None:
    path = tmp_path / "net.conf"
    path.write_text(GOOD + publisher + SERVES + endpoint)
    assert names_channel(*load(Configuration.read(path))) is named
    path.write_text((GOOD + publisher + SERVES + endpoint).replace("serve_syncs = true", "serve_syncs = false"))
    assert not names_channel(*load(Configuration.read(path)))


WRONG = {
    "a relay without the database below itself": (
        BARE.replace("topics", "local_ip = 127.0.0.1\ntopics"),
        "listens to publishers_ips, which names its own address tcp://127.0.0.1:8866; name the origin services there",
    ),
    "a relay without the database below no publisher": (
        BARE.replace("topics", "publishers_ips =\ntopics"),
        "parents and publishers_ips are empty, and without store_url there is no directory; set one",
    ),
    "a relay without the database, with keys": (
        BARE.replace("topics", "parents = tcp://10.0.0.1:8866\nkeys = true\ntopics"),
        "keys = true needs the publishers' keys, which are in the database; set store_url",
    ),
    "a relay without any source of its objects": (
        RELAY.replace("store_url = sqlite:///net.db", "publishers_ips = 10.0.0.1"),
        "'store_url' in group .pubsub. is missing; .* for a replica or a relay without a database, sync_url or parents",
    ),
    "a relay with parents alone, below itself": (
        RELAY.replace("store_url = sqlite:///net.db", "parents = tcp://127.0.0.1:8866"),
        "its own address tcp://127.0.0.1:8866 among its parents",
    ),
    "a relay with parents alone and with siblings": (
        RELAY.replace("store_url = sqlite:///net.db", "parents = tcp://10.0.0.1:8866")
        + "sibling_urls = http://10.0.0.2:8867\n",
        "without store_url, it reads no objects from the database; remove one of them",
    ),
    "a relay without the database, on a driver that needs it": (
        BARE.replace("topics", "parents = tcp://10.0.0.1:8866\nenable_pub_sub = false\ntopics").replace(
            "enable_pub_sub = true\n", ""
        ),
        "set enable_pub_sub = true",
    ),
    **{
        f"a relay that reads its syncs from itself, at {url}": (
            RELAY.replace("topics", f"sync_url = http://10.0.0.1:8867,{url}\ntopics"),
            "would read its syncs from itself at http://.*:8867/sync; remove it from sync_url",
        )
        for url in ("http://127.0.0.1:8867", "http://localhost:8867/sync", "http://[::1]:8867")
    },
    "a relay that is its own sibling": (
        RELAY + "sibling_urls = http://10.0.0.1:8867, http://127.0.0.1:8867\n",
        "would read its syncs from itself at http://127.*; remove it from sibling_urls in .publisher_service.",
    ),
    "a relay with siblings that reads nothing from the database": (
        RELAY.replace("topics", "sync_url = http://10.0.0.1:8867\ntopics") + "sibling_urls = http://10.0.0.2:8867\n",
        "with sync_url, or without store_url, it reads no objects from the database; remove one of them",
    ),
    "a relay with a sibling that is no URL": (
        RELAY + "sibling_urls = relay-8\n",
        "a URL in sibling_urls names neither http nor https and a host",
    ),
    "a service with siblings": (
        GOOD + "[publisher_service]\nsibling_urls = http://10.0.0.2:8867\n",
        "sibling_urls in .publisher_service. is of a relay.*set role = relay",
    ),
    "an unknown role": (GOOD + "[publisher_service]\nrole = leaf\n", "'role' in group .publisher_service."),
    "a relay of everything": (RELAY.replace("topics = a, b\n", ""), "needs named topics.*set topics"),
    "a relay below no publisher": (RELAY.replace("topics", "discovery_interval = 0\ntopics"), "no publisher to listen"),
    "a relay below itself": (RELAY.replace("topics", "parents = tcp://127.0.0.1:8866\ntopics"), "its own address"),
    "a relay that commits": (RELAY.replace("topics", "group_commit = host\ntopics"), "set group_commit = process"),
    "a service that sends replicas to relays": (
        GOOD + "[publisher_service]\ndrain_to = tcp://127.0.0.1:9\n",
        "drain_to in .publisher_service. is of a relay.*set role = relay",
    ),
    "a relay that sends replicas to itself": (RELAY + "drain_to = tcp://127.0.0.1:8866\n", "the relay's own address"),
    "a relay that sends replicas nowhere": (RELAY + "drain_to = relay-8\n", "'relay-8', which is no address"),
    "a relay that sends replicas to a long name": (
        RELAY + f"drain_to = tcp://{'x' * 250}:8866\n",
        "is no address",
    ),
    "a relay that sends replicas to too many": (
        RELAY + f"drain_to = {', '.join(f'tcp://127.0.0.2:{port}' for port in range(9000, 9017))}\n",
        "names 17 addresses; name 16 at most",
    ),
    "a standby without a database": (
        STANDBY.replace("store_url = sqlite:///net.db", "sync_url = http://h:1"),
        "answers syncs from a database",
    ),
    "a standby that answers nothing": (STANDBY.replace("serve_syncs = true", ""), "set serve_syncs = true there, too"),
    "a standby without a name": (STANDBY.replace("service_name = api-1", ""), "set service_name"),
    "a standby that commits": (
        STANDBY.replace("[publisher_service]", "group_commit = host\n[publisher_service]"),
        "set group_commit = process",
    ),
    "a standby with relays": (STANDBY + "drain_to = tcp://127.0.0.2:8866\n", "drain_to .* is of a relay"),
    "a standby with keys": (
        STANDBY.replace("[publisher_service]", "keys = true\n[publisher_service]"),
        "which keys = true is to prevent",
    ),
    "no name": (GOOD.replace("service_name = api-1", ""), "set service_name"),
    "off": (GOOD.replace("enable_pub_sub = true", ""), "set enable_pub_sub = true"),
    "below 0": (GOOD + "[publisher_service]\nlease = -1\n", "'lease' in group .publisher_service."),
    "not finite": (GOOD + "[publisher_service]\ngrace = nan\n", "'grace' in group .publisher_service. is nan"),
    "without end": (
        GOOD + "[publisher_service]\ntrim_interval = inf\n",
        "'trim_interval' .* cannot be used: should be less than or equal to 86400; correct it",
    ),
    "a dollar": (GOOD + "[publisher_service]\naddress = tcp://$x\n", r"'address' in group .*write \$\$"),
    "a word": (GOOD + "[publisher_service]\nmetrics_port = many\n", "'metrics_port' in group"),
    "unknown": (GOOD + "[publisher_service]\nlaese = 1\n", "unknown option 'laese'.*did you mean 'lease'"),
    "hyphens in place of underscores": (GOOD + "[publisher_service]\nkeep-links = 1\n", "did you mean 'keep_links'"),
    "a lease that is too short": (
        GOOD + "[publisher_service]\nlease = 0.001\n",
        "'lease' in group .publisher_service. .*0.5",
    ),
    "a lease that is too long": (
        GOOD + "[publisher_service]\nlease = 1e30\n",
        "'lease' in group .publisher_service. .*86400",
    ),
    "a timer that overflows": (GOOD + "[publisher_service]\nfollow_interval = 1e300\n", "follow_interval.*86400"),
    "a trimming time that is too long": (GOOD + "[publisher_service]\nkeep_time = 1e30\n", "keep_time"),
    "a group with a hyphen": (GOOD + "[publisher-service]\nlease = 3\n", r"did you mean \[publisher_service\]\?"),
    "a group in capitals": (GOOD + "[PubSub]\ntopics = a\n", r"did you mean \[pubsub\]\?"),
    "a driver's group with a hyphen": (GOOD + "[pubsub-ipc]\nbuffer = 1\n", r"did you mean \[pubsub_ipc\]\?"),
    "an ipc address without a file": (
        GOOD + "publisher_transport = ipc\n",
        "publisher_bind_address to an absolute path",
    ),
    "version 6 without brackets": (GOOD + "publisher_bind_address = ::1\n", r"brackets: \[::1\]"),
    "version 6 among several": (GOOD + "publishers_ips = 10.0.0.1,fe80::1\n", r"publishers_ips.*\[fe80::1\]"),
    "no address": (GOOD + "publisher_bind_address = 300.1.1.1\n", "'300.1.1.1', not a valid IP address"),
    "syncs without an endpoint": (
        GOOD + "[publisher_service]\nserve_syncs = true\nmetrics_port = 0\n",
        "serve_syncs = true .* needs the service's HTTP endpoint; set metrics_port",
    ),
    "syncs beside keys": (
        GOOD + "keys = true\n[publisher_service]\nserve_syncs = true\n",
        "serve_syncs = true .* read all objects, which keys = true is to prevent",
    ),
    "syncs for other hosts": (
        GOOD + "[publisher_service]\nserve_syncs = true\nmetrics_address = 10.0.0.1\n",
        "others could reach http://10.0.0.1:8867",
    ),
    "a service without the database": (
        GOOD.replace("store_url = sqlite:///net.db", "sync_url = http://127.0.0.1:8867"),
        "an origin service sends the changes in the database, but store_url is missing in .pubsub.; .*role = relay",
    ),
    "a service with parents alone": (
        GOOD.replace("store_url = sqlite:///net.db", "parents = tcp://10.0.0.7:8866"),
        "an origin service sends the changes in the database, but store_url is missing in .pubsub.; .*role = relay",
    ),
    "a free port at a fixed address": (
        GOOD + "publisher_port = 0\n[publisher_service]\naddress = tcp://10.0.0.1:8866\n",
        "address in .* is tcp://10.0.0.1:8866, but publisher_port = 0 has another port at each start",
    ),
    "a fixed port at a free address": (
        GOOD + "[publisher_service]\naddress = tcp://10.0.0.1:0\n",
        "address in .* is tcp://10.0.0.1:0, but publisher_port in .pubsub. is not 0",
    ),
    "a relay that sends replicas to any port": (RELAY + "drain_to = tcp://relay-8:0\n", "which is no address"),
    "one port twice": (
        GOOD + "[publisher_service]\nmetrics_port = 8866\n",
        "metrics_port .* publisher_port .* both 8866",
    ),
    "a database that is only read": (
        GOOD.replace("sqlite:///net.db", "sqlite:///file:/x/net.db?mode=ro&uri=true"),
        "the SQLite file '/x/net.db' of store_url is opened with mode=ro",
    ),
    "a database that never changes": (
        GOOD.replace("sqlite:///net.db", "sqlite:///file:/x/net.db?immutable=1&uri=true"),
        "the SQLite file '/x/net.db' of store_url is opened with immutable=1",
    ),
    "of the hop": (GOOD + "[pubsub_ipc]\nwhen_full = drop\n", "'when_full' in group .pubsub_ipc."),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_wrong_option_is_named(case: str, tmp_path: Path) -> None:
    text, sentence = WRONG[case]
    with pytest.raises(ConfigError, match=sentence) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert "LocationInfo" not in str(caught.value)


def test_one_port_on_two_addresses_is_accepted(tmp_path: Path) -> None:
    both = "publisher_bind_address = 10.0.0.1\ninsecure = true\n[publisher_service]\nmetrics_port = 8866\n"
    assert read(tmp_path, GOOD + both).metrics_port == 8866


def test_service_with_keys_may_listen_where_others_reach_it(tmp_path: Path) -> None:
    text = GOOD + "publisher_bind_address = 10.0.0.1\n"
    with pytest.raises(ConfigError, match="there are no keys"):
        read(tmp_path, text)
    assert read(tmp_path, text + "keys = true\n").address == "tcp://10.0.0.1:8866"
    open_metrics = "keys = true\n[publisher_service]\nmetrics_address = 10.0.0.1\n"
    with pytest.raises(ConfigError, match=r"http://10.0.0.1:\d+ \(metrics_address"):
        read(tmp_path, text + open_metrics)


@pytest.mark.parametrize("address", ["[::1]", "host.example", "10.0.0.1"])
def test_addresses_before_a_port_are_accepted(address: str, tmp_path: Path) -> None:
    assert (
        read(tmp_path, GOOD + f"publisher_bind_address = {address}\ninsecure = true\n").address
        == f"tcp://{address}:8866"
    )


@pytest.mark.parametrize(
    ("bound", "reached"),
    [
        ("tcp://*:8866", "tcp://10.0.0.9:8866"),
        ("tcp://0.0.0.0:8866", "tcp://10.0.0.9:8866"),
        ("tcp://[::]:8866", "tcp://10.0.0.9:8866"),
        ("tcp://10.0.0.1:99", "tcp://10.0.0.1:99"),
        ("ipc:///run/x", "ipc:///run/x"),
    ],
)
def test_wildcard_is_replaced_in_the_directorys_address(bound: str, reached: str) -> None:
    assert reachable(bound, "10.0.0.9") == reached


def test_driver_that_binds_no_address_has_no_derived_one(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD + "pub_sub_driver = memory\n").address == ""
    given = GOOD + "pub_sub_driver = memory\n[publisher_service]\naddress = memory://here\n"
    assert read(tmp_path, given).address == "memory://here"


def test_given_address_is_used(tmp_path: Path) -> None:
    text = GOOD + "[publisher_service]\naddress = tcp://public:1\n"
    assert read(tmp_path, text).address == "tcp://public:1"


@pytest.mark.parametrize(
    ("address", "warned"), [("tcp://127.0.0.1:1", True), ("tcp://localhost:1", True), ("tcp://10.0.0.1:1", False)]
)
def test_loopback_address_is_warned_of(
    address: str, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read(tmp_path, GOOD + f"[publisher_service]\naddress = {address}\n")
    assert (f"other hosts cannot reach this service: the directory will name it as {address}" in caplog.text) is warned
    caplog.clear()
    read(tmp_path, BARE.replace("topics", "parents = tcp://10.0.0.1:8866\ntopics") + f"address = {address}\n")
    assert (f"this service: pubsub-db agents will name it as {address}" in caplog.text) is warned
    assert "directory" not in caplog.text


def test_empty_metrics_address_is_refused(tmp_path: Path) -> None:
    """It would bind every interface."""
    with pytest.raises(ConfigError, match=r"\[publisher_service\] cannot be used: .*metrics_address"):
        read(tmp_path, GOOD + "[publisher_service]\nmetrics_address =\n")
