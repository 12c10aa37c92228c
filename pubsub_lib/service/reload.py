"""Reloading the configuration of a running service (SIGHUP): log levels, and the intervals and bounds that only the
service itself uses. Each other changed option is named in one log line as needing a restart.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from pubsub_lib.config.options import SERVICE_GROUP
from pubsub_lib.config.reading import Configuration
from pubsub_lib.config.service import STANDBY, ServiceSettings
from pubsub_lib.core.leased_publishers import ORIGIN, RELAY
from pubsub_lib.errors import PubSubError
from pubsub_lib.logs import logger
from pubsub_lib.service import log
from pubsub_lib.service import settings as service_settings

_log = logger(__name__)

ADJUSTED: Final = ("follow_interval", "keep_links", "keep_time", "recount_time", "trim_interval")
"""The options of ``[publisher_service]`` that a running service changes. The others are known to other processes
(``lease``, ``address``), are bound at the start, or belong to the protocol's core (``grace``).
"""
_ADJUSTED_BY_ROLE: Final = {ORIGIN: ADJUSTED, STANDBY: ("follow_interval",), RELAY: ()}
"""Those of them that a service of each role uses: only an origin reads the changelog, trims it and recounts."""
LOG_GROUP: Final = "DEFAULT"
_TAKEN: Final = {*((SERVICE_GROUP, name) for name in ADJUSTED), *((LOG_GROUP, name) for name in log.LEVELS)}

Used = Mapping[tuple[str, str], Any]
"""The values that a process uses, by group and option."""


class Reload:
    """Calling it reads the configuration file again. For the main thread."""

    def __init__(self, file: str, level: str, configuration: Configuration, drivers: list[str], logging: log.Values):
        """``level``: that of the command line, or "". ``drivers``: those that run. ``logging``: the options in use."""
        self._file = file
        self._level = level
        self._drivers = drivers
        self._used = self._values(configuration, logging)
        self._logging = logging

    def __call__(self, adjust: Callable[[ServiceSettings], None]) -> None:
        """``adjust`` is called with the new settings of the service, unless no valid configuration can be read; then an
        error is logged and nothing changes. Blocks for reading the file. Raises no PubSubError. A ``keep_time`` with
        which links are lost is in use, and a warning is logged at each reload.
        """
        try:
            logging = log.read(self._file)
            configuration = Configuration.read(self._file)
            _, service = service_settings.load(configuration)
            values = self._values(configuration, logging)
        except PubSubError as error:
            _log.error("the configuration is not reloaded, and the service runs on with the old one: %s", error)
            return
        log.set_levels(logging, self._logging, self._level)
        adjust(service)
        taken = set(_TAKEN)
        if logging["log_config_append"] or self._logging["log_config_append"]:
            taken -= {(LOG_GROUP, name) for name in log.LEVELS}
        role = self._used[SERVICE_GROUP, "role"]  # that of the start
        unused = {(SERVICE_GROUP, name) for name in ADJUSTED if name not in _ADJUSTED_BY_ROLE[role]}
        changed = {each for each in self._used if values.get(each) != self._used[each]}
        if self._level:
            changed.discard((LOG_GROUP, "debug"))  # the command line takes precedence, also after a restart
        self._used = {each: values[each] if each in taken else used for each, used in self._used.items()}
        self._logging = {
            name: logging[name] if (LOG_GROUP, name) in taken else used for name, used in self._logging.items()
        }
        in_use = _named((changed & taken) - unused) or "no option"
        _log.info("the configuration is reloaded; changed and in use: %s", in_use)
        if changed & unused:
            names = _named(changed & unused)
            _log.info("these options have changed, and a service with role = %s does not use them: %s", role, names)
        if changed - taken:
            _log.warning("these options have changed, and need a restart of the service: %s", _named(changed - taken))
        running = msgspec.structs.replace(service, role=role, grace=self._used[SERVICE_GROUP, "grace"])
        if sentence := service_settings.trims_unread_links(running):
            _log.warning("%s", sentence)

    def _values(self, configuration: Configuration, logging: log.Values) -> Used:
        found = {(LOG_GROUP, name): value for name, value in logging.items()}
        found.update(configuration.all_values(self._drivers))
        return found


def _named(found: set[tuple[str, str]]) -> str:
    return ", ".join(f"{name} in [{group}]" for group, name in sorted(found))
