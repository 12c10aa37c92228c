"""The settings of one program, frozen: written in Python, or read from an INI file by way of oslo.config."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec
from oslo_config import cfg

from pubsub_lib.api import DriverSettings
from pubsub_lib.config import installed_drivers, options
from pubsub_lib.config.fields import values_of
from pubsub_lib.config.program import (
    HANDLER_PREFIX,
    JOURNAL_PREFIX,
    STORE_PREFIX,
    ProgramSettings,
    StoreSettings,
    Text,
)
from pubsub_lib.config.pubsub import GROUP, POLLING_DRIVER, PubSubSettings
from pubsub_lib.config.reading import Configuration
from pubsub_lib.core.handler_queue import HandlerPolicy
from pubsub_lib.core.limits import Limits, check_name
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import ConfigError, InvalidValueError
from pubsub_lib.exposure import is_loopback
from pubsub_lib.free_port import has_free_port
from pubsub_lib.journal import JournalSettings
from pubsub_lib.masking import masked_fields, masked_repr
from pubsub_lib.sync.urls import channel_urls

__all__ = ["Settings", "StoreSettings"]

MIN_ANNOUNCE_INTERVAL: Final = 0.1
"""Minimum of ``announce_interval``, in seconds, except for 0."""
_CHANGE_OVERHEAD: Final = 4096
"""Maximum size of the rest of a frame with one value: names, keys, points (all bounded, rule W3)."""


class Settings(ProgramSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a replica, a publisher and a store. Immutable, so any thread may share it.

    The fields with the name of an option of ``[pubsub]`` are described in docs/configuration.md. The constructor raises
    ConfigError for a value of the wrong type or range, in one sentence that names it.
    """

    driver: Text = POLLING_DRIVER
    """Name of the driver by which a replica receives changes. By default it polls the database."""
    multiproc_driver: str = ""
    """Name of the driver from workers to the host's publisher service; "": every process sends by itself."""
    multiproc_socket: str = ""
    """Path of the socket on which the publisher service listens for its workers."""
    addresses: tuple[str, ...] = ()
    """Addresses of the publishers, for example ``tcp://10.0.0.1:8866``."""
    bind_address: str = ""
    """Address that a publisher binds, for example ``tcp://10.0.0.1:8866``."""
    keys: bool = False
    """Whether publishers and replicas prove their keys, and connections are encrypted."""
    insecure: bool = False
    """Whether a publisher or an HTTP endpoint may listen where others can reach it, although there are no keys."""
    timing: Timing = Timing()
    limits: Limits = Limits()
    handling: HandlerPolicy = HandlerPolicy()
    """How handlers are called. In an INI file the names begin with ``handler_``."""
    driver_options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The driver's own options by name; the driver checks them."""
    multiproc_options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The own options of the driver between workers and service."""
    journal: JournalSettings = JournalSettings()
    """Whether and where a journal for the audit is written. In an INI file the names begin with ``journal_``."""
    store: StoreSettings = StoreSettings()
    """How the database is used: pool, timeouts, retries. In an INI file the names begin with ``store_``."""

    def __post_init__(self) -> None:
        """Check the rules that a type cannot express, and those that msgspec checks only when it decodes."""
        for name, kind in get_type_hints(type(self), include_extras=True).items():
            if name not in ("driver_options", "multiproc_options"):
                _check_field(name, getattr(self, name), kind)
        self.timing.check()
        self.handling.check()
        try:
            for topic in self.topics:
                check_name("topic", topic)
            if self.service_name:
                check_name("service name", self.service_name)
            if self.replica_name:
                check_name("replica name", self.replica_name)
        except InvalidValueError as error:
            raise ConfigError(f"the settings cannot be used: {error}") from error
        self._check_parents()
        if self.group_commit == "host" and not self.multiproc_socket:
            raise ConfigError(
                "group_commit = host needs the socket of the host's publisher service; set enable_pub_sub and "
                "pub_sub_use_multiproc (Settings.multiproc_socket), or group_commit = process"
            )
        self._check_sources()
        if self.keys and not self.discovery_interval:
            raise ConfigError("keys = true needs the directory, which has the publishers' keys; set discovery_interval")
        if self.limits.max_value_bytes + _CHANGE_OVERHEAD > self.limits.max_frame_bytes:
            raise ConfigError(
                f"max_frame_bytes ({self.limits.max_frame_bytes}) leaves no room for a value of max_value_bytes "
                f"({self.limits.max_value_bytes}) and {_CHANGE_OVERHEAD} further bytes; raise it or lower the other"
            )

    def _check_sources(self) -> None:
        if 0 < self.announce_interval < MIN_ANNOUNCE_INTERVAL:
            raise ConfigError(
                f"announce_interval is {self.announce_interval} s, below the minimum of {MIN_ANNOUNCE_INTERVAL} s; "
                "raise it, or set 0 for no announcements"
            )
        if self.sync_url:
            channel_urls(self.sync_url)
        elif not self.store_url and not self.parents:
            raise ConfigError(
                "store_url is missing; give a SQLAlchemy URL such as sqlite:///net.db, or, for a replica or a relay "
                "without a database, sync_url or parents"
            )
        if self.keys and not self.store_url:
            raise ConfigError("keys = true needs the publishers' keys, which are in the database; set store_url")

    def _check_parents(self) -> None:
        for address in self.parents:
            if not address.partition("://")[2] or has_free_port(address):
                raise ConfigError(
                    f"parents names {address!r}, which is no address; write it as tcp://10.0.0.1:8866, with its port; "
                    "pubsub-db publishers shows that of a relay with publisher_port = 0"
                )
        if len(set(self.parents)) < len(self.parents):
            raise ConfigError(f"parents names an address twice: {', '.join(self.parents)}; name each relay once")

    def __repr__(self) -> str:
        """Without passwords: logs and tracebacks show it."""
        return masked_repr(self.__struct_fields__, self)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same for rich."""
        return masked_fields(self.__struct_fields__, self)

    @property
    def fixed_addresses(self) -> tuple[str, ...]:
        """The addresses to which a replica connects without the directory: none with keys, which only it has."""
        return () if self.keys else self.addresses

    def for_driver(self) -> DriverSettings:
        """The part of these settings that the driver receives."""
        return DriverSettings(
            limits=self.limits,
            store_url=self.store_url,
            addresses=self.fixed_addresses,
            bind_address=self.bind_address,
            keys=self.keys,
            client_key_file=self.client_key_file,
            options=dict(self.driver_options),
        )

    def for_multiproc(self) -> DriverSettings:
        """The part of these settings that the driver between workers and service receives."""
        return DriverSettings(
            limits=self.limits,
            bind_address=f"ipc://{self.multiproc_socket}",
            options=dict(self.multiproc_options),
        )

    def needs(self) -> dict[str, str]:
        """The capabilities that the driver needs, each with its reason, for ``loader.load(settings.driver, ...)``."""
        found: dict[str, str] = {"keys": "keys = true in [pubsub]"} if self.keys else {}
        for address in (*self.addresses, *self.parents, self.bind_address):
            scheme, _, rest = address.partition("://")
            if scheme == "ipc":
                found.setdefault("cross_process", f"the address {address}")
            elif scheme != "memory" and rest and not is_loopback(rest):
                found.setdefault("cross_host", f"the address {address}")
        return found

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> "Settings":
        """The settings in this ``conf``, which was already called with its files. It is read once and not kept.
        The options of a Dragonflow file that have no effect are logged, in one warning for each file.

        Raises ConfigError for an invalid option, DriverError for an unknown driver.
        """
        return cls.from_configuration(Configuration.of(conf))

    @classmethod
    def from_file(cls, path: str | Path) -> "Settings":
        """The settings in this INI file; no other file is read. Blocks while it reads the file. An environment variable
        ``OS_PUBSUB__<OPTION>`` (``OS_PUBSUB__STORE_URL``) takes precedence over the file's option.

        Raises ConfigError also for an unknown option, which is usually a typo.
        """
        configuration = Configuration.read(path)
        settings = cls.from_configuration(configuration)
        configuration.check_names()
        return settings

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> "Settings":
        """As :meth:`from_conf`."""
        configuration.warn_of_dragonflow()
        values = configuration.values(GROUP, options.OPTIONS)
        pubsub = PubSubSettings(**values_of(PubSubSettings, values))
        pubsub.check()
        found_by = (pubsub.publisher_port, values["discovery_interval"], values["parents"])
        if pubsub.enable_pub_sub and not any(found_by):
            raise ConfigError(
                "with publisher_port = 0 replicas find publishers in the directory only; set discovery_interval above "
                f"0 in [{GROUP}], or publisher_port"
            )
        if configuration.sets(GROUP, "pub_sub_driver"):
            pubsub.warn_of_unused_driver()
        # Without a name this program cannot publish, and so does not bind.
        if values["service_name"] and installed_drivers.binds(pubsub.driver):
            pubsub.warn_of_restriction()
        if not any(values[name] for name in ("store_url", "sync_url", "parents")):
            raise ConfigError(
                f"the option 'store_url' in group [{GROUP}] is missing; give a SQLAlchemy URL such as "
                "sqlite:///net.db, or, for a replica or a relay without a database, sync_url or parents"
            )
        return cls(
            **values_of(ProgramSettings, values),
            driver=pubsub.driver,
            multiproc_driver=pubsub.multiproc_driver,
            multiproc_socket=pubsub.multiproc_socket,
            addresses=pubsub.addresses,
            bind_address=pubsub.bind_address,
            keys=pubsub.keys and pubsub.enable_pub_sub,
            insecure=pubsub.insecure,
            timing=Timing(**values_of(Timing, values)),
            limits=Limits(**values_of(Limits, values)),
            store=StoreSettings(**values_of(StoreSettings, values, STORE_PREFIX)),
            journal=JournalSettings(**values_of(JournalSettings, values, JOURNAL_PREFIX)),
            handling=HandlerPolicy(**values_of(HandlerPolicy, values, HANDLER_PREFIX)),
            driver_options=configuration.driver_options(pubsub.driver),
            multiproc_options=(
                configuration.driver_options(pubsub.multiproc_driver) if pubsub.multiproc_driver else {}
            ),
        )


def _check_field(name: str, value: object, kind: Any) -> None:
    try:
        # Through builtins, because msgspec does not check the fields of a Struct that exists.
        plain = msgspec.to_builtins(value, builtin_types=(bytes,))
        msgspec.convert(plain, kind)
    except (msgspec.ValidationError, TypeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        where = name
        if " - at `$." in reason:
            reason, _, inner = reason.partition(" - at `$.")
            where = f"{name}.{inner.rstrip('`')}"
        shown = "" if name == "store_url" else f" is {_inner(value, where)!r}"  # a URL may hold a password
        raise ConfigError(f"the setting {where}{shown} but must be: {reason}; correct it") from error
    numbers = {f"{name}.{inner}": each for inner, each in plain.items()} if isinstance(plain, dict) else {name: plain}
    for where, number in numbers.items():
        if isinstance(number, float) and not math.isfinite(number):
            raise ConfigError(f"the setting {where} is {number} but must be finite; correct it")


def _inner(value: object, where: str) -> object:
    for part in where.split(".")[1:]:
        value = getattr(value, part, value)
    return value
