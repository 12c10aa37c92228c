"""Options of an INI file (oslo.config) from the fields of frozen structs.

A field with a description is an option. Its annotation declares the type, the bounds and the description, and its
default is the option's default, so nothing is declared twice. The name of the option is the field's name after the
prefix of its struct.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect
from oslo_config import cfg

from pubsub_lib.errors import ConfigError

Options = TypeVar("Options", bound=msgspec.Struct)

_EXTRA: Final = frozenset(("secret", "sample_default", "old_names", "dragonflow_names"))
DRAGONFLOW: Final = "df"
"""The group of a Dragonflow file from which options are still read."""


def option(
    description: str,
    *,
    secret: bool = False,
    sample: str | None = None,
    old_names: Sequence[str] = (),
    dragonflow_names: Sequence[str] = (),
) -> msgspec.Meta:
    """What an option has beyond its type and bounds.

    ``secret``: the log of oslo.config does not show the value. ``sample``: the value in the sample file, when the
    default is no example. The option is also read by its old names in its own group, and by its Dragonflow names in
    ``[df]``. The core, which does not import this module, writes the same as a ``Meta``.
    """
    extra = {
        "secret": secret,
        "sample_default": sample,
        "old_names": old_names,
        "dragonflow_names": dragonflow_names,
    }
    return msgspec.Meta(description=description, extra=extra)


def opts_of(struct: type[msgspec.Struct], prefix: str = "") -> tuple[cfg.Opt, ...]:
    """One option for each described field, in the order of the fields."""
    return tuple(_opt(field, meta, prefix) for field, meta in _described(struct))


def values_of(struct: type[msgspec.Struct], values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The described fields of the struct by name, from values by option name."""
    found = {}
    for field, meta in _described(struct):
        value = values[prefix + field.name]
        found[field.name] = tuple(value) if isinstance(meta.type, inspect.VarTupleType) else value
    return found


def checked_options(struct: type[Options], given: Mapping[str, Any], driver: str, group: str) -> Options:
    """A driver's options from their names and values. Raises ConfigError for unknown and invalid ones."""
    try:
        return msgspec.convert(dict(given), struct)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{driver} cannot use its options: {error}; correct [{group}]") from error


def _described(struct: type[msgspec.Struct]) -> list[tuple[inspect.Field, inspect.Metadata]]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return [(field, field.type) for field in info.fields if isinstance(field.type, inspect.Metadata)]


def _check(field: inspect.Field, meta: inspect.Metadata, extra: Mapping[str, Any]) -> None:
    """Refuse (TypeError) a field that no option of an INI file can be: an error of the program that declares it."""
    unknown = set(extra) - _EXTRA
    if unknown:
        raise TypeError(f"{field.name} has unknown keys in its Meta: {sorted(unknown)}; give some of {sorted(_EXTRA)}")
    if field.default_factory is not msgspec.NODEFAULT:
        raise TypeError(f"{field.name} has a default_factory, which an INI file cannot have; give a default")
    match meta.type:
        case inspect.VarTupleType(item_type=item) if not isinstance(item, inspect.StrType):
            raise TypeError(f"{field.name} is a tuple of {item}; an INI file has lists of text only")
        case inspect.LiteralType(values=values) if not all(isinstance(each, str) for each in values):
            raise TypeError(f"{field.name} has choices that are not text, {values}; an INI file has text only")
    if field.required and not isinstance(meta.type, inspect.StrType):
        raise TypeError(f"{field.name} has no default; only text may be required, because a missing option is empty")


def _opt(field: inspect.Field, meta: inspect.Metadata, prefix: str) -> cfg.Opt:
    extra = meta.extra or {}
    _check(field, meta, extra)
    old = [cfg.DeprecatedOpt(each) for each in extra.get("old_names", ())]
    old += [cfg.DeprecatedOpt(each, group=DRAGONFLOW) for each in extra.get("dragonflow_names", ())]
    common: dict[str, Any] = {
        "help": (meta.extra_json_schema or {})["description"],
        "default": "" if field.required else field.default,
        "secret": extra.get("secret", False),
        "sample_default": extra.get("sample_default"),
        "deprecated_opts": old,
    }
    name, kind = prefix + field.name, meta.type
    match kind:
        case inspect.BoolType():
            return cfg.BoolOpt(name, **common)
        case inspect.IntType() | inspect.FloatType():
            if kind.gt is not None or kind.lt is not None:
                raise TypeError(f"{name} has an exclusive bound, which an INI file cannot have; use ge and le")
            bounded: Callable[..., cfg.Opt] = cfg.IntOpt if isinstance(kind, inspect.IntType) else cfg.FloatOpt
            return bounded(name, min=kind.ge, max=kind.le, **common)
        case inspect.StrType():
            return cfg.StrOpt(name, **common)
        case inspect.LiteralType():
            return cfg.StrOpt(name, choices=list(kind.values), **common)
        case inspect.VarTupleType():
            return cfg.ListOpt(name, **{**common, "default": list(field.default)})
    raise TypeError(f"{name} has a type that no option of an INI file has: {kind}")
