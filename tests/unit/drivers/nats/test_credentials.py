"""Users of the NATS driver whose JWT an account has signed, as a server with an operator knows them."""

import base64
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _broker import NatsServer
from _processes import poll

from pubsub_lib.errors import ConfigError, TransportError
from tests.conformance.nats_wire import server
from tests.unit.drivers.nats.test_server import LONG, Listener, envelope, listening, publishing, settings

nkeys = pytest.importorskip("nkeys", reason="the package nkeys is not installed; install the extra nats")

UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT = {**UNLIMITED, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}


class Issuer:
    """An operator, an account or a user: a key that signs JWTs."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.seed = bytes(nkeys.encode_seed(os.urandom(32), getattr(nkeys, f"PREFIX_BYTE_{kind.upper()}")))
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public: str = self._pair.public_key.decode()

    def signs(self, who: "Issuer", expires: int = 0, **claims: Any) -> str:
        """The JWT of a key."""
        body = {"jti": "x", "iat": int(time.time()), "iss": self.public, "sub": who.public, "name": who._kind}
        body.update({"exp": expires} if expires else {}, nats={"type": who._kind, "version": 2, **claims})
        signed = f"{coded({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{coded(body)}"
        return f"{signed}.{coded(self._pair.sign(signed.encode()))}"


def coded(what: dict[str, Any] | bytes) -> str:
    text = what if isinstance(what, bytes) else json.dumps(what).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


class Operated:
    """A server whose users an account names, and their files."""

    def __init__(self, running: NatsServer, account: Issuer, folder: Path) -> None:
        self.url = running.url
        self.account = account
        self._folder = folder

    def file(self, name: str, account: Issuer | None = None, expires: int = 0, **rights: Any) -> Path:
        """The file of a new user of this account, as the tool of NATS writes it."""
        user = Issuer("user")
        jwt = (account or self.account).signs(user, expires, **UNLIMITED, pub={}, sub={}, **rights)
        found = self._folder / f"{name}.creds"
        found.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
        )
        return found


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Operated]:
    operator, account = Issuer("operator"), Issuer("account")
    accounts = f"{{ {account.public}: {operator.signs(account, limits=ACCOUNT)} }}"
    known = f"operator: {operator.signs(operator)}\nresolver: MEMORY\nresolver_preload: {accounts}\n"
    with server(known) as running:
        yield Operated(running, account, tmp_path)


def test_a_user_of_a_credentials_file_publishes_and_receives(operated: Operated) -> None:
    own = settings(operated.url, credentials_file=str(operated.file("me")))
    with listening(own, "a") as listener, publishing(own) as publisher:
        publisher.send_event(envelope())
        assert poll(lambda: listener.sequences == [1], LONG)


def test_a_user_whom_the_server_cannot_accept_is_refused_and_named(operated: Operated) -> None:
    broken = operated.file("broken")
    broken.write_text(broken.read_text().replace("NKEY SEED-----\nSU", "NKEY SEED-----\nXX"))
    old = operated.file("old", expires=int(time.time()) - 3600)
    for file in (operated.file("other", Issuer("account")), old, broken):
        with (
            pytest.raises(TransportError, match=rf"refuses the user '{file}' .*correct .* credentials_file"),
            publishing(settings(operated.url, credentials_file=str(file))),
        ):
            pass


def test_a_renewed_file_is_read_at_the_next_connection(operated: Operated) -> None:
    file = operated.file("me", Issuer("account"))
    own = settings(operated.url, credentials_file=str(file))
    listener = Listener(own, "a")
    try:
        assert poll(lambda: "refuses the user" in listener.subscriber._connection.reason, LONG)
        file.write_text("")
        assert poll(
            lambda: f"refuses the user '{file}' ({file} has no JWT" in listener.subscriber._connection.reason, LONG
        )
        operated.file("me")
        listener.until_connected()
        with publishing(own) as publisher:
            publisher.send_event(envelope())
            assert poll(lambda: listener.sequences == [1], LONG)
    finally:
        listener.subscriber.close()


@pytest.mark.parametrize("missing", ["NATS USER JWT", "USER NKEY SEED"])
def test_a_file_without_a_jwt_or_a_key_is_a_config_error(operated: Operated, missing: str) -> None:
    file = operated.file("me")
    file.write_text(file.read_text().replace(missing, "CERTIFICATE"))
    with pytest.raises(ConfigError, match=r"has no JWT, or no key, of a user; correct it"):
        Listener(settings(operated.url, credentials_file=str(file)))
