"""Check the arguments of public methods. An error is one sentence: the argument, its value and the expected value.

For methods that are called once, or that wait; not for those that a program calls for each object.
"""

import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeGuard, TypeVar

from pubsub_lib.errors import UsageError
from pubsub_lib.masking import masked

T = TypeVar("T")

_MAX_SHOWN: Final = 80
MAX_SECONDS: Final = threading.TIMEOUT_MAX
"""The maximum wait that the system accepts."""


def wrong(name: str, value: object, wanted: str, error: type[UsageError] = UsageError) -> UsageError:
    """The error to raise for an argument that is not what is ``wanted``."""
    shown = masked(repr(value))
    if len(shown) > _MAX_SHOWN:
        shown = f"{shown[:_MAX_SHOWN]}..."
    return error(f"{name} must be {wanted}, not {shown}")


def check_kind(name: str, value: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Raises UsageError for a value of another type."""
    if not isinstance(value, kinds):
        raise wrong(name, value, wanted)


def check_function(name: str, value: object, takes: str) -> None:
    """Raises UsageError for a value that is not callable. ``takes``: its parameters, in words."""
    if not callable(value):
        raise wrong(name, value, f"a function of {takes}")


def check_methods(name: str, value: object, methods: tuple[str, ...], wanted: str) -> None:
    """Raises UsageError for an object that lacks one of these methods."""
    if not all(callable(getattr(value, method, None)) for method in methods):
        raise wrong(name, value, wanted)


def check_timeout(timeout: Any) -> None:
    """Raises UsageError for a value that is neither None nor a number of seconds. A timeout below 0 is over at once."""
    if timeout is None:
        return
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not timeout <= MAX_SECONDS:  # also for nan, which compares as False
        raise wrong("timeout", timeout, f"a number of seconds up to {MAX_SECONDS:.0f}, or None for no limit")


def is_coroutine_function(fn: Callable[[T], object]) -> TypeGuard[Callable[[T], Coroutine[Any, Any, object]]]:
    """True when a call of ``fn`` returns a coroutine: an ``async def``, or an object whose ``__call__`` is one."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)
