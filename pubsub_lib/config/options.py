"""The options of an INI file (oslo.config), made from the structs that declare them. Nothing here reads a global
``CONF``.

A driver defines its own options in ``<its package>.options.OPTIONS``, which can be imported without the driver's
dependencies. They are read from the group that has the package's name.
"""

import copy
from typing import Final

from oslo_config import cfg

from pubsub_lib.config import installed_drivers
from pubsub_lib.config.fields import DRAGONFLOW, opts_of
from pubsub_lib.config.program import HANDLER_PREFIX, JOURNAL_PREFIX, STORE_PREFIX, ProgramSettings, StoreSettings
from pubsub_lib.config.pubsub import GROUP, PubSubSettings
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.handler_queue import HandlerPolicy
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.timing import Timing
from pubsub_lib.journal import JournalSettings

PROGRAM: Final = opts_of(ProgramSettings)
STORE: Final = opts_of(StoreSettings, STORE_PREFIX)
PUBSUB: Final = opts_of(PubSubSettings)
TIMING: Final = opts_of(Timing)
LIMITS: Final = opts_of(Limits)
HANDLING: Final = opts_of(HandlerPolicy, HANDLER_PREFIX)
JOURNAL: Final = opts_of(JournalSettings, JOURNAL_PREFIX)
OPTIONS: Final[tuple[cfg.Opt, ...]] = PROGRAM + STORE + PUBSUB + TIMING + LIMITS + HANDLING + JOURNAL
"""The group ``[pubsub]``."""

SERVICE_GROUP: Final = "publisher_service"
"""Read only by the publisher service."""
SERVICE: Final = opts_of(ServiceSettings)


def register(conf: cfg.ConfigOpts, driver: str = "") -> None:
    """Register the group ``[pubsub]`` in this ``conf`` (again is harmless), and this driver's own group."""
    conf.register_opts(OPTIONS, group=GROUP)
    if driver:
        group, opts = installed_drivers.options_of(driver)
        conf.register_opts(opts, group=group)


def dragonflow_names() -> dict[str, str]:
    """Name in a Dragonflow file's ``[df]`` -> our name, for the options that are read from there."""
    return {
        str(old.name): option.dest for option in PUBSUB for old in option.deprecated_opts if old.group == DRAGONFLOW
    }


def old_names() -> dict[str, str]:
    """Old name in ``[pubsub]`` -> our name."""
    return {str(old.name): option.dest for option in OPTIONS for old in option.deprecated_opts if old.group is None}


def names() -> list[str]:
    """All names by which the options of ``[pubsub]`` are read in that group, old ones included."""
    return [*(option.dest for option in OPTIONS), *old_names()]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """All options for ``oslo-config-generator`` (namespace ``pubsub_lib``): ours, then each driver's in its group."""
    ours = ((GROUP, OPTIONS), (SERVICE_GROUP, SERVICE))
    groups = [(group, [copy.deepcopy(option) for option in opts]) for group, opts in ours]
    drivers = dict(installed_drivers.options_of(driver) for driver in installed_drivers.packages())
    groups.extend((group, [copy.deepcopy(option) for option in drivers[group]]) for group in sorted(drivers))
    return [(group, opts) for group, opts in groups if opts]
