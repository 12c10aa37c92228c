"""The driver's class: its capabilities, and the errors for invalid options."""

import subprocess
import sys
import threading
from typing import Any

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import ConfigError, TransportError
from pubsub_zmq import options
from pubsub_zmq.driver import ZmqDriver
from pubsub_zmq.options import checked
from pubsub_zmq.publisher import ZmqPublisher


def test_capabilities_are_declared() -> None:
    declared = ZmqDriver.capabilities
    assert declared.bind_based
    assert declared.cross_process
    assert declared.cross_host
    assert declared.ordered
    assert declared.carries_envelopes
    assert not declared.needs_store


def test_options_can_be_imported_without_zeromq() -> None:
    program = (
        "import sys; sys.modules['zmq'] = None\n"
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('options', {options.__file__!r})\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "assert module.EXTRA == 'zmq' and module.OPTIONS"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("given", "frames"),
    [
        ({}, 32),
        ({"receive_bytes": 1}, 1),
        ({"receive_bytes": 2**30}, 512),
        ({"receive_bytes": 2**40, "receive_hwm": 7}, 7),
        ({"receive_hwm": 20}, 20),
    ],
)
def test_buffered_frames_have_at_most_receive_bytes(given: dict[str, Any], frames: int) -> None:
    assert checked(given).buffered_frames(Limits().max_frame_bytes) == frames


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"send_hwm": 0}, "send_hwm"),
        ({"receive_hwm": "many"}, "receive_hwm"),
        ({"receive_bytes": 0}, "receive_bytes"),
        ({"max_reconnect_interval": float("nan")}, "max_reconnect_interval"),
        ({"tcp_keepalive_idle": 0}, "tcp_keepalive_idle"),
        ({"tcp_keepalive_count": 128}, "tcp_keepalive_count"),
        ({"tcp_user_timeout": 0}, "tcp_user_timeout"),
        ({"answer_time": float("inf")}, "answer_time"),
        ({"connect_timeout": 1e9}, "connect_timeout"),
        ({"reconnect_interval": 5.0}, "max_reconnect_interval"),
        ({"send_wait": 2.0}, "send_wait"),
        ({"sned_hwm": 1}, "sned_hwm"),
    ],
)
def test_invalid_option_is_named_in_the_error(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        checked(given)
    assert "[pubsub_zmq]" in str(caught.value)


def test_a_publisher_needs_an_address() -> None:
    with pytest.raises(ConfigError, match="set publisher_bind_address"):
        ZmqDriver.publisher(DriverSettings())
    with pytest.raises(ConfigError, match="'tcp://host'"):
        ZmqDriver.publisher(DriverSettings(bind_address="tcp://host"))
    with pytest.raises(ConfigError, match="'tcp://host'"):
        ZmqDriver.subscriber(DriverSettings(addresses=("tcp://host",)))


@pytest.mark.parametrize("missing", ["pubsub-zmq-send", "pubsub-zmq-asks"])
def test_publisher_without_a_thread_binds_nothing_and_can_be_initialized_again(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == missing:
            raise RuntimeError("can't start new thread")
        real(thread)

    publisher = ZmqDriver.publisher(DriverSettings(bind_address="tcp://127.0.0.1:*"))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(TransportError, match=f"cannot start the thread '{missing}'"):
            publisher.initialize(lambda ask: None, lambda: None)
    assert isinstance(publisher, ZmqPublisher)
    assert publisher.endpoint == ""
    publisher.initialize(lambda ask: None, lambda: None)
    publisher.close()


def test_free_port_is_in_the_bound_address() -> None:
    publisher = ZmqDriver.publisher(DriverSettings(bind_address="tcp://127.0.0.1:0"))
    assert publisher.bound_address() == ""
    publisher.initialize(lambda ask: None, lambda: None)
    host, _, port = publisher.bound_address().rpartition(":")
    publisher.close()
    assert host == "tcp://127.0.0.1"
    assert 0 < int(port) < 65536
