"""The installed drivers, their options and the groups of an INI file in which these stand.

No driver is loaded: a driver's options are in ``<its package>.options``, which can be imported without the driver's own
dependencies.
"""

import importlib
import importlib.metadata
from collections.abc import Sequence
from types import ModuleType
from typing import Final

from oslo_config import cfg

from pubsub_lib.config import dragonflow
from pubsub_lib.errors import DriverError

DRIVERS: Final = "pubsub_lib.drivers"
"""The entry-point group in which a driver registers its class."""


def packages() -> dict[str, str]:
    """Driver name -> the package that holds its options, of all installed drivers. Imports none of them."""
    found = importlib.metadata.entry_points(group=DRIVERS)
    return {entry.name: entry.module.removesuffix(".driver") for entry in found}


def readable_options() -> dict[str, tuple[str, Sequence[cfg.Opt]]]:
    """Driver name -> (group, options), of all installed drivers. A driver whose options cannot be imported has the name
    of its package as its group, and no options; the error is raised when the driver is used.
    """
    found: dict[str, tuple[str, Sequence[cfg.Opt]]] = {}
    for driver, package in packages().items():
        try:
            found[driver] = _options_in(package)
        except DriverError:
            found[driver] = package, ()
    return found


def groups() -> dict[str, str]:
    """Driver name -> its group in an INI file, of all installed drivers, as :func:`readable_options`."""
    return {driver: group for driver, (group, _) in readable_options().items()}


def options_of(driver: str) -> tuple[str, Sequence[cfg.Opt]]:
    """(group, options) of an installed driver; no options when it has none. The group is the name of the driver's
    package unless ``options.GROUP`` sets another one.

    Raises DriverError when no installed driver has this name, or when its options cannot be imported.
    """
    known = packages()
    if driver not in known:
        raise DriverError(no_driver(driver))
    return _options_in(known[driver])


def no_driver(name: str) -> str:
    """The sentence for a driver that is not installed."""
    remedy = dragonflow.driver_hint(name) or "correct the name or install its package"
    return f"the driver {name!r} is not installed; installed are {', '.join(sorted(packages())) or 'none'}: {remedy}"


def extra_of(package: str) -> str:
    """The extra that installs the dependencies of this driver package (``options.EXTRA``); "" when it needs none."""
    module = _options_module(package)
    return str(getattr(module, "EXTRA", ""))


def binds(driver: str) -> bool:
    """Whether publishers of this driver may bind an address: not when its module ``options`` sets ``BINDS = False``.
    The driver's capability ``bind_based`` has the same meaning, but needs the driver itself.

    Raises DriverError when the driver's options cannot be imported.
    """
    known = packages()
    return bool(getattr(_options_module(known[driver]), "BINDS", True)) if driver in known else True


def _options_in(package: str) -> tuple[str, Sequence[cfg.Opt]]:
    module = _options_module(package)
    if module is None:
        return package, ()
    options: Sequence[cfg.Opt] = module.OPTIONS
    return str(getattr(module, "GROUP", package)), options


def _options_module(package: str) -> ModuleType | None:
    name = f"{package}.options"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return None  # a driver without options
        raise DriverError(
            f"the options of the driver package {package!r} cannot be imported: {error}; install its dependencies"
        ) from error
