"""The NATS driver's parts that need no server: subjects, options."""

import asyncio
import importlib.util
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits, check_name
from pubsub_lib.core.model import ALL, MAX_NAME_BYTES
from pubsub_lib.errors import ConfigError, FrameError, InvalidValueError
from pubsub_nats import client
from pubsub_nats.options import checked
from pubsub_nats.publisher import NatsPublisher
from pubsub_nats.subjects import Subjects, text, token
from tests.unit.core.builders import History, envelope

SUBJECTS = Subjects("net.one")
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda name: len(name.encode()) <= MAX_NAME_BYTES
)
NONCES = NAMES.filter(lambda name: len(name.encode()) <= codec.MAX_NONCE_BYTES)
TOKEN = re.compile(r"[A-Za-z0-9_~%-]+")


def is_legal(topic: str) -> bool:
    try:
        return check_name("topic", topic) == topic
    except InvalidValueError:
        return False


@given(NAMES)
@example("a.b")
@example("*")
@example(">")
@example("%41")
@example("tenant 1\r\n\t")
@example("ü" * (MAX_NAME_BYTES // 2))
def test_each_legal_topic_is_one_token_and_back(topic: str) -> None:
    assert is_legal(topic)
    assert TOKEN.fullmatch(token(topic))
    assert text(token(topic)) == topic
    assert len(SUBJECTS.pattern(topic)) < 1024, "servers refuse control lines of 4 KiB"


@given(NAMES, NAMES)
@example("a.b", "a%2Eb")
@example("A", "a")
def test_different_topics_have_different_tokens(one: str, other: str) -> None:
    assert (token(one) == token(other)) == (one == other)


@given(st.text())
@example("%41")
@example("%2e")
@example("%00")
@example("%FF")
@example("a\ufffd")
def test_other_tokens_are_foreign(given: str) -> None:
    assume(not given or token(unquote(given)) != given)
    with pytest.raises(FrameError) as caught:
        text(given)
    assert caught.value.reason == "foreign"


@given(NAMES, NONCES)
def test_a_topic_frame_comes_back_from_its_subject(topic: str, nonce: str) -> None:
    inbox = f"{SUBJECTS.inbox('c1')}.{token(nonce)}"
    for head in (
        codec.topic_frame(topic),
        codec.topic_frame(ALL),
        codec.private_frame(nonce) + b"\0",
        codec.private_frame(nonce) + topic.encode() + b"\0",
    ):
        assert SUBJECTS.head(SUBJECTS.subject(head, {nonce: inbox})) == head
    assert SUBJECTS.subject(codec.private_frame(nonce) + b"\0", {}) == "", "without a request"
    assert SUBJECTS.nonce(inbox) == nonce


@pytest.mark.parametrize(
    "subject",
    ["net.one", "net.one.data", "net.one.data.", "net.one.data.a.b", "net.two.data.a", "net.one.hello.x", "",
     "net.one.reply.c1", "net.one.reply.c1.", "net.one.reply.c1.n.t.x", "net.one.ask", "xnet.one.data.a"],
)  # fmt: skip
def test_a_subject_of_others_is_foreign(subject: str) -> None:
    with pytest.raises(FrameError) as caught:
        SUBJECTS.head(subject)
    assert caught.value.reason == "foreign"


@pytest.mark.parametrize("reply", ["", "net.one.data.a", "net.one.reply.c1", "net.one.reply..n", "net.one.reply.>.n",
                                   "net.one.reply.c1.n.x", "_INBOX.c1.n", "victim.n"])  # fmt: skip
def test_a_hello_request_cannot_name_another_subject_for_its_reply(reply: str) -> None:
    with pytest.raises(FrameError):
        SUBJECTS.nonce(reply)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"servers": ()}, "servers is empty"),
        ({"servers": ("localhost:4222",)}, "'localhost:4222' of servers is not nats://host:port"),
        ({"servers": ("http://a:1",)}, "is not nats://host:port"),
        ({"servers": ("nats://a:1/x",)}, "is not nats://host:port"),
        ({"servers": ("nats://a:99999",)}, "is not nats://host:port"),
        ({"prefix": "a b"}, "prefix"),
        ({"prefix": "a..b"}, "prefix"),
        ({"prefix": ">"}, "prefix"),
        ({"user": "me"}, "only one is given"),
        ({"user": "me", "password": "x", "credentials_file": "f"}, "remove one"),
        ({"tls_cert_file": "c"}, "only one is given"),
        ({"reconnect_interval": 3.0}, "below reconnect_interval"),
        ({"send_wait": 2.0}, "send_wait"),
        ({"pending_bytes": 0}, "pending_bytes"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(wrong)) as caught:
        checked(options)
    assert "[pubsub_nats]" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["nats://me:secret-1@a:4222", "nats:me:secret-1@a:4222", "me:secret-1@a", "nats://[me:secret-1@a:4222",
     "nats://me:secret-1@a@b:4222", "nats://me:/secret-1@a:4222", "nats://a:4222?password=secret-1",
     "nats:/me:secret-1@a:4222"],
)  # fmt: skip
def test_a_password_in_an_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="servers") as caught:
        checked({"servers": (url,)})
    assert "secret-1" not in str(caught.value)


