"""The agents that services and relays know, by HTTP; and which of these to ask."""

import argparse
import logging
import urllib.parse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cliff.command import Command

from pubsub_lib.cli.context import configuration_of, settings_in
from pubsub_lib.cli.endpoint_client import EndpointClient
from pubsub_lib.cli.formatting import Shown, duration
from pubsub_lib.cli.output import normal
from pubsub_lib.core.leased_publishers import ORIGIN
from pubsub_lib.errors import ConfigError, FrameError, NotFound, TransportError
from pubsub_lib.sync.agents import Agent, Agents, decode_agents, merged

if TYPE_CHECKING:
    from pubsub_lib.config.service import ServiceSettings
    from pubsub_lib.settings import Settings

_log = logging.getLogger("pubsub_lib.cli")

GIVE_URL = "give --url http://HOST:PORT of a publisher service with serve_syncs = true"


class AgentsClient(EndpointClient):
    """The endpoint of a service or a relay."""

    kind = "publisher service"
    option = "metrics_port"

    def agents(self) -> Agents:
        """The agents that it knows."""
        try:
            return decode_agents(self._received("GET", "/agents", {}))
        except FrameError as error:
            raise self._foreign() from error

    def refusal(self, code: int, text: str) -> Exception:
        """The error for a response with this status and this text."""
        if code == 404 and "GET /metrics" in text:
            return TransportError(
                f"the publisher service at {self.url} takes no announcements of agents; set serve_syncs = true in "
                "[publisher_service] there"
            )
        return super().refusal(code, text)


class Seen(NamedTuple):
    """What the services that answered know together."""

    services: Sequence[Agents]
    agents: Sequence[Agent]
    """By name; each is there once, as the service describes it that received its last announcement."""


def add_url(parser: argparse.ArgumentParser) -> None:
    """The option that names the services to ask."""
    parser.add_argument(
        "--url", metavar="URL", action="append", default=[],
        help="ask the publisher service or relay at this endpoint (metrics_port); may be repeated. Default: those of "
        "sync_url in the INI file, without it the services in the directory",
    )  # fmt: skip


def seen(command: Command, urls: Sequence[str]) -> Seen:
    """Ask the services at these URLs; without one, those of the configuration. A service that does not answer is logged
    when another one does. Raises ConfigError, DriverError, StoreError, NotFound, TransportError.
    """
    clients = [AgentsClient(url) for url in urls or _configured(command)]
    answers: list[Agents] = []
    failures: list[TransportError] = []
    for client in clients:
        try:
            answers.append(client.agents())
        except TransportError as error:
            failures.append(error)
    if not answers:
        raise failures[0]
    for each in failures:
        _log.warning("%s", each)
    left_out = sum(each.left_out for each in answers)
    if left_out:
        _log.warning("%d more agents are not listed, because a service or relay had no place for them", left_out)
    return Seen(answers, merged(each for answer in answers for each in answer.agents))


def _configured(command: Command) -> list[str]:
    """The URLs of the configuration, at least one. Blocks; reads the database for the directory."""
    from pubsub_lib.config import options
    from pubsub_lib.config.fields import values_of
    from pubsub_lib.config.service import ServiceSettings
    from pubsub_lib.sync.announcer import AGENTS_PATH, agents_url
    from pubsub_lib.sync.urls import channel_urls

    configuration = configuration_of(command)
    settings = settings_in(configuration)
    if settings.sync_url:
        return [str(agents_url(each)).removesuffix(AGENTS_PATH) for each in channel_urls(settings.sync_url)]
    service = ServiceSettings(
        **values_of(ServiceSettings, configuration.values(options.SERVICE_GROUP, options.SERVICE))
    )
    if not service.metrics_port:
        raise ConfigError(f"metrics_port is 0 in [publisher_service], so services have no endpoint; {GIVE_URL}")
    if service.metrics_port < 0:
        raise ConfigError(f"metrics_port is -1 in [publisher_service], so services have any ports; {GIVE_URL}")
    return _in_directory(settings, service)


def _in_directory(settings: "Settings", service: "ServiceSettings") -> list[str]:
    """The endpoints of the live services in the directory, which has the addresses for replicas only: on other hosts,
    services are expected to have the same ``metrics_port``.
    """
    from pubsub_lib.store import Store

    found: list[str] = []
    with Store(settings, read_only=True) as store:
        entries = [each for each in store.directory.entries() if each.seconds_left > 0 and each.role == ORIGIN]
    for each in entries:
        host = urllib.parse.urlsplit(each.address).hostname
        if each.service == settings.service_name:
            host = service.metrics_address.strip("[]")
            host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - recognized
        if host:
            found.append(f"http://{f'[{host}]' if ':' in host else host}:{service.metrics_port}")
    if not found:
        raise NotFound(f"no live service with an address is in the directory; start one, or {GIVE_URL}")
    return list(dict.fromkeys(found))


def without_hidden(
    parsed_args: argparse.Namespace, named: Iterable[str], columns: Sequence[str], hidden: int
) -> Sequence[str]:
    """The columns of a command; in a table without the last ``hidden`` columns, unless one is ``named``."""
    if parsed_args.formatter == "table" and {normal(each) for each in named}.isdisjoint(columns[-hidden:]):
        return columns[:-hidden]
    return columns


def staleness(agent: Agent) -> Shown:
    """The column of that name: seconds, None for an agent that was not synced."""
    value = None if agent.staleness is None else round(agent.staleness, 1)
    return Shown(value, lambda given: "not synced" if given is None else duration(given))


def last_announced(agent: Agent) -> Shown:
    """The column of that name: seconds since the last announcement."""
    return Shown(round(agent.age, 1), lambda given: f"{duration(given)} ago")
