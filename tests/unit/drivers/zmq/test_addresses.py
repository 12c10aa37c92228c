"""Invalid addresses are refused early, and addresses are compared as ZeroMQ's monitor writes them."""

from pathlib import Path

import pytest

from pubsub_lib.errors import ConfigError, TransportError
from pubsub_zmq import addresses


@pytest.mark.parametrize(
    "address", ["tcp://10.0.0.1:8866", "tcp://host.example:1", "tcp://[::1]:65535", "ipc:///run/x/socket"]
)
def test_valid_addresses_are_accepted(address: str) -> None:
    addresses.check(address)
    addresses.check(address, bind=True)


@pytest.mark.parametrize("address", ["tcp://*:8866", "tcp://127.0.0.1:*", "tcp://127.0.0.1:0"])
def test_wildcards_are_valid_only_for_binding(address: str) -> None:
    addresses.check(address, bind=True)
    with pytest.raises(ConfigError, match="is not tcp://host:port"):
        addresses.check(address)


@pytest.mark.parametrize(
    "address",
    [
        "", "tcp", "10.0.0.1:8866", "udp://10.0.0.1:1", "tcp://:8866", "tcp://host", "tcp://host:", "tcp://host:65536",
        "tcp://host:-1", "tcp://host:٣", "tcp://ho st:1", "tcp://host/x:1", "ipc://", f"ipc:///{'x' * 107}",
        "ipc:///a\0b", "ipc://@abstract", "ipc:///\ud800",
    ],
)  # fmt: skip
def test_invalid_address_is_named_in_the_error(address: str) -> None:
    for bind in (False, True):
        with pytest.raises(ConfigError) as caught:
            addresses.check(address, bind=bind)
        assert repr(address) in str(caught.value)


def test_an_ipc_path_may_have_107_bytes() -> None:
    addresses.check(f"ipc:///{'x' * 106}")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("tcp://10.0.0.1:1", "tcp://host:1", True),
        ("tcp://10.0.0.1:1", "tcp://10.0.0.2:01", True),
        ("tcp://host:1", "tcp://host:2", False),
        ("ipc:///a", "ipc:///a", False),
        ("ipc:///a:1", "tcp://host:1", False),
    ],
)
def test_same_port(one: str, other: str, same: bool) -> None:
    assert addresses.same_port(one, other) is addresses.same_port(other, one) is same


@pytest.mark.parametrize(
    ("address", "fixed"),
    [
        ("tcp://10.0.0.1:1", True),
        ("tcp://10.0.0.1:01", False),
        ("tcp://10.1:1", False),
        ("tcp://host:1", False),
        ("tcp://[::1]:1", False),
        ("ipc:///a", True),
    ],
)
def test_is_fixed_is_true_for_addresses_that_the_monitor_keeps(address: str, fixed: bool) -> None:
    assert addresses.is_fixed(address) is fixed


def test_only_an_ipc_address_is_locked(tmp_path: Path) -> None:
    assert addresses.lock_of("tcp://127.0.0.1:8866") is None
    first = addresses.lock_of(f"ipc://{tmp_path}/socket")
    assert first is not None
    with pytest.raises(TransportError, match="or set publisher_bind_address to another path"):
        addresses.lock_of(f"ipc://{tmp_path}/socket")
    first.release()
