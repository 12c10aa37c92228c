"""The settings of one program, frozen: written in Python, or read from an INI file by way of oslo.config."""

import difflib
import ipaddress
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import msgspec
from oslo_config import cfg

from pubsub_lib import dragonflow, installed_drivers, options
from pubsub_lib.api import DriverSettings
from pubsub_lib.core.handler_queue import HandlerPolicy
from pubsub_lib.core.limits import Limits, check_name
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import ConfigError, InvalidValueError
from pubsub_lib.journal import JournalSettings
from pubsub_lib.logs import logger
from pubsub_lib.masking import masked, masked_fields, masked_repr
from pubsub_lib.option_places import groups_of, misplaced

_log = logger(__name__)

_CHANGE_OVERHEAD: Final = 4096
"""Maximum size of the rest of a frame with one value: names, keys, points (all bounded, rule W3)."""


_IPV6: Final = 6
WILDCARDS: Final = ("*", "0.0.0.0", "[::]")
"""Hosts of addresses that bind every interface."""
_NEAR: Final = 0.85
"""Similarity (difflib's ratio) from which on a group's name counts as a misspelt name of a known group."""

_Count = Annotated[int, msgspec.Meta(ge=1, le=options.STORE_MAX_COUNT)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=options.STORE_MAX_SECONDS)]


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a store treats its database: pool, timeouts, retries, pages. Frozen; made once. All times in seconds.

    A writer that stops while it holds the counter blocks all writers. Therefore ``lock_timeout`` (of the waiting
    writers) and ``idle_in_transaction_timeout`` (of the stopped one; MySQL has none) are short; MariaDB rounds both up
    to whole seconds, and MySQL the first. SQLite has neither an idle-in-transaction nor a statement timeout.
    """

    pool_size: _Count = 5
    """Connections that a process keeps open for writing, and as many for reading; for short times up to twice that."""
    connect_timeout: _Seconds = 5.0
    statement_timeout: _Seconds = 30.0
    """Maximum time of one SQL statement; a page of a sync is one statement."""
    lock_timeout: _Seconds = 5.0
    """Maximum wait for one database lock (SQLite: for the write lock), and for a free connection of the pool."""
    idle_in_transaction_timeout: _Seconds = 10.0
    retry_attempts: _Count = 10
    """Maximum number of attempts of one operation that meets deadlocks, lock timeouts or lost connections."""
    retry_max_seconds: _Seconds = 30.0
    """No further attempt of an operation starts after this time."""
    page_size: _Count = 2000
    """Maximum number of rows that one statement of a sync reads."""
    max_delta_links: _Count = 100_000
    """A delta of more links is answered as incomplete: the number of objects bounds a full sync, nothing a delta."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a replica, a publisher and a store. Immutable, so any thread may share it.

    The constructor raises ConfigError for a value of the wrong type or range, in one sentence that names it.
    """

    store_url: Annotated[str, msgspec.Meta(min_length=1)]
    """SQLAlchemy URL of the database."""
    driver: Annotated[str, msgspec.Meta(min_length=1)] = options.POLLING_DRIVER
    """Name of the driver by which a replica receives changes. By default it polls the database."""
    multiproc_driver: str = ""
    """Name of the driver from workers to the host's publisher service; "": every process sends by itself."""
    multiproc_socket: str = ""
    """Path of the socket on which the publisher service listens for its workers."""
    service: str = ""
    """Stable name of this service; "" for a program that publishes nothing."""
    topics: tuple[str, ...] = ()
    """Topics that a replica subscribes to when its constructor is given none."""
    default_topic: bool = True
    """Whether a replica of named topics also subscribes to the default topic, that of objects without a topic."""
    addresses: tuple[str, ...] = ()
    """Addresses of the publishers, for example ``tcp://10.0.0.1:8866``."""
    bind_address: str = ""
    """Address that a publisher binds, for example ``tcp://10.0.0.1:8866``."""
    timing: Timing = Timing()
    limits: Limits = Limits()
    handling: HandlerPolicy = HandlerPolicy()
    paranoid: bool = False
    """Compare cache and database after every sync, and fail on a difference. For tests."""
    driver_options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The driver's own options by name; the driver checks them."""
    multiproc_options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The own options of the driver between workers and service."""
    discovery_interval: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    """How often a replica reads publishers' addresses from the directory, in seconds. 0: it uses only ``addresses``."""
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """HTTP port of a replica's metrics and readiness; 0: none."""
    metrics_address: Annotated[str, msgspec.Meta(min_length=1)] = "127.0.0.1"
    """Address of a replica's HTTP endpoint."""
    journal: JournalSettings = JournalSettings()
    """Whether and where a journal for the audit is written. In an INI file the names begin with ``journal_``."""
    replica_name: str = ""
    """Stable name of a replica in its journal; "": the host's name. Replicas on one host need different names."""
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
            if self.service:
                check_name("service name", self.service)
        except InvalidValueError as error:
            raise ConfigError(f"the settings cannot be used: {error}") from error
        if self.limits.max_value_bytes + _CHANGE_OVERHEAD > self.limits.max_frame_bytes:
            raise ConfigError(
                f"max_frame_bytes ({self.limits.max_frame_bytes}) leaves no room for a value of max_value_bytes "
                f"({self.limits.max_value_bytes}) and {_CHANGE_OVERHEAD} further bytes; raise it or lower the other"
            )

    def __repr__(self) -> str:
        """Without passwords: logs and tracebacks show it."""
        return masked_repr(self.__struct_fields__, self)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same for rich."""
        return masked_fields(self.__struct_fields__, self)

    def for_driver(self) -> DriverSettings:
        """The part of these settings that the driver receives."""
        return DriverSettings(
            limits=self.limits,
            store_url=self.store_url,
            addresses=self.addresses,
            bind_address=self.bind_address,
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
        found: dict[str, str] = {}
        for address in (*self.addresses, self.bind_address):
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
        options.register(conf)
        for path in files_of(conf):
            _warn_of_dragonflow(path)
        values = read_group(conf, options.GROUP, options.OPTIONS)
        enabled = values["enable_pub_sub"]
        driver = values["pub_sub_driver"] if enabled else options.POLLING_DRIVER
        multiproc = enabled and values["pub_sub_use_multiproc"]
        transport, port = values["publisher_transport"], values["publisher_port"]
        for ip in values["publishers_ips"]:
            _check_host("publishers_ips", ip, transport)
            if ip in WILDCARDS:
                raise ConfigError(
                    f"the option 'publishers_ips' in group [{options.GROUP}] holds {ip!r}, to which no replica can "
                    "connect; name the addresses of the hosts that run a publisher, or set local_ip"
                )
        bind = _bind_address(values) if enabled else values["publisher_bind_address"]
        return cls(
            store_url=_needed(values, "store_url", "a SQLAlchemy URL such as sqlite:///net.db"),
            driver=driver,
            multiproc_driver=values["pub_sub_multiproc_driver"] if multiproc else "",
            multiproc_socket=values["publisher_multiproc_socket"] if multiproc else "",
            service=values["service_name"],
            topics=tuple(values["topics"]),
            default_topic=values["default_topic"],
            addresses=tuple(f"{transport}://{ip}:{port}" for ip in values["publishers_ips"]) if enabled else (),
            bind_address=f"{transport}://{bind}:{port}" if enabled else "",
            timing=Timing(**{option.name: values[option.name] for option in options.TIMING}),
            limits=Limits(**{option.name: values[option.name] for option in options.LIMITS}),
            store=StoreSettings(
                **{option.name.removeprefix(options.STORE_PREFIX): values[option.name] for option in options.STORE}
            ),
            journal=JournalSettings(
                **{option.name.removeprefix(options.JOURNAL_PREFIX): values[option.name] for option in options.JOURNAL}
            ),
            replica_name=values["replica_name"],
            handling=HandlerPolicy(
                queue_limit=values["queue_limit"],
                tries=values["handler_tries"],
                backoff=values["handler_backoff"],
                max_backoff=values["max_handler_backoff"],
            ),
            paranoid=values["paranoid"],
            driver_options=_driver_options(conf, driver),
            multiproc_options=_driver_options(conf, values["pub_sub_multiproc_driver"]) if multiproc else {},
            discovery_interval=values["discovery_interval"],
            metrics_port=values["replica_metrics_port"],
            metrics_address=values["replica_metrics_address"],
        )

    @classmethod
    def from_file(cls, path: str | Path) -> "Settings":
        """The settings in this INI file; no other file is read. Blocks while it reads the file. An environment variable
        ``OS_PUBSUB__<OPTION>`` (``OS_PUBSUB__STORE_URL``) takes precedence over the file's option.

        Raises ConfigError also for an unknown option, which is usually a typo.
        """
        conf = cfg.ConfigOpts()
        try:
            conf(args=[], project="pubsub_lib", default_config_files=[str(path)], default_config_dirs=[])
        except (cfg.Error, cfg.ParseError, OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the configuration file {str(path)!r} cannot be read: {_one_line(error)}; "
                "name a readable file in INI format"
            ) from error
        settings = cls.from_conf(conf)
        check_names(path)
        return settings


def is_loopback(rest: str) -> bool:
    """Whether "host:port" is a loopback address, which other hosts cannot reach."""
    host = rest.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_field(name: str, value: object, kind: Any) -> None:
    try:
        # Through builtins, because msgspec does not check the fields of a Struct that exists.
        plain = msgspec.to_builtins(value, builtin_types=(bytes,))
        msgspec.convert(plain, kind)
    except (msgspec.ValidationError, TypeError) as error:
        reason = _one_line(error)
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


def read_group(conf: cfg.ConfigOpts, group: str, opts: Sequence[cfg.Opt]) -> dict[str, Any]:
    """The values of these registered options by name. Raises ConfigError, in one sentence, for an invalid one."""
    values = {}
    for option in opts:
        try:
            values[option.dest] = conf[group][option.dest]
        except (cfg.NoSuchOptError, cfg.TemplateSubstitutionError) as error:
            # The message of oslo.config shows the value, and a URL may hold a password.
            raise ConfigError(
                f"the option {option.name!r} in group [{group}] refers by $ to an option that the group does not have; "
                "write $$ for a dollar sign"
            ) from error
        except (cfg.Error, ValueError) as error:
            raise ConfigError(
                f"the option {option.name!r} in group [{group}] cannot be used: {_reason(error)}; correct it"
            ) from error
        value = values[option.dest]
        if isinstance(value, float) and not math.isfinite(value):  # nan is within every range
            raise ConfigError(
                f"the option {option.name!r} in group [{group}] is {value} but must be finite; correct it"
            )
    return values


def _needed(values: Mapping[str, Any], name: str, example: str) -> str:
    value = str(values[name])
    if not value:
        raise ConfigError(f"the option {name!r} in group [{options.GROUP}] is missing; give {example}")
    return value


def _check_host(option: str, host: str, transport: str) -> None:
    """Refuse (ConfigError) an IP version 6 address without brackets, and a number that is not an IP address."""
    if transport != "tcp":
        return
    try:
        if ipaddress.ip_address(host).version == _IPV6:
            raise ConfigError(
                f"the option {option!r} in group [{options.GROUP}] is {host!r}, of IP version 6; put it into "
                f"brackets: [{host}]"
            )
    except ValueError:
        if host.replace(".", "").isdigit():
            raise ConfigError(
                f"the option {option!r} in group [{options.GROUP}] is {host!r}, not a valid IP address; correct it"
            ) from None


def _bind_address(values: Mapping[str, Any]) -> str:
    """The host to bind. For a wildcard without ``insecure``: ``local_ip`` (loopback if that is not an IP address)."""
    bind = str(values["publisher_bind_address"])
    _check_host("publisher_bind_address", bind, values["publisher_transport"])
    if bind not in WILDCARDS or values["insecure"]:
        return bind
    alone = _numeric(str(values["local_ip"])) or "127.0.0.1"
    if values["service_name"]:  # without a name this program cannot publish, and so does not bind
        what = "loopback only" if is_loopback(f"{alone}:0") else f"local_ip ({alone}) only"
        _log.warning(
            "publisher_bind_address is %r but there are no keys: a driver that binds takes %s; name an address, or set "
            "insecure = true to bind every interface",
            bind,
            what,
        )
    return alone


def _numeric(host: str) -> str:
    """The host as it is written before a port when it is an IP address of one interface; "" for a name or wildcard."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return ""
    if address.is_unspecified:
        return ""
    return f"[{address}]" if address.version == _IPV6 else str(address)


