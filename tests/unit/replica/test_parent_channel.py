"""The URL of a parent's sync channel: the port of its hellos, at the host of its configured address."""

import logging

import pytest

from pubsub_lib.replica.parent_channel import LOOK_AGAIN, ParentChannel, host_of, left_server
from pubsub_lib.sync.client import Busy


class Parent:
    def __init__(self, address: str = "tcp://10.0.0.7:8866", port: int = 0) -> None:
        self.channel = self.left_channel = address, port


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("tcp://10.0.0.7:8866", "10.0.0.7"),
        ("tcp://relay-7:8866", "relay-7"),
        ("tcp://[fd00::7]:8866", "fd00::7"),
        ("ipc:///run/net:8866", "127.0.0.1"),
        ("memory://bus", "127.0.0.1"),
    ],
)
def test_host_is_that_of_the_parents_address(address: str, host: str) -> None:
    assert host_of(address) == host


def test_port_of_the_hello_is_used_at_the_parents_host() -> None:
    assert [str(each) for each in ParentChannel(Parent(port=9))()] == ["http://10.0.0.7:9/sync"]
    assert [str(each) for each in ParentChannel(Parent("tcp://[::1]:8866", 9))()] == ["http://[::1]:9/sync"]


def test_left_server_is_at_the_left_parents_host() -> None:
    assert left_server(Parent("tcp://[::1]:8866", 9)) == ("::1", 9)


def test_parent_without_a_channel_is_one_sentence() -> None:
    with pytest.raises(Busy, match=r"the parent at tcp://10\.0\.0\.7:8866 has named no sync channel") as caught:
        ParentChannel(Parent())()
    assert caught.value.seconds == LOOK_AGAIN, "the next look costs nothing"


def test_channel_that_is_not_encrypted_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    parent = Parent(port=9)
    channel = ParentChannel(parent)
    with caplog.at_level(logging.WARNING):
        for port in (9, 9, 10, 9):
            parent.channel = "tcp://10.0.0.7:8866", port
            channel()
        ParentChannel(Parent("tcp://127.0.0.1:8866", 9))()
    assert [each.getMessage().partition(" is not")[0] for each in caplog.records] == [
        "the sync channel http://10.0.0.7:9/sync",
        "the sync channel http://10.0.0.7:10/sync",
    ]
