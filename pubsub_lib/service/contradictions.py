"""The findings of ``publisher-service --check``: options that are valid one by one and contradict each other.

Each finding is one sentence: the options, their values, and what to set. Only the INI file is opened, and no host's
name is looked up.
"""

import ipaddress
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import URL

from pubsub_lib import contract, loader
from pubsub_lib.config import dragonflow, installed_drivers, options
from pubsub_lib.config.program import JOURNAL_PREFIX
from pubsub_lib.config.pubsub import GROUP, binds_every_interface
from pubsub_lib.config.reading import Configuration
from pubsub_lib.config.service import STANDBY, ServiceSettings
from pubsub_lib.core.leased_publishers import RELAY
from pubsub_lib.errors import PubSubError
from pubsub_lib.exposure import is_loopback_host
from pubsub_lib.publisher.opening import is_bound
from pubsub_lib.service.settings import meet, trims_unread_links
from pubsub_lib.settings import Settings
from pubsub_lib.store import sqlite, url

_OURS: Final = ("pubsub", "publisher")
"""How the names of our groups begin, those of drivers included."""


class _Found(msgspec.Struct, frozen=True):
    """All compared settings."""

    configuration: Configuration
    settings: Settings
    service: ServiceSettings
    values: Mapping[str, Any]
    """The options of ``[pubsub]`` as the file has them."""
    address_given: bool
    """``address`` in ``[publisher_service]`` is set, and not derived."""

    @property
    def bound(self) -> str:
        """The host that is bound; "" for anything but tcp."""
        return _host(self.settings.bind_address)

    @property
    def publishers(self) -> Sequence[str]:
        """``publishers_ips``."""
        return tuple(self.values["publishers_ips"])

    @property
    def database(self) -> URL:
        """The parsed ``store_url``."""
        return url.parse(self.settings.store_url)

    def is_own(self, host: str) -> bool:
        """Whether ``host`` is certainly this host, on which the file is read."""
        return is_loopback_host(host) or _same(host, str(self.values["local_ip"]))

    @property
    def others(self) -> list[str]:
        """Publishers on other hosts."""
        return [each for each in self.publishers if not self.is_own(each)]


def find(configuration: Configuration, settings: Settings, service: ServiceSettings) -> list[str]:
    """One sentence for each contradiction in this configuration, from which the settings were made.

    Raises ConfigError for an invalid database URL.
    """
    values = configuration.values(GROUP, options.OPTIONS)
    given = configuration.values(options.SERVICE_GROUP, options.SERVICE)["address"]
    found = _Found(configuration, settings, service, values, bool(given))
    rules: tuple[Callable[[_Found], Iterator[str]], ...] = (
        _names, _driver, _in_directory, _reachable_here, _reachable_elsewhere, _discovered, _transport,
        _shared_database, _listeners, _paths, _journals, _trimming,
    )  # fmt: skip
    if service.role == RELAY:  # it takes nothing from workers, and does not listen to publishers_ips
        rules = (_names, _driver, _in_directory, _listeners, _paths, _journals)
    if service.role == STANDBY:  # without a driver and files of its own
        rules = (_names, _listeners)
    return [sentence for rule in rules for sentence in rule(found)]


def _names(found: _Found) -> Iterator[str]:
    read = {GROUP, options.SERVICE_GROUP, *installed_drivers.groups().values()}
    for sections in found.configuration.files.values():
        for group, given in sections.items():
            if group not in read and group.startswith(_OURS):
                yield f"no program and no installed driver reads the group [{group}]; remove it, or install its driver"
            if group not in read and group != dragonflow.GROUP:
                continue
            ours = options.old_names() if group == GROUP else {}
            times = Counter(ours.get(name, name) for name, values in given.items() for _ in values)
            for name, number in times.items():
                if number > 1:
                    yield f"{name} is set {number} times in [{group}], and only one of them counts; remove the others"
        typos = dragonflow.typos(list(sections.get(dragonflow.GROUP, ())), options.dragonflow_names())
        for name, near in typos.items():
            yield f"[{dragonflow.GROUP}] sets an unknown option {name!r}; did you mean {near!r}?"


def _driver(found: _Found) -> Iterator[str]:
    settings = found.settings
    try:
        driver = loader.load(
            settings.driver,
            {**settings.needs(), "cross_process": "the publisher service, which is a process of its own"},
        )
        keys = settings.keys and bool(settings.client_key_file)  # each replica has a key; the service needs none
        contract.subscriber(driver, msgspec.structs.replace(settings.for_driver(), keys=keys))  # as a replica does
    except PubSubError as error:
        yield str(error)
        return
    if driver.capabilities.bind_based and not settings.multiproc_driver and found.service.role != RELAY:
        yield (
            f"pub_sub_use_multiproc is false, so every program would bind {settings.bind_address} itself, which the "
            "service uses; set pub_sub_use_multiproc = true, or run no service"
        )


def _reachable_here(found: _Found) -> Iterator[str]:
    """Replicas of this host connect to the address that the service binds."""
    bound = found.bound
    if not _comparable(found) or binds_every_interface(bound):
        return
    for ip in found.publishers:
        if found.is_own(ip) and not _same(ip, bound) and not (is_loopback_host(ip) and is_loopback_host(bound)):
            yield (
                f"publishers_ips names this host by {ip}, but the service binds {bound} alone, so replicas could not "
                f"connect; set publisher_bind_address = {ip}, or name {bound} in publishers_ips"
            )


