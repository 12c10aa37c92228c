"""The service's own options: every wrong value is one sentence that names it."""

from pathlib import Path

import pytest

from pubsub_lib import options
from pubsub_lib.errors import ConfigError
from pubsub_lib.service.settings import ServiceSettings, load, reachable

GOOD = "[pubsub]\nstore_url = sqlite:///net.db\nenable_pub_sub = true\npub_sub_driver = memory\nservice_name = api-1\n"


def read(tmp_path: Path, text: str) -> ServiceSettings:
    path = tmp_path / "net.conf"
    path.write_text(text)
    return load(path)[1]


def test_defaults_are_the_options_defaults(tmp_path: Path) -> None:
    fields = {name: getattr(ServiceSettings(), name) for name in ServiceSettings.__struct_fields__}
    assert {option.name: option.default for option in options.SERVICE} == fields
    assert read(tmp_path, GOOD) == ServiceSettings(address="tcp://127.0.0.1:8866")


def test_both_settings_come_from_one_file(tmp_path: Path) -> None:
    path = tmp_path / "net.conf"
    path.write_text(GOOD + "[publisher_service]\nlease = 3\nkeep_links = 7\n[pubsub_ipc]\nbuffer = 5\n")
    settings, service = load(path)
    assert (settings.service, settings.driver) == ("api-1", "memory")
    assert settings.for_multiproc().options["buffer"] == 5
    assert settings.for_multiproc().bind_address == "ipc:///var/run/zmq_pubsub/zmq-publisher-socket"
    assert (service.lease, service.keep_links) == (3.0, 7)


WRONG = {
    "no name": (GOOD.replace("service_name = api-1", ""), "set service_name"),
    "off": (GOOD.replace("enable_pub_sub = true", ""), "set enable_pub_sub = true"),
    "below 0": (GOOD + "[publisher_service]\nlease = -1\n", "'lease' in group .publisher_service."),
    "not finite": (GOOD + "[publisher_service]\ngrace = nan\n", "grace"),
    "without end": (
        GOOD + "[publisher_service]\ntrim_interval = inf\n",
        "'trim_interval' .* is inf but must be finite",
    ),
    "a dollar": (GOOD + "[publisher_service]\naddress = tcp://$x\n", r"'address' in group .*write \$\$"),
    "a word": (GOOD + "[publisher_service]\nmetrics_port = many\n", "'metrics_port' in group"),
    "unknown": (GOOD + "[publisher_service]\nlaese = 1\n", "unknown option 'laese'.*did you mean 'lease'"),
    "hyphens, which nobody reads": (GOOD + "[publisher_service]\nkeep-links = 1\n", "did you mean 'keep_links'"),
    "of the hop": (GOOD + "[pubsub_ipc]\nwhen_full = drop\n", "'when_full' in group .pubsub_ipc."),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_a_wrong_option_is_named(case: str, tmp_path: Path) -> None:
    text, sentence = WRONG[case]
    with pytest.raises(ConfigError, match=sentence) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


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
def test_a_wildcard_is_not_what_replicas_connect_to(bound: str, reached: str) -> None:
    assert reachable(bound, "10.0.0.9") == reached


def test_an_address_that_is_given_is_taken(tmp_path: Path) -> None:
    text = GOOD + "[publisher_service]\naddress = tcp://public:1\n"
    assert read(tmp_path, text).address == "tcp://public:1"


@pytest.mark.parametrize(
    ("address", "warned"), [("tcp://127.0.0.1:1", True), ("tcp://localhost:1", True), ("tcp://10.0.0.1:1", False)]
)
def test_an_address_that_only_this_host_can_reach_is_warned_of(
    address: str, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read(tmp_path, GOOD + f"[publisher_service]\naddress = {address}\n")
    assert (f"other hosts cannot reach this service: the directory will name it as {address}" in caplog.text) is warned
