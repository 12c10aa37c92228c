"""``pubsub-db status``."""

import argparse
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from pubsub_lib import loader
from pubsub_lib.cli.agents_client import seen
from pubsub_lib.cli.context import reading, settings_of, shown
from pubsub_lib.cli.formatting import Shown, duration, visible
from pubsub_lib.cli.listener import Answer, ask_services
from pubsub_lib.cli.output import Show
from pubsub_lib.cli.replica_client import ReplicaClient
from pubsub_lib.core.leased_publishers import ORIGIN
from pubsub_lib.core.model import ALL, Head
from pubsub_lib.core.quarantine import QuarantinedPublisher
from pubsub_lib.core.timing import Timing, lost_message_bound, no_publisher_bound
from pubsub_lib.errors import ConfigError, PubSubError
from pubsub_lib.settings import Settings
from pubsub_lib.store import Service, Store
from pubsub_lib.store.inspection import RECENT, Kept
from pubsub_lib.sync.agents import Agent, summary

ASK_SECONDS: Final = 2.0
MAX_SHOWN: Final = 10
"""Maximum number of services and of topics that a table shows; the other formats show all."""


class Status(Show):
    """Show the state of the store, its services and topics, and the bounds of a replica's staleness.

    The command asks live services, with the driver of the INI file, how far they have read the store.
    """

    example = "status --ask 5 -f json"
    columns = (
        "store", "store_id", "head", "nonce", "oldest_link", "services", "topics", "lost_message_bound",
        "no_publisher_bound",
    )  # fmt: skip

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """How long to wait for services, and a replica to ask."""
        parser.add_argument(
            "--ask", metavar="S", type=float, default=ASK_SECONDS,
            help=f"seconds to wait for the answers of live services (default: {ASK_SECONDS:g}); 0: do not ask services",
        )  # fmt: skip
        parser.add_argument(
            "--replica", metavar="URL",
            help="also show the publishers that the replica at this endpoint (replica_metrics_port) does not use",
        )  # fmt: skip
        parser.add_argument(
            "--agents", action="store_true",
            help="also ask services with serve_syncs how many replicas and relays there are, and how stale",
        )  # fmt: skip

    def column_names(self, parsed_args: argparse.Namespace) -> Sequence[str]:
        """With ``--replica`` and with ``--agents``, a further one for each."""
        replica = () if parsed_args.replica is None else ("quarantined",)
        return (*self.columns, *replica, *(("agents",) if parsed_args.agents else ()))

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """Read the store and ask the services and the replica. Raises ConfigError, StoreError, NotFound,
        TransportError.
        """
        if not 0 <= parsed_args.ask < 1e6:
            raise ConfigError(f"--ask must be a number of seconds from 0, not {parsed_args.ask}")
        replica = None if parsed_args.replica is None else ReplicaClient(parsed_args.replica)
        settings = settings_of(self)
        with reading(self) as store:
            heads = store.read_heads([ALL])
            oldest = store.inspect.oldest()
            # Services are asked after the heads were read: a service that answers with a smaller position lags.
            services = self._services(settings, store, heads.store.position, parsed_args.ask)
        found: dict[str, Any] = {
            "store": shown(settings),
            "store_id": heads.store_id.hex(),
            "head": heads.store.position,
            "nonce": heads.store.nonce,
            "oldest_link": Shown(oldest_link(oldest), _oldest_text),
            "services": Shown(services, _services_text),
            "topics": Shown(topics(heads.topics), _topics_text),
            "lost_message_bound": Shown(lost_message(settings.timing), _bound_text),
            "no_publisher_bound": Shown(no_publisher(settings.timing), _bound_text),
        }
        if replica is not None:
            found["quarantined"] = Shown(quarantined(replica.quarantined()), _quarantined_text)
        if parsed_args.agents:
            found["agents"] = Shown(agents_shown(seen(self, ()).agents), _agents_text)
        return [found[name] for name in self.column_names(parsed_args)]

    def _services(self, settings: Settings, store: Store, head: int, seconds: float) -> list[dict[str, Any]]:
        entries = store.directory.entries()
        live = [each for each in entries if each.seconds_left > 0 and each.role == ORIGIN]
        answers: Mapping[str, Answer] = {}
        asked: Collection[str] = ()
        if live and seconds:
            try:
                can = loader.load(settings.driver).capabilities
                if can.carries_envelopes:
                    answers = ask_services(settings, store, [each.uuid for each in live], seconds)
                    sent_to = [each for each in live if not can.bind_based or _reached(settings, each)]
                    asked = answers.keys() | {each.uuid for each in sent_to}
            except PubSubError as error:
                # The data of the store is shown without the answers.
                self.app.LOG.warning("the services were not asked: %s", error)
        positions: dict[str, int] = {}
        for each in entries:
            if (read := _read(answers.get(each.uuid))) is not None:
                positions[each.service] = min(read, positions.get(each.service, read))
        return services(entries, asked, answers, store.inspect.last_by_origin(positions), head)


def oldest_link(oldest: Kept | None) -> dict[str, Any] | None:
    """The oldest link of the changelog."""
    if oldest is None:
        return None
    return {"position": oldest.link.point.position, "topic": oldest.link.topic, "seconds_ago": round(oldest.age, 1)}


def _reached(settings: Settings, service: Service) -> bool:
    """Whether a question is sent to a service that binds: to its address in the directory."""
    known = settings.discovery_interval > 0 or service.address in settings.fixed_addresses
    return bool(service.address) and known


