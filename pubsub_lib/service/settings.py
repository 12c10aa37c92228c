"""The settings of the publisher service from an INI file, and the checks that they can be used together."""

from typing import Final

import msgspec

from pubsub_lib import exposure
from pubsub_lib.config import options
from pubsub_lib.config.pubsub import GROUP, POLLING_DRIVER, WILDCARDS
from pubsub_lib.config.reading import Configuration, refuse_unknown
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.envelope import MAX_ADDRESS, MAX_INSTEAD
from pubsub_lib.core.leased_publishers import RELAY
from pubsub_lib.errors import ConfigError
from pubsub_lib.exposure import is_loopback
from pubsub_lib.free_port import has_free_port
from pubsub_lib.logs import logger
from pubsub_lib.publisher.opening import is_bound
from pubsub_lib.replica.parent_channel import OWN_HOST, host_of
from pubsub_lib.settings import Settings
from pubsub_lib.store import sqlite, url
from pubsub_lib.sync.urls import ChannelUrl, channel_urls

_log = logger(__name__)

_IPV4_LOOPBACK: Final = (OWN_HOST, "localhost")
_THIS_HOST: Final = ("localhost", "127.0.0.1", "::1")


def load(configuration: Configuration) -> tuple[Settings, ServiceSettings]:
    """Both kinds of settings of one service.

    Raises ConfigError for invalid, contradicting or unknown options; DriverError for an unknown driver.
    """
    settings = Settings.from_configuration(configuration)
    configuration.check_names()
    for file, sections in configuration.files.items():
        refuse_unknown(sections, options.SERVICE_GROUP, [option.dest for option in options.SERVICE], file)
    values = configuration.values(options.SERVICE_GROUP, options.SERVICE)
    if not values["address"] and is_bound(settings):  # with other drivers no replica connects to the service
        values["address"] = reachable(settings.bind_address, configuration.conf[GROUP].local_ip)
    try:
        service = msgspec.convert(values, ServiceSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the group [{options.SERVICE_GROUP}] cannot be used: {error}; correct it") from error
    if service.role == RELAY:
        check_relay(settings, service)
    else:
        check(settings)
        _check_origin(service)
    _check_free_port(settings, service)
    _check_ports(settings, service)
    _check_syncs(settings, service)
    exposure.check(listeners(settings, service), settings.insecure)
    _warn_of_loopback(service.address, "the directory" if settings.store_url else "pubsub-db agents")
    if settings.store_url:
        url.warn_of_unverified_server(settings.store_url)
    return settings, service


def check(settings: Settings) -> None:
    """Reject (ConfigError) settings with which no publisher service can run."""
    _check_publisher(settings)
    if not settings.store_url:
        raise ConfigError(
            f"an origin service sends the changes in the database, but store_url is missing in [{GROUP}]; give its URL "
            f"(sqlite:///net.db), or set role = relay in [{options.SERVICE_GROUP}] if it is to follow its parents"
        )
    _check_database(settings)


def _check_publisher(settings: Settings) -> None:
    if not settings.service_name:
        raise ConfigError("a publisher service needs a stable name; set service_name in [pubsub]")
    if settings.driver == POLLING_DRIVER:
        raise ConfigError(
            "a publisher service has nothing to do while replicas follow by polling; "
            "set enable_pub_sub = true in [pubsub]"
        )
    path = settings.bind_address.removeprefix("ipc://")
    if path != settings.bind_address and not path.startswith("/"):
        raise ConfigError(
            f"with publisher_transport = ipc a service binds a file, but {settings.bind_address!r} names none; set "
            "publisher_bind_address to an absolute path, or publisher_transport = tcp, in [pubsub]"
        )


def check_relay(settings: Settings, service: ServiceSettings) -> None:
    """Reject (ConfigError) settings with which no relay can run. No host's name is looked up."""
    _check_publisher(settings)
    if settings.store_url:
        _check_database(settings)
    group = f"role = relay in [{options.SERVICE_GROUP}]"
    if not settings.topics:
        raise ConfigError(f"{group} needs named topics, which the relay follows; set topics in [{GROUP}]")
    _check_above(settings, service, group)
    _check_urls(settings, service, group)
    _check_drain(settings, service)
    if settings.group_commit == "host":
        raise ConfigError(
            f"group_commit = host needs a service that commits for its workers, and {group} does not; set "
            f"group_commit = process in [{GROUP}]"
        )


def _check_origin(service: ServiceSettings) -> None:
    for option, given, does in (
        ("drain_to", service.drain_to, "whose replicas it sends to other relays"),
        ("sibling_urls", service.sibling_urls, "which reads objects from other relays"),
    ):
        if given:
            raise ConfigError(
                f"{option} in [{options.SERVICE_GROUP}] is of a relay, {does}; set role = relay, or remove {option}"
            )


def _check_above(settings: Settings, service: ServiceSettings, group: str) -> None:
    if not settings.parents and settings.store_url and not settings.discovery_interval:
        raise ConfigError(
            f"{group} has no publisher to listen to, because parents is empty and discovery_interval is 0; set one of "
            f"them in [{GROUP}]"
        )
    own = {settings.bind_address, service.address}
    if found := own.intersection(settings.parents):
        raise ConfigError(
            f"{group} has its own address {min(found)} among its parents; remove it from parents in [{GROUP}]"
        )
    if settings.parents or settings.store_url:
        return
    if not settings.addresses:
        raise ConfigError(
            f"{group} has no publisher to listen to, because parents and publishers_ips are empty, and without "
            f"store_url there is no directory; set one of them in [{GROUP}]"
        )
    if found := own.intersection(settings.addresses):
        raise ConfigError(
            f"{group} without store_url and parents listens to publishers_ips, which names its own address "
            f"{min(found)}; name the origin services there, or set parents, in [{GROUP}]"
        )


def listening(settings: Settings) -> Settings:
    """The settings of a relay, with the addresses that its driver listens to from the start: ``publishers_ips`` without
    parents and without the directory. Otherwise ``publishers_ips`` is for this host's replicas.
    """
    return msgspec.structs.replace(settings, addresses=()) if settings.parents or settings.store_url else settings


def _check_urls(settings: Settings, service: ServiceSettings, group: str) -> None:
    if service.sibling_urls and (settings.sync_url or not settings.store_url):
        raise ConfigError(
            f"{group} has sibling_urls, which it would ask before it reads the database, but with sync_url, or without "
            "store_url, it reads no objects from the database; remove one of them, or set store_url alone"
        )
    for option, urls, section in (
        ("sync_url", settings.sync_url, GROUP),
        ("sibling_urls", service.sibling_urls, options.SERVICE_GROUP),
    ):
        own = [str(each) for each in channel_urls(urls, option) if _is_own(each, service)] if urls else []
        if own:
            raise ConfigError(
                f"{group} would read its syncs from itself at {own[0]}; remove it from {option} in [{section}]"
            )


def _check_drain(settings: Settings, service: ServiceSettings) -> None:
    group = f"drain_to in [{options.SERVICE_GROUP}]"
    if len(service.drain_to) > MAX_INSTEAD:
        raise ConfigError(f"{group} names {len(service.drain_to)} addresses; name {MAX_INSTEAD} at most")
    for address in service.drain_to:
        if not address.partition("://")[2] or len(address) > MAX_ADDRESS or has_free_port(address):
            raise ConfigError(f"{group} names {address!r}, which is no address; write it as tcp://10.0.0.8:8866")
        if address in (settings.bind_address, service.address):
            raise ConfigError(f"{group} names {address}, which is the relay's own address; remove it")


def _is_own(channel: ChannelUrl, service: ServiceSettings) -> bool:
    """Whether a URL is certainly that of this service's HTTP endpoint. No host's name is looked up."""
    own, host = service.metrics_address.strip("[]"), channel.host
    same = host == own or (host in _THIS_HOST and {own, f"[{own}]"} & {*_THIS_HOST, *WILDCARDS})
    return bool(same) and not channel.tls and channel.port == service.metrics_port


def listeners(settings: Settings, service: ServiceSettings) -> exposure.Listeners:
    """The addresses at which this service listens to others than its own workers without keys. Raises DriverError."""
    found = {exposure.PUBLISHER: settings.bind_address} if is_bound(settings) and not settings.keys else {}
    if service.metrics_port:
        option = f"metrics_address in [{options.SERVICE_GROUP}]"
        found[option] = f"http://{service.metrics_address}:{max(service.metrics_port, 0)}"
    return found


def _check_database(settings: Settings) -> None:
    """Reject a SQLite file that is opened read-only: the service writes its leases and trims the changelog."""
    database = url.parse(settings.store_url)
    if database.get_backend_name() != "sqlite":
        return
    for name, writable in (("mode", ("rw", "rwc")), ("immutable", ("0",))):
        for value in database.normalized_query.get(name, ()):
            if value not in writable:
                raise ConfigError(
                    f"the SQLite file {str(sqlite.path_of(database))!r} of store_url is opened with {name}={value}, "
                    f"but a publisher service writes in its database; remove {name} from store_url"
                )


def _check_free_port(settings: Settings, service: ServiceSettings) -> None:
    """The address in the directory has the port that is bound: only that of the port 0 is replaced."""
    free = has_free_port(settings.bind_address)
    if not service.address or not is_bound(settings) or has_free_port(service.address) == free:
        return
    own = f"address in [{options.SERVICE_GROUP}] is {service.address}"
    if free:
        raise ConfigError(
            f"{own}, but publisher_port = 0 has another port at each start; write the port 0 there too, or remove it"
        )
    raise ConfigError(f"{own}, but publisher_port in [{GROUP}] is not 0; write its port, or remove address")


def _check_ports(settings: Settings, service: ServiceSettings) -> None:
    """Reject two listeners of this service on one port: the second one could not be bound."""
    scheme, _, rest = settings.bind_address.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme == "tcp" and port != "0" and port == str(service.metrics_port) and meet(host, service.metrics_address):
        raise ConfigError(
            f"metrics_port in [{options.SERVICE_GROUP}] and publisher_port in [{GROUP}] are both {port}; "
            "change one of them"
        )


def _check_syncs(settings: Settings, service: ServiceSettings) -> None:
    if service.serve_syncs and not service.metrics_port:
        raise ConfigError(
            f"serve_syncs = true in [{options.SERVICE_GROUP}] needs the service's HTTP endpoint; set metrics_port"
        )
    if service.serve_syncs and settings.keys and not settings.insecure:
        raise ConfigError(
            f"serve_syncs = true in [{options.SERVICE_GROUP}] lets all who reach the HTTP endpoint read all objects, "
            "which keys = true is to prevent; set one of them to false, or insecure = true in [pubsub]"
        )


def names_channel(settings: Settings, service: ServiceSettings) -> bool:
    """Whether hellos name the port of the sync channel. They name no host, so a replica asks at the host of the
    publisher's address: only if the endpoint listens there, too.
    """
    if not service.serve_syncs or not is_bound(settings):
        return False
    endpoint = service.metrics_address.strip("[]")
    own = {host_of(address) for address in (settings.bind_address, service.address) if address}
    if endpoint == "0.0.0.0":  # noqa: S104 - recognized
        return not any(":" in host for host in own)
    if endpoint in _IPV4_LOOPBACK:
        return not own.isdisjoint(_IPV4_LOOPBACK)
    return endpoint == "::" or endpoint in own


def trims_unread_links(service: ServiceSettings) -> str:
    """The sentence about a ``keep_time`` so short that links would not be read from the changelog, or ""."""
    needed = service.follow_interval + service.grace
    if not 0 < service.keep_time <= needed:
        return ""
    return (
        f"keep_time in [{options.SERVICE_GROUP}] is {service.keep_time:g} s, so links would leave the changelog "
        f"before the service has read them (follow_interval + grace = {needed:g} s); raise it, or set 0"
    )


def meet(host: str, other: str) -> bool:
    """Whether two listeners on these addresses conflict when their ports are equal."""
    hosts = {host.strip("[]"), other.strip("[]")}
    return len(hosts) == 1 or not hosts.isdisjoint(("*", "0.0.0.0", "::"))  # noqa: S104 - recognized


def reachable(bind_address: str, local_ip: str) -> str:
    """The directory's address for a service that binds ``bind_address``: replicas cannot connect to a wildcard."""
    scheme, separator, rest = bind_address.partition("://")
    host, colon, port = rest.rpartition(":")
    return f"{scheme}{separator}{local_ip}{colon}{port}" if host in WILDCARDS else bind_address


def _warn_of_loopback(address: str, where: str) -> None:
    scheme, _, rest = address.partition("://")
    if scheme == "tcp" and is_loopback(rest):
        _log.warning(
            "replicas on other hosts cannot reach this service: %s will name it as %s; set "
            "publisher_bind_address or local_ip in [pubsub], or address in [%s]",
            where,
            address,
            options.SERVICE_GROUP,
        )
