"""Common parts of the conformance checks: waits with deadlines, forks, threads, and checks of exceptions."""

import inspect
import os
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from typing import Final

import pytest

from pubsub_lib.errors import PubSubError
from pubsub_lib.testing.rig import FIRST_PAUSE, MAX_PAUSE, Listener, Rig

ROOM: Final = 0.5
"""Seconds added to the contract's deadlines, because a busy machine is not a driver's fault."""

CLOSE_SECONDS: Final = 2.0
"""The contract's limit for ``close``."""
SEND_SECONDS: Final = 1.0
"""The contract's limit for ``send_event``."""


def needs_envelopes(rig: Rig) -> None:
    """Skip a check that does not apply to a driver whose subscribers read the store themselves."""
    if not rig.driver.capabilities.carries_envelopes:
        pytest.skip("the driver declares that it carries no envelopes")


def needs_fan_out(rig: Rig) -> None:
    """Skip a check that does not apply to a hop: it needs several subscribers, or hello requests."""
    if not rig.driver.capabilities.fan_out:
        pytest.skip("the driver declares that it is a hop with one subscriber")


def needs_bound_addresses(rig: Rig) -> None:
    """Skip a check that applies only to drivers whose subscribers connect to the addresses of publishers."""
    if not rig.driver.capabilities.bind_based:
        pytest.skip("the driver declares that its subscribers connect to no address of a publisher")


def needs_way_to_ask(rig: Rig) -> None:
    """Skip a check that needs ``ask`` of the rig, which the rig of a driver that carries no envelopes cannot have."""
    needs_envelopes(rig)
    if rig.ask is None:
        pytest.skip("the rig has no `ask`, by which any process could send hello requests; see Rig")


def needs_way_to_stall(rig: Rig) -> None:
    """Skip a check that needs ``stall`` and ``resume`` of the rig, which not every transport can have."""
    needs_envelopes(rig)
    if rig.stall is None or rig.resume is None:
        pytest.skip("the rig has no `stall` and `resume`, by which peers read nothing; see Rig")


def needs_connections(rig: Rig) -> None:
    """Skip a check that does not apply to a driver without connections; fail for a rig without ``cut``."""
    if not rig.driver.capabilities.connections:
        pytest.skip("the driver declares that it has no connections")
    for call in (rig.cut, rig.restore):
        assert call is not None, "the rig of a driver with connections must be able to cut and restore them; see Rig"


def needs_no_connected(rig: Rig) -> None:
    """Skip a check that applies only to drivers that never call ``on_connected``."""
    if rig.driver.capabilities.connections and rig.driver.capabilities.fan_out:
        pytest.skip("the driver declares that it has connections")


def only_ours(call: Callable[[], object]) -> None:
    """Fail when the call raises an exception that is not a PubSubError."""
    try:
        call()
    except PubSubError:
        pass  # allowed
    except Exception as error:
        raise AssertionError(f"the driver raised an exception that is not a PubSubError: {error!r}") from error


def raiser(error: BaseException) -> Callable[[object], None]:
    """Return a callback that raises this exception."""

    def hook(_: object) -> None:
        raise error

    return hook


def takes(call: Callable[..., object], given: tuple[object, ...]) -> bool:
    """Whether a function can be called with these positional arguments, by its signature."""
    try:
        inspect.signature(call).bind(*given)
    except TypeError:
        return False
    return True


def ignore(_: object) -> None:
    """Make an expression a statement for a lambda."""


def eventually(condition: Callable[[], bool], patience: float, what: str) -> None:
    """Call the condition, which itself waits, until it is true. AssertionError after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {patience} s still not: {what}")


def until_answered(listener: Listener, rig: Rig) -> None:
    """Request hellos until a publisher answers one. AssertionError after the patience.

    Before ``on_connected`` a driver may drop a request, and an envelope may come before that call.
    """
    began, pause, nonces = time.monotonic(), FIRST_PAUSE, [uuid.uuid4().hex]

    def answered() -> bool:
        return any(listener.received.hellos(nonce) for nonce in nonces)

    while not answered():
        if time.monotonic() - began > rig.patience:
            raise AssertionError(f"no hello request was answered in {rig.patience} s")
        listener.subscriber.request_hello(nonces[-1], ["tenant-1"])
        listener.received.waits(answered, pause)
        nonces.append(uuid.uuid4().hex)
        pause = min(2 * pause, MAX_PAUSE)


def all_at_once(calls: list[Callable[[], object]], seconds: float, name: str = "close()") -> None:
    """Call each one in its own thread; all must return in time and raise nothing."""
    errors: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - reported below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    deadline = time.monotonic() + seconds + ROOM
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), f"{name} took longer than {seconds} s"
    assert not errors, f"{name} raised {errors[0]!r}"


def in_a_fork(check: Callable[[], None], patience: float) -> None:
    """Run a check in a forked child; report its failure in this process."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork with other threads. That case is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:  # the child: never return into pytest
        try:
            check()
        except BaseException as error:  # noqa: BLE001 - sent to the parent
            os.write(write, repr(error).encode()[:4000])
        finally:
            os._exit(0)
    os.close(write)
    ended = threading.Event()
    problem = b""

    def wait() -> None:
        nonlocal problem
        with os.fdopen(read, "rb") as pipe:
            problem = pipe.read()  # ends when the child does
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    in_time = ended.wait(patience)
    if not in_time:
        os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert in_time, f"a forked child hung for {patience} s"
    assert not problem, f"in a forked child: {problem.decode(errors='replace')}"
