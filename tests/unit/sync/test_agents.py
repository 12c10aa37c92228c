"""The JSON of announcements: every valid one survives, and any bytes are refused in one sentence."""

import json
from random import Random
from typing import Any

import pytest

from pubsub_lib.errors import FrameError
from pubsub_lib.sync.agents import (
    MAX_AGENT_BYTES,
    MAX_AGENTS,
    MAX_ANNOUNCEMENT_BYTES,
    MAX_HOPS,
    MAX_INTERVAL,
    MAX_TOPICS,
    Accepted,
    Agents,
    decode_accepted,
    decode_agents,
    decode_announcement,
    encode,
    fitting,
)
from tests.unit.sync.some_agents import agent, announcement

FULL = announcement(
    "relay-1",
    agent("a", staleness=None, topics=("",), parent="relay-1", listens_to=("tcp://h:1", "tcp://[::1]:2")),
    agent("b", role="relay", address="tcp://h:1", age=3.25, hops=2, host="ж"),
    left_out=7,
)


def test_announcement_survives_its_way() -> None:
    assert decode_announcement(encode(FULL)) == FULL
    leaving = announcement(leaving=True)
    assert decode_announcement(encode(leaving)) == leaving
    assert decode_accepted(encode(Accepted(["u", "v"]))) == Accepted(["u", "v"])
    answer = Agents(service="api-1", uuid="u", role="origin", address="", version="1", agents=[agent()], left_out=0)
    assert decode_agents(encode(answer)) == answer


def test_members_of_a_later_version_are_ignored() -> None:
    plain = json.loads(encode(FULL))
    plain["new"] = [{"deep": {}}]
    plain["agent"]["colour"] = "red"
    assert decode_announcement(json.dumps(plain).encode()) == FULL


def changed(path: str, value: Any) -> bytes:
    plain = json.loads(encode(FULL))
    at: Any = plain
    *way, last = path.split(".")
    for each in way:
        at = at[int(each)] if isinstance(at, list) else at[each]
    at[last] = value
    return json.dumps(plain).encode()


LONG = "x" * 256


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("major", 2, "an announcement has the version 2, this library uses 1; run the same major version"),
        ("agent", None, "cannot be read: Expected `object`"),
        ("agent.name", "", r"cannot be read: .*length >= 1"),
        ("agent.name", LONG, r"cannot be read: .*length <= 255"),
        ("agent.name", "ж" * 200, "is inconsistent: the name of an agent .* has 400 bytes"),
        ("agent.name", "a\0", "is inconsistent: the name of an agent .* holds a NUL"),
        ("agent.host", "", "cannot be read"),
        ("agent.host", "\0", "is inconsistent: the host of an agent .* holds a NUL"),
        ("agent.uuid", "", "cannot be read"),
        ("agent.uuid", "u" * 65, "cannot be read"),
        ("agent.version", "v" * 65, "cannot be read"),
        ("agent.role", "origin", "cannot be read: Invalid enum value 'origin'"),
        ("agent.topics", ["t"] * (MAX_TOPICS + 1), "cannot be read"),
        ("agent.topics", ["", "t"], "is inconsistent: the topic is empty"),
        ("agent.topics", ["\0"], "is inconsistent: the topic .* holds a NUL"),
        ("agent.topics_total", -1, "cannot be read"),
        ("agent.staleness", -0.5, "cannot be read"),
        ("agent.staleness", 1e300, "cannot be read"),
        ("agent.parent", LONG, "cannot be read"),
        ("agent.parent", "\0", "is inconsistent: the service name .* holds a NUL"),
        ("agent.address", LONG, "cannot be read"),
        ("agent.listens_to", ["a"] * 5, "cannot be read"),
        ("agent.listens_to", ["\0"], "is inconsistent: the address .* holds a NUL"),
        ("agent.age", -1, "cannot be read"),
        ("agent.hops", MAX_HOPS + 1, "cannot be read"),
        ("interval", 0, "cannot be read"),
        ("interval", MAX_INTERVAL + 1, "cannot be read"),
        ("left_out", -1, "cannot be read"),
        ("below.1.name", "", "cannot be read"),
        ("below.1.name", "\0", "is inconsistent"),
    ],
)
def test_announcement_with_a_wrong_member_is_refused(path: str, value: Any, words: str) -> None:
    with pytest.raises(FrameError, match=words) as refused:
        decode_announcement(changed(path, value))
    assert refused.value.reason == ("version" if path == "major" else "foreign")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'{"major":1}', b"[" * 100_000, b"NaN"])
def test_bytes_of_another_program_are_refused(data: bytes) -> None:
    for decode in (decode_announcement, decode_accepted, decode_agents):
        with pytest.raises(FrameError, match="cannot be read"):
            decode(data)


def test_sizes_are_bounded() -> None:
    with pytest.raises(FrameError, match="more than") as refused:
        decode_announcement(b" " * (MAX_ANNOUNCEMENT_BYTES + 1))
    assert refused.value.reason == "oversized"
    many = announcement("relay-1", *[agent(str(each)) for each in range(MAX_AGENTS + 1)])
    with pytest.raises(FrameError, match="cannot be read"):
        decode_announcement(encode(many))
    large = announcement("relay-1", agent("a", topics=("\1" * 255,) * MAX_TOPICS, parent="\1" * 255))
    with pytest.raises(FrameError, match=f"an agent of more than {MAX_AGENT_BYTES} bytes") as refused:
        decode_announcement(encode(large))
    assert refused.value.reason == "oversized"


def test_agent_is_made_to_fit_by_leaving_topics_out() -> None:
    longest = "\1" * 255  # six bytes for each character
    names: dict[str, Any] = {
        "name": longest,
        "host": longest,
        "parent": longest,
        "address": longest,
        "listens_to": (longest,) * 4,
    }
    large = agent(topics=(longest,) * MAX_TOPICS, topics_total=50, **names)
    small = fitting(large)
    assert len(encode(small)) <= MAX_AGENT_BYTES < len(encode(large))
    assert 0 < len(small.topics) < MAX_TOPICS
    assert small.topics_total == 50
    assert fitting(agent()) == agent()


def test_any_damage_is_refused_or_harmless() -> None:
    random = Random(7)
    good = encode(FULL)
    refused = 0
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(data))
            if random.random() < 0.5:
                data[at] = random.randrange(256)
            else:
                del data[at : at + random.randint(1, 20)]
        try:
            found = decode_announcement(bytes(data))
        except FrameError:
            refused += 1
        else:
            assert decode_announcement(encode(found)) == found
    assert refused > 1000
