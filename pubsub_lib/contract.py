"""Make the publisher and subscriber of a driver, and refuse those that break the contract of this release (rule D1).

A driver's package has its own releases. Without this check, a driver for another version of :mod:`pubsub_lib.api` fails
with a TypeError at the first call with unknown arguments.
"""

import inspect
from typing import Any, Final

from pubsub_lib.api import Driver, DriverSettings, Publisher, Subscriber
from pubsub_lib.errors import DriverError

_HINT: Final = "install a compatible release of the package, or correct the method (see docs/writing-a-driver.md)"


def publisher(driver: type[Driver], settings: DriverSettings) -> Publisher:
    """A new publisher of this driver. Raises DriverError when it breaks the contract, and passes on the errors of the
    driver.
    """
    return check_publisher(_make(driver, "publisher", settings), driver)


def subscriber(driver: type[Driver], settings: DriverSettings) -> Subscriber:
    """A new subscriber of this driver. Raises as :func:`publisher`."""
    return check_subscriber(_make(driver, "subscriber", settings), driver)


def check_publisher(half: Any, driver: type[Driver] | None = None) -> Publisher:
    """Return this publisher. Raises DriverError unless it has every method of the contract, with its parameters.

    ``driver``: the driver that made the publisher, for the error; None when the caller passed in the publisher.
    """
    _check(half, Publisher, driver)
    found: Publisher = half
    return found


def check_subscriber(half: Any, driver: type[Driver] | None = None) -> Subscriber:
    """As :func:`check_publisher`, for a subscriber."""
    _check(half, Subscriber, driver)
    found: Subscriber = half
    return found


def _check(half: object, kind: type, driver: type[Driver] | None) -> None:
    made_by = _described(type(half) if driver is None else driver, driver)
    capabilities = _by_capability(kind)
    required = set(getattr(kind, "__abstractmethods__", ())) | {
        name for name, capability in capabilities.items() if _declared(driver, capability)
    }
    for name in sorted(required | capabilities.keys()):
        method = getattr(half, name, None)
        inherited = getattr(type(half), name, None) is getattr(kind, name)
        # Methods for keys are never called without keys, so a half that was passed in need not have them.
        absent = inherited or (method is None and capabilities.get(name) == "keys")
        if absent and name not in required:
            continue
        if inherited or not callable(method):
            raise DriverError(
                f"{made_by} breaks the contract of this release: its {kind.__name__.lower()} "
                f"({type(half).__name__}) has no method {name}; {_HINT}"
            )
        asked = list(inspect.signature(getattr(kind, name)).parameters)[1:]
        taken = _taken(method)
        if taken is not None and not _takes(taken, asked):
            raise DriverError(
                f"{made_by} breaks the contract of this release: the method {name} of its "
                f"{kind.__name__.lower()} takes {_shown(taken)} and is called with "
                f"({', '.join(asked)}); {_HINT}"
            )


def _by_capability(kind: type) -> dict[str, str]:
    """The methods of a half that go with a capability -> this capability."""
    return {name: method.capability for name, method in vars(kind).items() if hasattr(method, "capability")}


def _declared(driver: type[Driver] | None, capability: str) -> bool:
    """Whether the driver has a capability. A half that was passed in without its driver has those of a replica's."""
    return capability == "fan_out" if driver is None else bool(getattr(driver.capabilities, capability))


def _make(driver: type[Driver], half: str, settings: DriverSettings) -> object:
    try:
        return getattr(driver, half)(settings)
    except TypeError as error:  # a class that lacks an abstract method, or a factory with other parameters
        reason = " ".join(str(error).split()).rstrip(".")
        raise DriverError(f"{_described(driver, driver)} cannot make its {half}: {reason}; {_HINT}") from error


def _described(made_by: type, driver: type[Driver] | None) -> str:
    name = "" if driver is None else f" {getattr(driver, 'name', driver.__qualname__)!r}"
    return f"the driver{name} (of the package {made_by.__module__.partition('.')[0]!r})"


def _taken(method: Any) -> inspect.Signature | None:
    """The signature of the method itself, not of a wrapped one; None when Python does not know it (a compiled method,
    or a proxy that has every name).
    """
    try:
        return inspect.signature(method, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def _shown(signature: inspect.Signature) -> str:
    """The signature's parameters without their types."""
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _takes(signature: inspect.Signature, asked: list[str]) -> bool:
    try:
        signature.bind(*asked)
    except TypeError:
        return False
    return True
