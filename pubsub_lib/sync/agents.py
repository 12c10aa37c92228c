"""Agents, and their announcements: what a replica or a relay states about itself to the services above, as JSON.

Announcements are information for people. No replica, relay or service uses them for its own work.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from pubsub_lib.core.limits import check_name
from pubsub_lib.core.model import ALL, MAX_SECONDS, Name, Origin
from pubsub_lib.errors import FrameError, InvalidValueError
from pubsub_lib.sync.question import unreadable

MAJOR: Final = 1
"""Version of announcements that both ends must share. Members that a reader does not know are ignored."""
MAX_AGENTS: Final = 4096
"""Maximum number of agents that a service or a relay keeps."""
MAX_BYTES: Final = 2 * 1024 * 1024
"""Maximum size of these agents as JSON."""
MAX_AGENT_BYTES: Final = 16 * 1024
"""Maximum size of one agent as JSON. Without topics, every agent fits."""
MAX_ANNOUNCEMENT_BYTES: Final = MAX_BYTES + 2 * MAX_AGENT_BYTES + 32 * MAX_AGENTS
"""Maximum size of an announcement: a relay announces all agents that it keeps, with their ages."""
MAX_LEFT_OUT: Final = 2**53
MAX_TOPICS: Final = 10
"""Maximum number of topics that an agent names."""
MAX_ADDRESSES: Final = 4
"""Maximum number of publishers' addresses that an agent names."""
MAX_INTERVAL: Final = 600.0
"""Maximum seconds between two announcements of an agent."""
MAX_HOPS: Final = 8
"""Maximum number of relays that pass an agent on."""
MAX_ABOVE: Final = MAX_HOPS + 1
KEPT_INTERVALS: Final = 3
"""An agent that does not announce itself any more disappears after this many of its intervals."""

Role = Literal["replica", "relay"]
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
Uuid = Annotated[str, Meta(min_length=1, max_length=64)]


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """A replica or a relay, as it describes itself."""

    uuid: Uuid
    """The identity of this start."""
    name: Name
    role: Role = "replica"
    host: Name
    version: Annotated[str, Meta(max_length=64)]
    topics: Annotated[tuple[str, ...], Meta(max_length=MAX_TOPICS)]
    """The first of its topics; ``("",)`` is everything."""
    topics_total: Annotated[int, Meta(ge=0, le=2**53)]
    staleness: Seconds | None
    """Seconds: when it announced itself, it had every change that was committed longer ago. None: it was not synced."""
    parent: Origin = ""
    """With ``parents``: the service name of the relay from which it received the last hello."""
    listens_to: Annotated[tuple[Origin, ...], Meta(max_length=MAX_ADDRESSES)] = ()
    """Addresses of publishers."""
    address: Origin = ""
    """Of a relay: where replicas reach it."""
    age: Seconds = 0.0
    """Seconds since it announced itself."""
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)] = 0
    """Number of relays that passed this on."""


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent sends. It replaces everything that the agent sent before."""

    major: int = MAJOR
    agent: Agent
    interval: Annotated[float, Meta(gt=0, le=MAX_INTERVAL)]
    """Maximum seconds until the next announcement."""
    below: Annotated[list[Agent], Meta(max_length=MAX_AGENTS)] = []
    """The agents that announced themselves to this relay."""
    left_out: Annotated[int, Meta(ge=0, le=MAX_LEFT_OUT)] = 0
    """Number of agents below for which there was no place."""
    leaving: bool = False
    """Whether the agent stops."""


class Accepted(msgspec.Struct, frozen=True):
    """The answer to an announcement."""

    above: Annotated[list[Uuid], Meta(max_length=MAX_ABOVE)]
    """The UUIDs of the service or relay that answers, and of those above it to which its own announcements go."""


class Agents(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``GET /agents``: who answers, and the agents that announced themselves to it or below it."""

    service: Name
    uuid: Uuid
    role: Literal["origin", "relay"]
    address: Origin
    version: Annotated[str, Meta(max_length=64)]
    agents: Annotated[list[Agent], Meta(max_length=MAX_AGENTS)]
    left_out: Annotated[int, Meta(ge=0)]


