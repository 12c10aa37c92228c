"""The settings of a store, checked at their use. ``pubsub_lib.config`` defines the struct: ``Settings`` holds one."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from pubsub_lib.arguments import wrong
from pubsub_lib.config.program import StoreSettings
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import ConfigError

__all__ = ["StoreSettings", "checked"]


KINDS: Final[Mapping[str, type[msgspec.Struct]]] = MappingProxyType({"settings": StoreSettings, "limits": Limits})


S = TypeVar("S", bound=msgspec.Struct)


def checked(name: str, given: S) -> S:
    """Check the types and bounds of a struct that was made in Python: msgspec checks them only when it decodes.

    Returns the struct. Raises ConfigError, which names the field after ``name``.
    """
    kind = KINDS[name]
    if not isinstance(given, kind):
        raise wrong(name, given, f"pubsub_lib.{kind.__name__}", ConfigError)
    for field in given.__struct_fields__:
        value = getattr(given, field)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"the store's {name}.{field} is {value} but must be finite; correct it")
    try:
        msgspec.convert(msgspec.to_builtins(given), type(given))
    except (msgspec.ValidationError, TypeError) as error:
        reason, _, where = str(error).partition(" - at `$.")
        field = where.rstrip("`")
        shown = f".{field} is {getattr(given, field, None)!r} but" if field else ""
        raise ConfigError(f"the store's {name}{shown} must be: {reason}; correct it") from error
    return given
