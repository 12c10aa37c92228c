"""Misspelt environment variables of options: oslo.config ignores each that has not exactly an option's name."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_NEAR: Final = 0.85
"""Similarity (difflib's ratio) from which on a name counts as misspelt."""
_SIMILAR: Final = 0.7
"""The same for an option's name that a message proposes."""
_PREFIX: Final = "OS_"
_SEPARATOR: Final = "__"

Groups = Mapping[str, Iterable[str]]
"""Our groups, each with its options. A group without options is one whose options cannot be read."""


def variable_of(group: str, option: str) -> str:
    """The environment variable of an option."""
    return f"{_PREFIX}{group}{_SEPARATOR}{option}".upper()


def has_options(variables: Iterable[str]) -> bool:
    """Whether one of these variables may be meant for an option of any program: :func:`misspelt` ignores the others."""
    return any(each.upper().startswith(_PREFIX) for each in variables)


def misspelt(variables: Iterable[str], groups: Groups) -> Iterator[tuple[str, str]]:
    """Yield (variable, the most similar name that is read, or "") for each variable that is not read, and stands in
    one of these groups or in a group with a similar name. Variables of other groups may be another program's.
    """
    known = {variable_of(group, option) for group, options in groups.items() for option in options}
    plain = {_plain(each): each for each in known}
    unreadable = {group.upper() for group, options in groups.items() if not options}
    for variable in sorted(variables):
        if variable in known or not variable.upper().startswith(_PREFIX):
            continue
        if _plain(variable) in plain:  # other case, other underscores
            yield variable, plain[_plain(variable)]
            continue
        group, separator, _ = variable.upper().removeprefix(_PREFIX).partition(_SEPARATOR)
        if not separator or group in unreadable:
            continue
        near = difflib.get_close_matches(_plain(variable), plain, 1, cutoff=_SIMILAR)
        if _is_near(group, groups) or (near and _is_near(variable, near)):
            yield variable, plain[near[0]] if near else ""


def _is_near(name: str, names: Iterable[str]) -> bool:
    return bool(difflib.get_close_matches(_plain(name), map(_plain, names), 1, cutoff=_NEAR))


def _plain(name: str) -> str:
    return name.upper().replace("_", "")
