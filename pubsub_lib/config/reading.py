"""Reading INI files: the values by oslo.config, and a check that each name in the files is one that is read."""

import difflib
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from oslo_config import cfg

from pubsub_lib.config import dragonflow, installed_drivers, options
from pubsub_lib.config.environment import has_options, misspelt, variable_of
from pubsub_lib.config.places import groups_of, misplaced
from pubsub_lib.config.pubsub import GROUP
from pubsub_lib.errors import ConfigError
from pubsub_lib.logs import logger
from pubsub_lib.masking import masked

_log = logger(__name__)

_NEAR: Final = 0.8
"""Similarity (difflib's ratio) from which on a group's name counts as a misspelt name of a known group. One wrong
letter, or two that are exchanged, leave ``pubsub`` a similarity of 0.83.
"""

Sections = Mapping[str, Mapping[str, Sequence[str]]]
"""The contents of an INI file: group -> option -> its values, one for each time it is set."""


class Configuration(msgspec.Struct, frozen=True):
    """The configuration of one program, as its files and environment have it."""

    conf: cfg.ConfigOpts
    """With the group ``[pubsub]``."""
    files: Mapping[str, Sections]
    """By path. oslo.config gives the values of known options only, so the names are read apart."""

    def __repr__(self) -> str:
        """Without the values, which may be passwords: logs and tracebacks show it."""
        return f"Configuration({', '.join(self.files)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same for rich."""
        return [("files", list(self.files))]

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> "Configuration":
        """That of a ``conf`` that was already called with its files. Blocks while it reads them."""
        options.register(conf)
        return cls(conf, {str(path): sections_of(path) for path in files_of(conf)})

    @classmethod
    def read(cls, path: str | Path) -> "Configuration":
        """That of this file, and no other. An environment variable ``OS_PUBSUB__<OPTION>`` takes precedence over the
        file's option. Blocks while it reads the file. Raises ConfigError for a file that cannot be read.
        """
        conf = cfg.ConfigOpts()
        try:
            conf(args=[], project="pubsub_lib", default_config_files=[str(path)], default_config_dirs=[])
            return cls.of(conf)
        except RecursionError as error:
            raise ConfigError(
                f"the configuration file {str(path)!r} cannot be read: config_file or config_dir in [DEFAULT] refers "
                "by $ to itself; remove both"
            ) from error
        except (cfg.Error, cfg.ParseError, OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the configuration file {str(path)!r} cannot be read: {_one_line(error)}; "
                "name a readable file in INI format"
            ) from error

    def values(self, group: str, opts: Sequence[cfg.Opt]) -> dict[str, Any]:
        """The values of these options by name. Raises ConfigError, in one sentence, for an invalid one."""
        self.conf.register_opts(opts, group=group)
        return {option.dest: _value(self.conf, group, option) for option in opts}

    def sets(self, group: str, option: str) -> bool:
        """Whether a file or the environment sets this option, which is registered in ``conf``."""
        found = self.conf.get_location(option, group)
        return found is not None and found.location.is_user_controlled

    def driver_options(self, driver: str) -> dict[str, Any]:
        """The values of a driver's own options. Raises ConfigError, DriverError."""
        return self.values(*installed_drivers.options_of(driver))

    def all_values(self, drivers: Iterable[str]) -> dict[tuple[str, str], Any]:
        """The values of our groups and of the drivers' groups, by group and option. Raises ConfigError, DriverError."""
        return {
            (group, name): value
            for group, opts in self._groups(drivers)
            for name, value in self.values(group, opts).items()
        }

    def from_environment(self, drivers: Iterable[str]) -> list[str]:
        """The environment variables that take precedence over the files, of our groups and those of these drivers.
        Raises DriverError.
        """
        found = set()
        for group, opts in self._groups(drivers):
            self.conf.register_opts(opts, group=group)
            for option in opts:
                variable = variable_of(group, option.dest)
                if variable in os.environ and _is_read_from_environment(self.conf, group, option):
                    found.add(variable)
        return sorted(found)

    @staticmethod
    def _groups(drivers: Iterable[str]) -> Iterator[tuple[str, Sequence[cfg.Opt]]]:
        yield GROUP, options.OPTIONS
        yield options.SERVICE_GROUP, options.SERVICE
        yield from map(installed_drivers.options_of, drivers)

    def check_names(self) -> None:
        """Raises ConfigError for an unknown option. Only ``[pubsub]``, ``[publisher_service]`` and the drivers' groups
        are ours; other groups may belong to other programs that share a file. Logs misspelt environment variables.
        """
        for path, sections in self.files.items():
            _check_names(path, sections)
        for sentence in self.misspelt_variables():
            _log.warning("%s", sentence)

    def misspelt_variables(self) -> list[str]:
        """A sentence for each environment variable whose name is nearly that of an option, without its value."""
        if not has_options(os.environ):
            return []  # without the import of every driver's options
        groups = {GROUP: options.names(), options.SERVICE_GROUP: [option.dest for option in options.SERVICE]}
        for group, opts in installed_drivers.readable_options().values():
            groups[group] = [option.dest for option in opts]
        old = {variable_of(GROUP, name) for name in options.old_names()}  # values() refuses these
        return [
            f"the environment variable {variable} is not read; "
            + (f"did you mean {meant}?" if meant else "unset it or correct its name")
            for variable, meant in misspelt(os.environ.keys() - old, groups)
        ]

    def warn_of_dragonflow(self) -> None:
        """Log the options of a Dragonflow file that have no effect, in one warning for each file."""
        for path, sections in self.files.items():
            given = list(sections.get(dragonflow.GROUP, ()))
            found = dragonflow.without_effect(given, options.dragonflow_names())
            if found:
                _log.warning(
                    "%r sets options of Dragonflow in [%s] that have no effect here: %s; see docs/dragonflow.md",
                    path,
                    dragonflow.GROUP,
                    ", ".join(found),
                )


