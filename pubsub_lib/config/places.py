"""The group of an INI file in which an option belongs, and options that are set in groups where they are not read."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from pubsub_lib.config import dragonflow, installed_drivers, options
from pubsub_lib.config.pubsub import GROUP, SWITCH

DEFAULT: Final = "DEFAULT"
"""The group of options that all programs that share a file read (for example oslo.log's), and none of ours."""

Groups = Sequence[tuple[str, Collection[str]]]
"""Groups, each with the names of the options that are read from it."""


def groups_of(name: str) -> list[str]:
    """Our groups, and the groups of installed drivers, in which an option of this name is read."""
    return _among(_read(), name)


def misplaced(sections: Mapping[str, Collection[str]]) -> list[str]:
    """Options in ``[DEFAULT]`` and ``[df]`` that are ours but not read from there, each with the group it belongs in.

    An option that is also set in its own group is ignored here, because the other one is another program's. A driver's
    option of one word (``delay``) in ``[DEFAULT]`` is ignored too, because any program may have such a name.
    """
    groups = _read()
    return [*_in_default(sections, groups), *_in_dragonflow(sections, groups)]


def _in_default(sections: Mapping[str, Collection[str]], known: Groups) -> Iterator[str]:
    for given in sections.get(DEFAULT, ()):
        name = given.replace("-", "_")
        groups = _among(known, name)
        own = not {GROUP, options.SERVICE_GROUP}.isdisjoint(groups)
        if name == SWITCH:
            groups, own = [dragonflow.GROUP], True
        if (own or "_" in name) and groups and not _is_set(name, groups, sections):
            yield _words(given, DEFAULT, groups)


def _in_dragonflow(sections: Mapping[str, Collection[str]], known: Groups) -> Iterator[str]:
    read = options.dragonflow_names()
    for given in sections.get(dragonflow.GROUP, ()):
        name = given.replace("-", "_")
        groups = [] if name in read or name in dragonflow.REPLACED else _among(known, name)
        if groups and not _is_set(name, groups, sections):
            yield _words(given, dragonflow.GROUP, groups)


def _is_set(name: str, groups: Collection[str], sections: Mapping[str, Collection[str]]) -> bool:
    """Whether the option is set in a group where it is read, by any of its names there."""
    from_dragonflow = options.dragonflow_names()
    read = {**options.old_names(), **from_dragonflow}
    ours = read.get(name, name)
    names = {ours, *(old for old, new in read.items() if new == ours)}
    places = [*groups, GROUP, dragonflow.GROUP] if ours in from_dragonflow.values() else groups
    return any(not names.isdisjoint(sections.get(group, ())) for group in places)


def _words(name: str, group: str, belongs: Collection[str]) -> str:
    return f"{name} is set in [{group}] and belongs in {' or '.join(f'[{each}]' for each in belongs)}"


def _among(known: Groups, name: str) -> list[str]:
    return [group for group, names in known if name in names]


def _read() -> Groups:
    return [
        (GROUP, options.names()),
        (options.SERVICE_GROUP, [option.dest for option in options.SERVICE]),
        *(
            (group, [option.dest for option in opts])
            for _, (group, opts) in sorted(installed_drivers.readable_options().items())
        ),
    ]