def _driver_options(conf: cfg.ConfigOpts, driver: str) -> dict[str, Any]:
    group, opts = installed_drivers.options_of(driver)
    conf.register_opts(opts, group=group)
    return read_group(conf, group, opts)


def check_names(path: str | Path) -> None:
    """Refuse (ConfigError) an unknown option in a readable INI file. Blocks while it reads the file.

    Only ``[pubsub]`` and the drivers' groups are ours. Other groups may belong to other programs that share the file.
    """
    sections = sections_of(path)
    path = str(path)
    drivers = installed_drivers.groups()
    refuse_misspelt_groups(sections, (options.GROUP, options.SERVICE_GROUP, dragonflow.GROUP, *drivers.values()), path)
    elsewhere = misplaced(sections)
    if elsewhere:
        raise ConfigError(
            f"{path!r} sets options in groups where they are not read: {', '.join(elsewhere)}; move each to its group, "
            "or set it there as well if another program reads the one that you have"
        )
    refuse_unknown(sections, options.GROUP, [*options.OPTIONS, cfg.BoolOpt(dragonflow.SWITCH)], path)
    for driver, group in drivers.items():
        if group in sections:
            refuse_unknown(sections, group, installed_drivers.options_of(driver)[1], path)


def sections_of(path: str | Path) -> dict[str, dict[str, list[str]]]:
    """The contents of a readable INI file: group -> option -> its values, one for each time it is set."""
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