class Summary(NamedTuple):
    """Some agents together."""

    known: int
    unsynced: int
    """Number of agents that were not synced."""
    stalest: Agent | None
    """The one that may be stalest now: by what it announced, and the age of that; None: all were not synced."""

    @property
    def max_staleness(self) -> float:
        """By how many seconds the stalest may be stale now; 0.0 without one."""
        return _staleness(self.stalest) if self.stalest is not None else 0.0


def summary(agents: Collection[Agent]) -> Summary:
    """How many agents there are, and how stale."""
    synced = [each for each in agents if each.staleness is not None]
    return Summary(len(agents), len(agents) - len(synced), max(synced, key=_staleness, default=None))


def merged(agents: Iterable[Agent]) -> list[Agent]:
    """Each of the agents once, by its last announcement, in the order of their names."""
    found: dict[str, Agent] = {}
    for each in agents:
        if each.uuid not in found or each.age < found[each.uuid].age:
            found[each.uuid] = each
    return sorted(found.values(), key=lambda each: (each.name, each.uuid))


def _staleness(agent: Agent) -> float:
    """An agent that was killed or stopped after its announcement is no fresher than that."""
    return (agent.staleness or 0.0) + agent.age


_announcement = msgspec.json.Decoder(Announcement).decode
_accepted = msgspec.json.Decoder(Accepted).decode
_agents = msgspec.json.Decoder(Agents).decode
encode: Final = msgspec.json.Encoder().encode
"""The JSON of an :class:`Agent`, :class:`Announcement`, :class:`Accepted` or :class:`Agents`."""


def fitting(agent: Agent) -> Agent:
    """The agent, with as many of its topics as its maximum size allows."""
    while len(encode(agent)) > MAX_AGENT_BYTES and agent.topics:
        agent = msgspec.structs.replace(agent, topics=agent.topics[:-1])
    return agent


def decode_announcement(data: bytes) -> Announcement:
    """The announcement in these bytes, which may be any. Raises FrameError: ``oversized``, ``truncated``, ``version``
    or ``foreign``.
    """
    if len(data) > MAX_ANNOUNCEMENT_BYTES:
        raise FrameError(f"an announcement has more than {MAX_ANNOUNCEMENT_BYTES} bytes", "oversized")
    found: Announcement = _decoded(_announcement, data, "an announcement")
    if found.major != MAJOR:
        raise FrameError(
            f"an announcement has the version {found.major}, this library uses {MAJOR}; run the same major version at "
            "both ends",
            "version",
        )
    _check((found.agent, *found.below), "an announcement")
    return found


def decode_accepted(data: bytes) -> Accepted:
    """The answer to an announcement. Raises FrameError."""
    found: Accepted = _decoded(_accepted, data, "the answer to an announcement")
    return found


def decode_agents(data: bytes) -> Agents:
    """The answer to ``GET /agents``. Raises FrameError."""
    found: Agents = _decoded(_agents, data, "a list of agents")
    _check(found.agents, "a list of agents")
    return found


def _decoded(decode: Any, data: bytes, what: str) -> Any:
    try:
        return decode(data)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise unreadable(what, error) from error


def _check(agents: tuple[Agent, ...] | list[Agent], what: str) -> None:
    for agent in agents:
        try:
            for kind, name in _names(agent):
                check_name(kind, name)
        except InvalidValueError as error:
            raise FrameError(f"{what} is inconsistent: {error}", "foreign") from error
        # Its age and its hops change on the way up.
        if len(encode(msgspec.structs.replace(agent, age=0.0, hops=0))) > MAX_AGENT_BYTES:
            raise FrameError(f"{what} has an agent of more than {MAX_AGENT_BYTES} bytes", "oversized")


def _names(agent: Agent) -> Iterator[tuple[str, str]]:
    yield "name of an agent", agent.name
    yield "host of an agent", agent.host
    if agent.topics != (ALL,):
        yield from (("topic", each) for each in agent.topics)
    yield from (("address", each) for each in (*agent.listens_to, agent.address) if each)
    if agent.parent:
        yield "service name", agent.parent
