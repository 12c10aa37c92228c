"""The spec's options: the driver and the addresses that follow from them."""

from typing import Any

import pytest

from pubsub_lib.config.pubsub import PubSubSettings
from pubsub_lib.errors import ConfigError


def on(**given: Any) -> PubSubSettings:
    return PubSubSettings(enable_pub_sub=True, **{"publishers_ips": ("10.0.0.1",), **given})


def test_without_pub_sub_replicas_poll_and_nothing_is_bound() -> None:
    off = PubSubSettings()
    assert off.driver == "db_polling_pubsub_driver"
    assert (off.multiproc_driver, off.multiproc_socket, off.addresses, off.bind_address) == ("", "", (), "")


def test_with_pub_sub_addresses_are_made_of_transport_host_and_port() -> None:
    made = on(publishers_ips=("10.0.0.1", "10.0.0.2"), publisher_port=99, publisher_bind_address="10.0.0.1")
    assert made.addresses == ("tcp://10.0.0.1:99", "tcp://10.0.0.2:99")
    assert made.bind_address == "tcp://10.0.0.1:99"
    assert made.multiproc_socket == "/var/run/zmq_pubsub/zmq-publisher-socket"


def test_without_multiproc_workers_have_no_socket() -> None:
    made = on(pub_sub_use_multiproc=False)
    assert (made.multiproc_driver, made.multiproc_socket) == ("", "")


@pytest.mark.parametrize(
    ("local_ip", "bound"),
    [("10.0.0.5", "tcp://10.0.0.5:8866"), ("fe80::5", "tcp://[fe80::5]:8866"), ("host", "tcp://127.0.0.1:8866")],
)
def test_a_wildcard_binds_local_ip_unless_insecure(local_ip: str, bound: str) -> None:
    assert on(local_ip=local_ip).bind_address == bound
    assert on(local_ip=local_ip, insecure=True).bind_address == "tcp://*:8866"
    assert on(local_ip=local_ip, keys=True).bind_address == "tcp://*:8866"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"publishers_ips": ("*",)}, "no replica can connect"),
        ({"publishers_ips": ("fe80::1",)}, r"put it into brackets: \[fe80::1\]"),
        ({"publishers_ips": ("10.0.0.300",)}, "not a valid IP address"),
        ({"publisher_bind_address": "10.0.0"}, "not a valid IP address"),
    ],
)
def test_wrong_host_is_refused_by_the_name_of_its_option(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        on(**given).check()
    assert next(iter(given)) in str(caught.value)


def test_port_0_is_bound_and_no_replica_connects_to_it() -> None:
    made = PubSubSettings(enable_pub_sub=True, local_ip="10.0.0.1", publishers_ips=("10.0.0.1",), publisher_port=0)
    made.check()
    assert made.addresses == ()
    assert made.bind_address == "tcp://10.0.0.1:0"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"publishers_ips": ("10.0.0.1", "10.0.0.2")}, "publishers_ips .* names 10.0.0.1, 10.0.0.2, but with"),
        ({"publisher_transport": "ipc"}, "asks for a free TCP port, but publisher_transport is 'ipc'"),
    ],
)
def test_port_0_that_no_replica_could_find_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        on(local_ip="10.0.0.1", publisher_port=0, **given).check()
    PubSubSettings(publisher_port=0, **given).check()


def test_another_transport_may_have_any_host() -> None:
    on(publisher_transport="ipc", publishers_ips=("fe80::1",)).check()
