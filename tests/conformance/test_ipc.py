"""The multi-process driver passes the conformance checks that apply to a hop with one subscriber."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from pubsub_lib.api import DriverSettings, Publisher
from pubsub_lib.testing.checks import in_a_fork
from pubsub_lib.testing.conformance import DriverConformance, Rig, Scene
from pubsub_lib.testing.rig import scene
from pubsub_zmq.multiproc.driver import IpcDriver
from tests.conformance.proxies import proxies


def driver_by(address: str) -> type[IpcDriver]:
    """Return a driver whose workers connect to this address instead of the one that the service binds."""

    class OtherWay(IpcDriver):
        @classmethod
        def publisher(cls, settings: DriverSettings) -> Publisher:
            return super().publisher(msgspec.structs.replace(settings, bind_address=address))

    return OtherWay


@contextmanager
def rig_in(folder: Path, inject: Callable[..., object]) -> Iterator[Rig]:
    (folder / "hop").mkdir(mode=0o700)
    address = f"ipc://{folder}/hop/socket"
    with proxies([address]) as between:
        driver = driver_by(between.addresses[0])
        settings = DriverSettings(bind_address=address)
        yield Rig(driver, settings, inject=inject, **between.ways)


class TestIpc(DriverConformance):
    @pytest.fixture
    def rig(self, tmp_path: Path, hop_inject: Callable[..., object]) -> Iterator[Rig]:
        with rig_in(tmp_path, hop_inject) as rig:
            yield rig

    # Checks that need several subscribers in the suite, with one subscriber here.

    def test_register_topic_must_be_exact_with_one_subscriber(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            for topic in ("tenant-10", "tenant-", "tenant-1 ", "TENANT-1", "xtenant-1"):
                on.send(topic)
            on.fence(listener, "tenant-1")  # the hop is ordered: earlier messages have arrived
            assert {envelope.topic for envelope in listener.received.envelopes if envelope.messages} == {"tenant-1"}
            assert listener.subscriber.counters()["unwanted"] >= 5

    def test_a_forked_child_must_not_disturb_the_parent(self, rig: Rig) -> None:
        with scene(rig) as on:
            running = on.listening("tenant-1")
            in_a_fork(running.subscriber.close, rig.patience)
            on.fence(running, "tenant-1")

    def test_on_envelope_must_not_be_called_after_close_returned_to_the_next_one_either(self, rig: Rig) -> None:
        with scene(rig) as on:
            first = on.listening("tenant-1")
            for _ in range(50):
                on.send("tenant-1")
            first.subscriber.close()
            came = len(first.received.envelopes)
            second = on.listening("tenant-1")
            for _ in range(10):
                on.fence(second, "tenant-1")
            assert len(first.received.envelopes) == came


__all__ = ["Scene", "TestIpc"]