def services(
    entries: Sequence[Service],
    asked: Collection[str],
    answers: Mapping[str, Answer],
    published: Mapping[str, Kept],
    head: int,
) -> list[dict[str, Any]]:
    """One mapping for each entry. ``asked``: the UUIDs of the services that were sent a request; ``published``: by
    service, the newest change of its origin that it has read. ``lag`` is the number of positions between its last
    reading and ``head``, and None without an answer.
    """
    found = []
    for each in entries:
        answer = answers.get(each.uuid)
        read = _read(answer)
        last = None if read is None else published.get(each.service)
        found.append(
            {
                "service": each.service,
                "uuid": each.uuid,
                "address": each.address,
                "role": each.role,
                "lease_left": round(each.seconds_left, 1),
                "asked": each.uuid in asked,
                "answered_in": None if answer is None else round(answer.seconds, 3),
                "last_published": None if last is None else last.link.point.position,
                "last_published_seconds_ago": None if last is None else round(last.age, 1),
                "lag": None if read is None else max(0, head - read),
            }
        )
    return found


def _read(answer: Answer | None) -> int | None:
    """The position up to which the service has read the store."""
    return None if answer is None or answer.hello.store is None else answer.hello.store.position


def topics(heads: Mapping[str, Head]) -> list[dict[str, Any]]:
    """One mapping for each topic."""
    return [
        {"topic": topic, "objects": head.count, "head": head.point.position} for topic, head in sorted(heads.items())
    ]


def quarantined(publishers: Sequence[QuarantinedPublisher]) -> list[dict[str, Any]]:
    """One mapping for each publisher that a replica does not use."""
    return [
        {"service": each.service, "uuid": each.uuid, "seconds_left": round(each.seconds_left, 1)} for each in publishers
    ]


def agents_shown(agents: Sequence[Agent]) -> dict[str, Any]:
    """The number of agents, those that were not synced, and the one that announced the largest staleness."""
    found = summary(agents)
    return {
        "known": found.known,
        "unsynced": found.unsynced,
        "max_staleness": None if found.stalest is None else round(found.max_staleness, 1),
        "stalest": None if found.stalest is None else found.stalest.name,
    }


def lost_message(timing: Timing) -> dict[str, float]:
    """The bound for a lost message (rule 13), term by term, in seconds."""
    terms = {
        name: getattr(timing, name) for name in ("max_idle_time", "reading_age", "round_trip", "message_delay_window")
    }
    return {**terms, **_sync(timing), "at_most": lost_message_bound(timing, timing.sync_timeout)}


def no_publisher(timing: Timing) -> dict[str, float]:
    """The bound without any publisher (rule 13), term by term, in seconds."""
    terms = {"three_times_max_idle_time": timing.stale_after, "poll_interval": timing.poll_interval}
    return {**terms, **_sync(timing), "at_most": no_publisher_bound(timing, timing.sync_timeout)}


def _sync(timing: Timing) -> dict[str, float]:
    return {"sync_wait": timing.sync_wait, "sync_time": timing.sync_timeout}


def _bound_text(bound: Mapping[str, float]) -> str:
    waits = [f"{value:g}" for name, value in bound.items() if name not in ("sync_wait", "sync_time", "at_most")]
    return (
        f"at most {bound['at_most']:g} s: {' + '.join(waits)} + sync wait {bound['sync_wait']:g} + sync "
        f"{bound['sync_time']:g}"
    )


def _oldest_text(oldest: Mapping[str, Any] | None) -> str:
    if oldest is None:
        return "none"
    return f"{oldest['position']}, {duration(oldest['seconds_ago'])} ago"


def _services_text(found: Sequence[Mapping[str, Any]]) -> str:
    return _listed([_service_text(each) for each in found], "none", "pubsub-db publishers")


def _service_text(each: Mapping[str, Any]) -> str:
    left = each["lease_left"]
    lease = f"lease {duration(left)} left" if left > 0 else f"lease ended {duration(-left)} ago"
    if each["answered_in"] is None:
        answer = "" if left <= 0 or each["role"] != ORIGIN else "did not answer" if each["asked"] else "not asked"
    else:
        answer = "has not read the store yet" if each["lag"] is None else f"{_published_text(each)}, lag {each['lag']}"
    kind = "" if each["role"] == ORIGIN else f" ({visible(each['role'])})"
    return ", ".join(part for part in (f"{visible(each['service'])}{kind}: {lease}", answer) if part)


def _published_text(each: Mapping[str, Any]) -> str:
    last = each["last_published"]
    if last is None:
        return f"none of the newest {RECENT:,} changes is its own"
    return f"has read its change {last} of {duration(each['last_published_seconds_ago'])} ago"


def _quarantined_text(found: Sequence[Mapping[str, Any]]) -> str:
    texts = [
        f"{visible(each['service'])}: UUID {visible(each['uuid'])}, not used for {duration(each['seconds_left'])}"
        for each in found
    ]
    return _listed(texts, "none", "-f json")


def _agents_text(found: Mapping[str, Any]) -> str:
    parts = [f"{found['known']} known", f"{found['unsynced']} not synced"]
    if found["stalest"] is not None:
        parts.append(f"stalest {visible(found['stalest'])}: {duration(found['max_staleness'])}")
    return ", ".join(parts)


def _topics_text(found: Sequence[Mapping[str, Any]]) -> str:
    texts = [f"{visible(each['topic'])}: {each['objects']} objects, head {each['head']}" for each in found]
    return _listed(texts, "none", "pubsub-db topics")


def _listed(texts: Sequence[str], none: str, more: str) -> str:
    if not texts:
        return none
    lines = list(texts[:MAX_SHOWN])
    if len(texts) > MAX_SHOWN:
        lines.append(f"and {len(texts) - MAX_SHOWN} more, see {more}")
    return "\n".join(lines)