def test_the_password_is_not_shown() -> None:
    options = checked({"user": "me", "password": "hunter2"})
    for shown in (options, client.access(options)):
        assert "hunter2" not in repr(shown)
        assert "user='me'" in repr(shown)


def test_a_file_that_cannot_be_used_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("no certificate")
    for name, path in (("tls_ca_file", "ca"), ("tls_ca_file", "missing"), ("credentials_file", "missing")):
        with pytest.raises(ConfigError, match=f"^{name} .*cannot be used") as caught:
            client.access(checked({name: str(tmp_path / path)}))
        assert "[pubsub_nats]" in str(caught.value)


def test_credentials_without_their_package_are_a_config_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "me.creds").write_text("BEGIN NATS USER JWT, BEGIN USER NKEY SEED")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"install nats-py\[nkeys\]"):
        client.access(checked({"credentials_file": str(tmp_path / "me.creds")}))


def test_the_driver_without_its_extra_is_refused_with_the_extra_and_its_options_are_read() -> None:
    program = (
        "import sys; sys.modules['nats'] = None\n"
        "from pubsub_lib import Settings, loader\n"
        "from pubsub_lib.errors import DriverError\n"
        "from pubsub_lib.config.installed_drivers import options_of\n"
        "assert options_of('nats_pubsub_driver')[0] == 'pubsub_nats'\n"
        "try:\n"
        "    loader.load('nats_pubsub_driver')\n"
        "except DriverError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pubsub-lib[nats]" in done.stdout, done.stdout
    assert done.stdout.count("\n") == 1


def test_long_burst_of_messages_is_no_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of 100 messages takes 100 s, and one of them leaves each second."""
    now = 0.0
    stood: list[float] = []

    class Client:
        async def publish(self, _subject: str, _body: bytes) -> None:
            nonlocal now
            now += 1.0
            stood.append(publisher.sending_for(now))

    monkeypatch.setattr("pubsub_nats.publisher.time", SimpleNamespace(monotonic=lambda: now))
    publisher = NatsPublisher(client.access(checked({})), Limits())
    head, body = codec.encode(envelope(*History().some(1)))
    asyncio.run(publisher._publish(Client(), [(head, body, 1)] * 100))  # type: ignore[arg-type]
    assert now == 100.0
    assert {*stood} == {1.0}
    assert publisher.sending_for(now + 3.0) == 0.0, "it waits for messages"


def test_publisher_answers_a_limited_number_of_hello_requests_in_a_second() -> None:
    publisher = NatsPublisher(client.access(checked({"questions_per_second": 4})), Limits())
    frame = codec.hello_request_frame("n", ["t"])
    assert publisher._asks.put([frame] * 6) == 0
    began = time.monotonic()
    assert [publisher._asks.take() for _ in range(6)] == [frame] * 6
    assert time.monotonic() - began >= 0.45, "four at once, then one in 0.25 s"
