"""Settings: the error for an invalid value is one sentence that names it; a file and Python give the same settings."""

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from oslo_config import cfg

from pubsub_lib import loader
from pubsub_lib.config import options
from pubsub_lib.config.pubsub import GROUP
from pubsub_lib.core.handler_queue import HandlerPolicy
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import ConfigError, DriverError
from pubsub_lib.settings import Settings

URL = "sqlite:///net.db"


def read(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "net.conf"
    path.write_text(text)
    return Settings.from_file(path)


def test_a_url_is_enough() -> None:
    got = Settings(store_url=URL)
    assert got.driver == "db_polling_pubsub_driver"
    assert got.timing == Timing()
    assert got.limits == Limits()
    assert got.handling == HandlerPolicy(queue_limit=10_000, tries=5)


def test_a_file_with_a_url_gives_the_same(tmp_path: Path) -> None:
    got = read(tmp_path, f"[pubsub]\nstore_url = {URL}\n")
    assert msgspec.structs.replace(got, driver_options={}) == Settings(store_url=URL)
    assert got.driver_options["slowest"] == 1.0


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Settings(store_url=URL).driver = "memory"  # type: ignore[misc]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "empty url": ({"store_url": ""}, "store_url"),
    "url is not text": ({"store_url": 5}, "store_url"),
    "driver empty": ({"driver": ""}, "the setting driver is ''"),
    "topics a string": ({"topics": "tenant-1"}, "topics"),
    "topic empty": ({"topics": ("",)}, "topic is empty"),
    "topic with NUL": ({"topics": ("a\0",)}, "NUL"),
    "service too long": ({"service_name": "s" * 256}, "service name"),
    "replica with NUL": ({"replica_name": "a\0"}, "the replica name .* holds a NUL"),
    "announces all the time": ({"announce_interval": 0.01}, "announce_interval is 0.01 s, below the minimum of 0.1 s"),
    "announces too rarely": ({"announce_interval": 601.0}, "announce_interval is 601.0 but must be: .* <= 600"),
    "time zero": ({"timing": Timing(max_idle_time=0)}, "timing.max_idle_time is 0 but must be: .* >= 0.001"),
    "time not finite": ({"timing": Timing(max_idle_time=float("nan"))}, "timing.max_idle_time is nan"),
    "times contradict": ({"timing": Timing(sync_backoff=60)}, "max_sync_backoff"),
    "limit zero": ({"limits": Limits(max_frame_bytes=0)}, "limits.max_frame_bytes is 0"),
    "value beyond frame": ({"limits": Limits(max_value_bytes=2**20)}, "max_frame_bytes"),
    "tries zero": ({"handling": HandlerPolicy(tries=0)}, "handling.tries is 0"),
    "backoffs contradict": ({"handling": HandlerPolicy(backoff=60)}, "handler_max_backoff"),
    "port of metrics beyond": ({"replica_metrics_port": 70000}, "replica_metrics_port is 70000"),
    "address of metrics empty": ({"replica_metrics_address": ""}, "replica_metrics_address is ''"),
    "discovery never": ({"discovery_interval": float("inf")}, "discovery_interval is inf but must be"),
    "discovery is not a number": ({"discovery_interval": float("nan")}, "discovery_interval is nan"),
    "paranoid a word": ({"paranoid": "yes"}, "paranoid is 'yes'"),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_an_invalid_setting_is_named(case: str) -> None:
    changed, sentence = WRONG[case]
    with pytest.raises(ConfigError, match=sentence) as caught:
        Settings(**{"store_url": URL, **changed})
    assert "\n" not in str(caught.value)


def test_group_commit_of_a_host_needs_a_socket(tmp_path: Path) -> None:
    text = f"[pubsub]\nstore_url = {URL}\ngroup_commit = host\n"
    assert read(tmp_path, f"{text}enable_pub_sub = true\n").group_commit == "host"
    for more in ("", "enable_pub_sub = true\npub_sub_use_multiproc = false\n"):
        with pytest.raises(ConfigError, match="group_commit = host needs the socket of the host's publisher service"):
            read(tmp_path, text + more)


def test_parents_are_addresses_without_repetition(tmp_path: Path) -> None:
    one, two = "tcp://10.0.0.1:8866", "tcp://10.0.0.2:8866"
    got = read(tmp_path, f"[pubsub]\nstore_url = {URL}\nenable_pub_sub = true\nparents = {one}, {two}\n")
    assert got.parents == (one, two)
    assert got.needs() == {"cross_host": f"the address {one}"}
    with pytest.raises(ConfigError, match=r"parents names '10.0.0.1', which is no address; write it as tcp://"):
        Settings(store_url=URL, parents=("10.0.0.1",))
    with pytest.raises(ConfigError, match="twice"):
        Settings(store_url=URL, parents=(one, one))


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(store_url=b"postgresql://me:secret@host/db")  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


WRONG_FILES = {
    "no url": ("[pubsub]\n", "'store_url' in group .pubsub. is missing"),
    "port is a word": ("[pubsub]\nstore_url = x\npublisher_port = many\n", "'publisher_port' in group .pubsub.*many"),
    "a free port without the directory": (
        "[pubsub]\nstore_url = x\nenable_pub_sub = true\npublisher_port = 0\ndiscovery_interval = 0\n",
        "with publisher_port = 0 replicas find publishers in the directory only; set discovery_interval",
    ),
    "a parent without its port": ("[pubsub]\nstore_url = x\nparents = tcp://10.0.0.1:0\n", "which is no address.*port"),
    "port out of range": ("[pubsub]\nstore_url = x\npublisher_port = 70000\n", "publisher_port"),
    "time below 0": ("[pubsub]\nstore_url = x\nmax_idle_time = -1\n", "max_idle_time"),
    "time not finite": (
        "[pubsub]\nstore_url = x\nmax_idle_time = inf\n",
        "'max_idle_time' in group .* equal to 3000000000;",
    ),
    "time beyond a timer": (
        "[pubsub]\nstore_url = x\nhandler_max_backoff = 1e300\n",
        "'handler_max_backoff' in group",
    ),
    "time is not a number": (
        "[pubsub]\nstore_url = x\nstore_lock_timeout = nan\n",
        "'store_lock_timeout' in group .* is nan but",
    ),
    "time beyond the servers'": (
        "[pubsub]\nstore_url = x\nstore_lock_timeout = 1e7\n",
        "'store_lock_timeout' in group",
    ),
    "count beyond": ("[pubsub]\nstore_url = x\nstore_pool_size = 99999999999\n", "'store_pool_size' in group"),
    "switch neither on nor off": ("[pubsub]\nstore_url = x\nenable_pub_sub = maybe\n", "enable_pub_sub"),
    "unknown option": (
        "[pubsub]\nstore_url = x\nmax_idel_time = 1\n",
        "unknown option 'max_idel_time'.*'max_idle_time'",
    ),
    "hyphens, which are not read": (
        "[pubsub]\nstore_url = x\nmax-idle-time = 1\n",
        "unknown option 'max-idle-time'.*'max_idle_time'",
    ),
    "unknown option of a driver": ("[pubsub]\nstore_url = x\n[pubsub_sql]\nx = 1\n", "'x' in group .pubsub_sql."),
    "unknown option of a driver that is not in use": (
        "[pubsub]\nstore_url = x\n[pubsub_ipc]\nbufer = 1\n",
        "unknown option 'bufer' in group .pubsub_ipc.*'buffer'",
    ),
    "driver's option is a word": ("[pubsub]\nstore_url = x\n[pubsub_sql]\nslowest = low\n", "'slowest' in group"),
    "not INI": ("pubsub]\nx", "cannot be read"),
    "unknown substitution": ("[pubsub]\nstore_url = $nothing\n", r"'store_url' in group .pubsub. .*write \$\$"),
}


@pytest.mark.parametrize("case", sorted(WRONG_FILES))
def test_an_invalid_option_is_named(case: str, tmp_path: Path) -> None:
    text, sentence = WRONG_FILES[case]
    with pytest.raises(ConfigError, match=sentence) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("end", ["min", "max"])
def test_the_ends_of_every_range_are_accepted(end: str, tmp_path: Path) -> None:
    ends = {each.name: getattr(each.type, end, None) for each in options.OPTIONS}
    # A frame must have room for a value.
    ends |= {"max_value_bytes": 1, "max_frame_bytes": 4097}
    lines = [f"{name} = {value!r}" for name, value in ends.items() if value is not None]
    got = read(tmp_path, "\n".join(["[pubsub]", f"store_url = {URL}", *lines]))
    assert got.store.lock_timeout == ends["store_lock_timeout"]
    assert got.timing.max_idle_time == ends["max_idle_time"]


def test_a_dollar_in_a_password_is_written_twice_and_never_shown(tmp_path: Path) -> None:
    assert read(tmp_path, "[pubsub]\nstore_url = postgresql://me:pa$$word@db/net\n").store_url.endswith(
        ":pa$word@db/net"
    )
    with pytest.raises(ConfigError, match=r"write \$\$ for a dollar sign") as caught:
        read(tmp_path, "[pubsub]\nstore_url = postgresql://me:pa$word@db/net\n")
    assert "word" not in str(caught.value)


@pytest.mark.parametrize("name", ["missing.conf", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Settings.from_file(tmp_path / name)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.conf"
    path.write_bytes(b"[pubsub]\nstore_url = \xff\xfe\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        Settings.from_file(path)


def test_a_replica_serves_its_metrics_at_the_configured_address(tmp_path: Path) -> None:
    assert read(tmp_path, f"[pubsub]\nstore_url = {URL}\n").replica_metrics_port == 0
    got = read(
        tmp_path,
        f"[pubsub]\nstore_url = {URL}\nreplica_metrics_port = 8868\nreplica_metrics_address = 10.0.0.9\n",
    )
    assert (got.replica_metrics_address, got.replica_metrics_port) == ("10.0.0.9", 8868)


def test_pub_sub_off_selects_the_polling_driver(tmp_path: Path) -> None:
    got = read(tmp_path, f"[pubsub]\nstore_url = {URL}\npub_sub_driver = zmq_pubsub_driver\n")
    assert (got.driver, got.multiproc_driver, got.addresses) == ("db_polling_pubsub_driver", "", ())


def test_pub_sub_on_reads_the_specs_options(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        f"[pubsub]\nstore_url = {URL}\nenable_pub_sub = true\npub_sub_driver = memory\nlocal_ip = 10.0.0.9\n"
        "publishers_ips = $local_ip, 10.0.0.1\npublisher_bind_address = 10.0.0.9\nservice_name = api-1\n"
        "topics = a, b\nhandler_queue_limit = 7\nmax_idle_time = 9\nmax_waiting_links = 8\n"
        "[pubsub_memory]\nbus = left\n",
    )
    assert got.driver == "memory"
    assert got.driver_options["bus"] == "left"
    assert got.addresses == ("tcp://10.0.0.9:8866", "tcp://10.0.0.1:8866")
    assert got.bind_address == "tcp://10.0.0.9:8866"
    assert got.multiproc_driver == "zmq_pubsub_multiproc_driver"
    assert got.multiproc_socket == "/var/run/zmq_pubsub/zmq-publisher-socket"
    assert (got.service_name, got.topics) == ("api-1", ("a", "b"))
    assert (got.handling.queue_limit, got.timing.max_idle_time, got.limits.max_waiting_links) == (7, 9.0, 8)
    assert got.for_driver().options["bus"] == "left"


def test_workers_send_by_themselves_without_multiproc(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        f"[pubsub]\nstore_url = {URL}\nenable_pub_sub = true\npub_sub_driver = memory\npub_sub_use_multiproc = off\n",
    )
    assert (got.multiproc_driver, got.multiproc_socket) == ("", "")


def test_a_dragonflow_file_is_still_read(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        "[df]\nenable_df_pub_sub = true\npub_sub_driver = memory\nlocal_ip = 10.0.0.9\npublisher_port = 99\n"
        f"some_option_of_dragonflow = 1\n[pubsub]\nstore_url = {URL}\n",
    )
    assert (got.driver, got.addresses) == ("memory", ("tcp://10.0.0.9:99",))


@pytest.mark.parametrize(("insecure", "bound"), [("false", "tcp://127.0.0.1:8866"), ("true", "tcp://*:8866")])
@pytest.mark.parametrize("name", ["", "service_name = api-1\n"], ids=["replica", "publisher"])
def test_every_interface_is_bound_only_when_insecure_and_a_publisher_is_warned(
    tmp_path: Path, insecure: str, bound: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "pubsub_lib.config.pubsub"):
        got = read(
            tmp_path,
            f"[pubsub]\nstore_url = {URL}\n{name}enable_pub_sub = true\ninsecure = {insecure}\n",
        )
    assert got.bind_address == bound
    assert ("loopback only" in caplog.text) == (insecure == "false" and name != "")


@pytest.mark.parametrize("wildcard", ["*", "0.0.0.0", "[::]", "[::0]", "[0:0:0:0:0:0:0:0]"])
@pytest.mark.parametrize(
    ("local_ip", "bound"),
    [
        ("10.0.0.5", "tcp://10.0.0.5:8866"),
        ("[fe80::5]", "tcp://[fe80::5]:8866"),
        ("127.0.0.1", "tcp://127.0.0.1:8866"),
        ("host-5.example", "tcp://127.0.0.1:8866"),
    ],
)
def test_without_keys_a_wildcard_binds_the_address_of_this_host_alone(
    tmp_path: Path, wildcard: str, local_ip: str, bound: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With publishers_ips = $local_ip other hosts connect to this address, so loopback would be wrong."""
    with caplog.at_level(logging.WARNING, "pubsub_lib.config.pubsub"):
        got = read(
            tmp_path,
            f"[pubsub]\nstore_url = {URL}\nservice_name = x\nenable_pub_sub = true\nlocal_ip = {local_ip}\n"
            f"publisher_bind_address = {wildcard}\n",
        )
    assert got.bind_address == bound
    assert ("loopback only" if "127" in bound else f"local_ip ({local_ip}) only") in caplog.text


@pytest.mark.parametrize(
    ("lines", "warned"),
    [
        ("pub_sub_driver = nats_pubsub_driver\n", True),
        ("[df]\npub_sub_driver = zmq_pubsub_driver\n", True),
        ("pub_sub_driver = nats_pubsub_driver\nenable_pub_sub = true\n", False),
        ("pub_sub_driver = db_polling_pubsub_driver\n", False),
        ("", False),
    ],
)
def test_driver_without_enable_pub_sub_is_warned_of(
    lines: str, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read(tmp_path, f"[pubsub]\nstore_url = {URL}\n{lines}")
    assert ("but enable_pub_sub is false, so replicas poll the database" in caplog.text) is warned


def test_driver_of_the_environment_without_enable_pub_sub_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_PUBSUB__PUB_SUB_DRIVER", "memory")
    read(tmp_path, f"[pubsub]\nstore_url = {URL}\n")
    assert "pub_sub_driver is 'memory' but enable_pub_sub is false" in caplog.text


@pytest.mark.parametrize("driver", ["nats_pubsub_driver", "pgnotify_pubsub_driver", "redis_pubsub_driver", "memory"])
def test_publisher_that_binds_nothing_is_not_warned_of_its_address(
    driver: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"[pubsub]\nstore_url = {URL}\nservice_name = x\nenable_pub_sub = true\npub_sub_driver = {driver}\n"
    assert read(tmp_path, text).driver == driver
    assert "publisher_bind_address" not in caplog.text


@pytest.mark.parametrize("ip", ["*", "0.0.0.0", "[::]", "[::0]"])
def test_a_wildcard_in_publishers_ips_is_refused(ip: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'publishers_ips' .*to which no replica can connect"):
        read(tmp_path, f"[pubsub]\nstore_url = {URL}\nenable_pub_sub = true\npublishers_ips = 10.0.0.1, {ip}\n")


@pytest.mark.parametrize(
    ("group", "meant"),
    [("publisher_servce", "publisher_service"), ("pubsb", "pubsub"), ("pubsub_zqm", "pubsub_zmq"), ("DF", "df")],
)
def test_a_group_with_a_typo_is_named(group: str, meant: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"unknown group \[{group}\]; did you mean \[{meant}\]"):
        read(tmp_path, f"[pubsub]\nstore_url = {URL}\n[{group}]\nx = 1\n")


def test_the_environment_takes_precedence_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_PUBSUB__STORE_URL", "sqlite:///other.db")
    assert read(tmp_path, f"[pubsub]\nstore_url = {URL}\n").store_url == "sqlite:///other.db"


def test_an_unknown_driver_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="the driver 'carrier_pigeon' is not installed"):
        read(tmp_path, f"[pubsub]\nstore_url = {URL}\nenable_pub_sub = true\npub_sub_driver = carrier_pigeon\n")


def test_conf_is_passed_in_and_the_global_one_is_left_alone() -> None:
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf(args=[], project="x", default_config_files=[], default_config_dirs=[])
    conf.set_override("store_url", URL, GROUP)
    assert Settings.from_conf(conf).store_url == URL
    assert GROUP not in cfg.CONF


@pytest.mark.parametrize(
    ("address", "needed"),
    [
        ("tcp://10.0.0.1:8866", {"cross_host"}),
        ("tcp://[fe80::1]:8866", {"cross_host"}),
        ("tcp://net.example:8866", {"cross_host"}),
        ("tcp://*:8866", {"cross_host"}),
        ("ipc:///run/net.sock", {"cross_process"}),
        ("tcp://127.0.0.1:8866", set()),
        ("tcp://[::1]:8866", set()),
        ("tcp://localhost:8866", set()),
        ("memory://left", set()),
    ],
)
def test_needs_follow_from_the_addresses(address: str, needed: set[str]) -> None:
    for settings in (Settings(store_url=URL, addresses=(address,)), Settings(store_url=URL, bind_address=address)):
        assert set(settings.needs()) == needed
        assert all(address in asker for asker in settings.needs().values())


def test_a_driver_within_one_process_is_refused_for_another_host() -> None:
    settings = Settings(store_url=URL, driver="memory", addresses=("tcp://10.0.0.1:8866",))
    with pytest.raises(DriverError, match="'memory' lacks the capability 'cross_host', needed by the address tcp://10"):
        loader.load(settings.driver, settings.needs())


def test_a_line_that_cannot_be_read_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="store_url") as caught:
        read(tmp_path, "[pubsub]\nstore_url postgresql://me:tOpSeCrEt@db/net\n")
    assert "tOpSeCrEt" not in str(caught.value)


def test_with_keys_a_replica_gets_addresses_from_the_directory_only(tmp_path: Path) -> None:
    text = f"[pubsub]\nstore_url = {URL}\nenable_pub_sub = true\nclient_key_file = a.key\nkeys = "
    got = read(tmp_path, text + "true\n")
    assert got.addresses != ()
    assert got.for_driver().addresses == got.fixed_addresses == ()
    assert (got.for_driver().keys, got.for_driver().client_key_file) == (True, "a.key")
    assert got.needs()["keys"] == "keys = true in [pubsub]"
    without = read(tmp_path, text + "false\n")
    assert without.for_driver().addresses == without.fixed_addresses == got.addresses
    assert "keys" not in without.needs()
    with pytest.raises(ConfigError, match="set discovery_interval"):
        read(tmp_path, text + "true\ndiscovery_interval = 0\n")


def test_keys_are_not_needed_while_replicas_poll(tmp_path: Path) -> None:
    assert not read(tmp_path, f"[pubsub]\nstore_url = {URL}\nkeys = true\n").keys