def _in_directory(found: _Found) -> Iterator[str]:
    """The address in the directory leads replicas of other hosts to this one. A relay without a database has none."""
    bound, address = found.bound, _host(found.service.address)
    if not found.settings.store_url or not is_loopback_host(address):
        return
    if found.address_given and bound and not is_loopback_host(bound) and not binds_every_interface(bound):
        yield (
            f"address in [{options.SERVICE_GROUP}] is {found.service.address}, but the service binds {bound}; "
            f"set address to tcp://{bound}:{found.values['publisher_port']}, or leave it out"
        )
    if not found.address_given and binds_every_interface(bound):
        yield (
            f"publisher_bind_address = {bound} lets other hosts connect, but the directory would name the service as "
            f"{found.service.address}, which leads every replica to its own host; set local_ip to this host's address"
        )


def _reachable_elsewhere(found: _Found) -> Iterator[str]:
    """Replicas of other hosts, if any are expected, can reach the bound address."""
    here = found.address_given or not is_loopback_host(found.bound) or list(_reachable_here(found))
    if found.bound and not here and found.others and is_bound(found.settings):
        yield (
            f"publishers_ips names other hosts ({', '.join(found.others)}), but this service binds {found.bound}, "
            "which none of them can reach; set local_ip, or publisher_bind_address, to this host's address"
        )


def _discovered(found: _Found) -> Iterator[str]:
    """Without discovery, only publishers_ips determines the services that replicas connect to."""
    address = _host(found.service.address)
    numeric = all(_is_number(each) for each in (*found.publishers, address))
    if found.settings.discovery_interval or not address or not numeric or not is_bound(found.settings):
        return
    if not any(_same(each, address) for each in found.publishers):
        yield (
            f"discovery_interval is 0 and publishers_ips ({', '.join(found.publishers)}) does not name {address}, so "
            "no replica would connect to this service; add it, or set discovery_interval"
        )


def _transport(found: _Found) -> Iterator[str]:
    values = found.values
    if values["publisher_transport"] != "ipc":
        return
    hosts = [each for each in found.publishers if not each.startswith("/")]
    derived = hosts == [values["local_ip"]] and found.settings.discovery_interval > 0
    if hosts and not derived:
        yield (
            f"publisher_transport is ipc, which has no hosts, but publishers_ips names {', '.join(hosts)}; name the "
            "path in publisher_bind_address there, or set publisher_transport = tcp"
        )


def _shared_database(found: _Found) -> Iterator[str]:
    database = found.database
    if database.get_backend_name() == "sqlite" and found.bound and found.others:
        yield (
            f"publishers_ips names other hosts ({', '.join(found.others)}), but store_url is the file "
            f"{sqlite.path_of(database)} of this host; use a database server, or name this host alone"
        )


def _listeners(found: _Found) -> Iterator[str]:
    settings, service = found.settings, found.service
    port, address = settings.replica_metrics_port, settings.replica_metrics_address
    if not port:
        return
    if port == service.metrics_port and meet(address, service.metrics_address):
        yield (
            f"replica_metrics_port in [{GROUP}] and metrics_port in [{options.SERVICE_GROUP}] are both {port}; "
            "change one of them"
        )
    if found.bound and port == found.values["publisher_port"] and meet(address, found.bound):
        yield f"replica_metrics_port and publisher_port in [{GROUP}] are both {port}; change one of them"


def _paths(found: _Found) -> Iterator[str]:
    """No two options name one path, or one folder with different rights. A socket would replace a file."""
    settings = found.settings
    scheme, _, rest = settings.bind_address.partition("://")
    database = found.database if settings.store_url else None  # a relay may have none
    wanted: dict[Path, str] = {}
    named = {
        "store_url": sqlite.path_of(database)
        if database is not None and database.get_backend_name() == "sqlite"
        else None,
        "journal_folder": _path(settings.journal.folder),
        "publisher_multiproc_socket": _path(settings.multiproc_socket),
        "publisher_bind_address": _path(rest) if scheme == "ipc" else None,
    }
    for name, path in named.items():
        if path is None:
            continue
        if path in wanted:
            yield f"{wanted[path]} and {name} are both {path}; change one of them"
        wanted[path] = name
    journals, socket = named["journal_folder"], named["publisher_multiproc_socket"]
    if journals and socket and socket.parent in journals.parents and not os.path.lexists(socket.parent):
        yield (
            f"journal_folder ({journals}) is below the folder {socket.parent} of publisher_multiproc_socket, which is "
            "missing: the journal would create it readable for others, and then the socket is refused there; "
            f"run: mkdir -p -m 700 {socket.parent}, as the service's user, or set journal_folder to another folder"
        )


def _journals(found: _Found) -> Iterator[str]:
    journal = found.settings.journal
    if not journal.folder:
        return
    for first, then, effect in (
        ("roll_bytes", "keep_bytes", "a finished file would be removed as soon as it is made"),
        ("roll_seconds", "keep_seconds", "a file would be removed before it is finished"),
    ):
        least, maximum = getattr(journal, first), getattr(journal, then)
        if least > maximum:
            prefix = JOURNAL_PREFIX
            yield f"{prefix}{then} ({maximum:g}) is below {prefix}{first} ({least:g}), so {effect}; raise it"


def _trimming(found: _Found) -> Iterator[str]:
    if sentence := trims_unread_links(found.service):
        yield sentence


def _comparable(found: _Found) -> bool:
    """Whether ``publishers_ips`` can be compared with the bound address."""
    return bool(found.bound) and not found.address_given and is_bound(found.settings)


def _host(address: str) -> str:
    scheme, _, rest = address.partition("://")
    return rest.rpartition(":")[0] if scheme == "tcp" else ""


def _path(text: str) -> Path | None:
    return Path(text).absolute() if text else None


def _same(host: str, other: str) -> bool:
    return _normal(host) == _normal(other)


def _normal(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return host.lower()


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