def refuse_unknown(
    sections: Mapping[str, Mapping[str, object]], group: str, opts: Sequence[cfg.Opt], path: str
) -> None:
    """Raises ConfigError for an option of this group of a file that is not one of these, naming the nearest one."""
    known = [option.dest for option in opts]
    for name in sections.get(group, {}):
        if name not in known:  # oslo.config does not read max-idle-time for max_idle_time
            near = difflib.get_close_matches(name, known, 1)
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


def _warn_of_dragonflow(path: Path) -> None:
    """Log the options of a Dragonflow file that have no effect, in one warning."""
    found = dragonflow.without_effect(list(sections_of(path).get(dragonflow.GROUP, ())), options.dragonflow_names())
    if found:
        _log.warning(
            "%r sets options of Dragonflow in [%s] that have no effect here: %s; see docs/dragonflow.md",
            str(path),
            dragonflow.GROUP,
            ", ".join(found),
        )


def _reason(error: BaseException) -> str:
    """Why a value is invalid, without oslo.config's internal description of the value's place."""
    text = _one_line(error)
    before, separator, reason = text.partition(" is not valid: ")
    return reason[:1].lower() + reason[1:] if separator and "LocationInfo(" in before else text


def _one_line(error: BaseException) -> str:
    return masked(" ".join(str(error).split()).rstrip("."))
