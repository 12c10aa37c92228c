"""Addresses whose port the system chooses."""

import pytest

from pubsub_lib.errors import TransportError
from pubsub_lib.free_port import has_free_port, with_bound_port


@pytest.mark.parametrize(
    ("address", "free"),
    [
        ("tcp://10.0.0.1:0", True),
        ("tcp://[::1]:0", True),
        ("tcp://*:0", True),
        ("tcp://10.0.0.1:8866", False),
        ("tcp://10.0.0.1:80", False),
        ("ipc:///run/net:0", False),
        ("", False),
    ],
)
def test_port_0_of_tcp_is_free(address: str, free: bool) -> None:
    assert has_free_port(address) is free


def test_bound_port_takes_the_place_of_0_alone() -> None:
    assert with_bound_port("tcp://10.0.0.1:0", "tcp://0.0.0.0:40001") == "tcp://10.0.0.1:40001"
    assert with_bound_port("tcp://[::1]:0", "tcp://[::1]:40001") == "tcp://[::1]:40001"
    assert with_bound_port("tcp://10.0.0.1:8866", "tcp://0.0.0.0:40001") == "tcp://10.0.0.1:8866"
    assert with_bound_port("ipc:///run/net:0", "") == "ipc:///run/net:0"


@pytest.mark.parametrize("bound", ["", "tcp://0.0.0.0:0", "ipc:///run/net", "tcp://0.0.0.0"])
def test_unknown_port_is_one_sentence(bound: str) -> None:
    with pytest.raises(TransportError, match=r"does not name the port that it bound for tcp://10\.0\.0\.1:0"):
        with_bound_port("tcp://10.0.0.1:0", bound)
