"""The checks that settings can be used by a service of its role: origin, relay or standby."""

from typing import Final

import msgspec

from pubsub_lib.config import options
from pubsub_lib.config.pubsub import GROUP, POLLING_DRIVER, binds_every_interface
from pubsub_lib.config.service import STANDBY, ServiceSettings
from pubsub_lib.core.envelope import MAX_ADDRESS, MAX_INSTEAD
from pubsub_lib.core.leased_publishers import RELAY
from pubsub_lib.errors import ConfigError
from pubsub_lib.free_port import has_free_port
from pubsub_lib.settings import Settings
from pubsub_lib.store import sqlite, url
from pubsub_lib.sync.urls import ChannelUrl, channel_urls

_THIS_HOST: Final = ("localhost", "127.0.0.1", "::1")


def check(settings: Settings, service: ServiceSettings) -> None:
    """Reject (ConfigError) settings with which no service of this role can run. No host's name is looked up."""
    if service.role == RELAY:
        check_relay(settings, service)
        return
    _check_no_relay(service)
    if service.role == STANDBY:
        check_standby(settings, service)
    else:
        check_origin(settings)


def check_origin(settings: Settings) -> None:
    """Reject (ConfigError) settings with which no origin service can run."""
    _check_publisher(settings)
    if not settings.store_url:
        raise ConfigError(
            f"an origin service sends the changes in the database, but store_url is missing in [{GROUP}]; give its URL "
            f"(sqlite:///net.db), or set role = relay in [{options.SERVICE_GROUP}] if it is to follow its parents"
        )
    _check_database(settings)


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
    _check_no_commits(settings, group)


def check_standby(settings: Settings, service: ServiceSettings) -> None:
    """Reject (ConfigError) settings with which no service can answer syncs from a standby."""
    _check_name(settings)
    group = f"role = standby in [{options.SERVICE_GROUP}]"
    if not settings.store_url:
        raise ConfigError(f"{group} answers syncs from a database, but store_url is missing in [{GROUP}]; give its URL")
    if not service.serve_syncs:
        raise ConfigError(f"{group} does nothing but answer syncs; set serve_syncs = true there, too")
    _check_no_commits(settings, group)


def _check_no_relay(service: ServiceSettings) -> None:
    for option, given, does in (
        ("drain_to", service.drain_to, "whose replicas it sends to other relays"),
        ("sibling_urls", service.sibling_urls, "which reads objects from other relays"),
    ):
        if given:
            raise ConfigError(
                f"{option} in [{options.SERVICE_GROUP}] is of a relay, {does}; set role = relay, or remove {option}"
            )


def listening(settings: Settings) -> Settings:
    """The settings of a relay, with the addresses that its driver listens to from the start: ``publishers_ips`` without
    parents and without the directory. Otherwise ``publishers_ips`` is for this host's replicas.
    """
    return msgspec.structs.replace(settings, addresses=()) if settings.parents or settings.store_url else settings


def silent(settings: Settings) -> Settings:
    """The settings of a service that sends nothing: without a driver, its address and its keys."""
    without = {"driver": POLLING_DRIVER, "multiproc_driver": "", "bind_address": "", "keys": False}
    return msgspec.structs.replace(settings, **without)


def _check_name(settings: Settings) -> None:
    if not settings.service_name:
        raise ConfigError("a publisher service needs a stable name; set service_name in [pubsub]")


def _check_publisher(settings: Settings) -> None:
    _check_name(settings)
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


def _check_no_commits(settings: Settings, group: str) -> None:
    if settings.group_commit == "host":
        raise ConfigError(
            f"group_commit = host needs a service that commits for its workers, and {group} does not; set "
            f"group_commit = process in [{GROUP}]"
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
    same = host == own or (host in _THIS_HOST and (own in _THIS_HOST or binds_every_interface(own)))
    return same and not channel.tls and channel.port == service.metrics_port


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
