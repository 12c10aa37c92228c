"""What a fuzz target is."""

from collections.abc import Callable, Sequence
from random import Random

import msgspec


class Target(msgspec.Struct, frozen=True):
    """One reader of foreign bytes."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    """Valid inputs, which mutation starts from."""
    mutate: Callable[[bytes, Random], bytes]
    run: Callable[[bytes], str]
    """Read the input; return a short text for the result. An exception but ``typed`` is a finding."""
    typed: tuple[type[Exception], ...]
    """The documented errors."""
    close: Callable[[], None] = lambda: None