def _value(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> Any:
    for old in option.deprecated_opts:
        variable = variable_of(group, str(old.name))
        if old.group is None and variable in os.environ:  # oslo.config reads old names in files only
            right = variable_of(group, option.dest)
            raise ConfigError(f"the environment variable {variable} is not read; name it {right}")
    try:
        value = conf[group][option.dest]
    except (cfg.NoSuchOptError, cfg.TemplateSubstitutionError) as error:
        # The message of oslo.config shows the value, and a URL may hold a password.
        raise ConfigError(
            f"the option {option.name!r} in group [{group}] refers by $ to an option that the group does not have; "
            "write $$ for a dollar sign"
        ) from error
    except RecursionError as error:
        raise ConfigError(
            f"the option {option.name!r} in group [{group}] refers by $ to itself, directly or through another option; "
            "correct it, or write $$ for a dollar sign"
        ) from error
    except (cfg.Error, ValueError) as error:
        variable = variable_of(group, option.dest)
        where = f"[{group}]" + (f" (the environment variable {variable} is set)" if variable in os.environ else "")
        raise ConfigError(
            f"the option {option.name!r} in group {where} cannot be used: {_reason(error, option)}; correct it"
        ) from error
    if isinstance(value, float) and not math.isfinite(value):  # nan is within every range
        raise ConfigError(f"the option {option.name!r} in group [{group}] is {value} but must be finite; correct it")
    return value


def _is_read_from_environment(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> bool:
    """Not so for a ``conf`` without the environment, or with an override by the program."""
    location = conf.get_location(option.dest, group)
    return location is not None and location.location is cfg.Locations.environment


def _check_names(path: str, sections: Sections) -> None:
    drivers = installed_drivers.readable_options()
    groups = [group for group, _ in drivers.values()]
    refuse_misspelt_groups(sections, (GROUP, options.SERVICE_GROUP, dragonflow.GROUP, *groups), path)
    elsewhere = misplaced(sections)
    if elsewhere:
        raise ConfigError(
            f"{path!r} sets options in groups where they are not read: {', '.join(elsewhere)}; move each to its group, "
            "or set it there as well if another program reads the one that you have"
        )
    refuse_unknown(sections, GROUP, options.names(), path)
    for driver, (group, _) in drivers.items():
        if group in sections:
            opts = installed_drivers.options_of(driver)[1]  # raises for a driver whose options cannot be imported
            refuse_unknown(sections, group, [option.dest for option in opts], path)


def sections_of(path: str | Path) -> dict[str, dict[str, list[str]]]:
    """The contents of a readable INI file. Blocks while it reads the file."""
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(str(path), sections).parse()
    return sections


def refuse_misspelt_groups(sections: Iterable[str], groups: Iterable[str], path: str) -> None:
    """Raises ConfigError for a group of a file whose name is nearly one of these: no program would read it. Other
    groups may be another program's.
    """
    known = {_plain(group): group for group in groups}
    for section in sections:
        if section in known.values():
            continue
        near = difflib.get_close_matches(_plain(section), known, 1, cutoff=_NEAR)
        if near:
            meant = known[near[0]]
            raise ConfigError(f"{path!r} has an unknown group [{section}]; did you mean [{meant}]?")


def _plain(group: str) -> str:
    return group.lower().replace("-", "").replace("_", "").replace(" ", "")


def refuse_unknown(sections: Sections, group: str, known: Sequence[str], path: str) -> None:
    """Raises ConfigError for an option of this group of a file that is not one of these, naming the nearest one."""
    for name in sections.get(group, {}):
        if name not in known:  # oslo.config does not read max-idle-time for max_idle_time
            ours = options.old_names() if group == GROUP else {}
            near = [ours.get(each, each) for each in difflib.get_close_matches(name, known, 1)]
            elsewhere = groups_of(name)
            hint = f"did you mean {near[0]!r}?" if near else "remove it"
            if elsewhere:
                hint = f"move it to group [{elsewhere[0]}]"
            raise ConfigError(f"{path!r} sets an unknown option {name!r} in group [{group}]; {hint}")


def files_of(conf: cfg.ConfigOpts) -> list[Path]:
    """The files that a ``conf`` was read from; none when it was not called yet."""
    try:
        named, folders = conf.config_file, conf.config_dir
    except cfg.NoSuchOptError:
        return []
    return [
        *map(Path, named or ()),
        *(each for folder in folders or () for each in sorted(Path(folder).glob("*.conf"))),
    ]


def _reason(error: BaseException, option: cfg.Opt) -> str:
    """Why a value is invalid, without oslo.config's internal description of the value's place."""
    text = _one_line(error)
    maximum = getattr(option.type, "max", None)
    if maximum is not None:
        text = text.replace(f"equal to {maximum:g}", f"equal to {maximum:.15g}")  # not 2.14748e+06
    before, separator, reason = text.partition(" is not valid: ")
    return reason[:1].lower() + reason[1:] if separator and "LocationInfo(" in before else text


def _one_line(error: BaseException) -> str:
    return masked(" ".join(str(error).split()).rstrip("."))
