"""The settings of the publisher service from an INI file, and the checks that they can be used together."""

from typing import Final

import msgspec

from pubsub_lib import exposure
from pubsub_lib.config import options
from pubsub_lib.config.pubsub import GROUP, binds_every_interface
from pubsub_lib.config.reading import Configuration, refuse_unknown
from pubsub_lib.config.service import STANDBY, ServiceSettings
from pubsub_lib.core.leased_publishers import ORIGIN
from pubsub_lib.errors import ConfigError
from pubsub_lib.exposure import is_loopback
from pubsub_lib.free_port import has_free_port
from pubsub_lib.logs import logger
from pubsub_lib.publisher.opening import is_bound
from pubsub_lib.replica.parent_channel import OWN_HOST, host_of
from pubsub_lib.service import roles
from pubsub_lib.settings import Settings
from pubsub_lib.store import url

_log = logger(__name__)

_IPV4_LOOPBACK: Final = (OWN_HOST, "localhost")


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
    roles.check(settings, service)
    _check_syncs(settings, service)
    if service.role == STANDBY:
        settings, service = roles.silent(settings), msgspec.structs.replace(service, address="")
    _check_free_port(settings, service)
    _check_ports(settings, service)
    exposure.check(listeners(settings, service), settings.insecure)
    _warn_of_loopback(service.address, "the directory" if settings.store_url else "pubsub-db agents")
    if settings.store_url:
        url.warn_of_unverified_server(settings.store_url)
    return settings, service


def listeners(settings: Settings, service: ServiceSettings) -> exposure.Listeners:
    """The addresses at which this service listens to others than its own workers without keys. Raises DriverError."""
    found = {exposure.PUBLISHER: settings.bind_address} if is_bound(settings) and not settings.keys else {}
    if service.metrics_port:
        option = f"metrics_address in [{options.SERVICE_GROUP}]"
        found[option] = f"http://{service.metrics_address}:{max(service.metrics_port, 0)}"
    return found


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
    """The sentence about a ``keep_time`` so short that links would not be read from the changelog, or "": only an
    origin reads and trims it.
    """
    needed = service.follow_interval + service.grace
    if service.role != ORIGIN or not 0 < service.keep_time <= needed:
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
    return f"{scheme}{separator}{local_ip}{colon}{port}" if binds_every_interface(host) else bind_address


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
