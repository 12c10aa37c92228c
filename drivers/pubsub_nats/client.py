"""The NATS client as this driver uses it: no headers, any bytes in a subject, no password without encryption."""

import asyncio
import importlib.util
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from nats import errors
from nats.aio.client import Client, RawCredentials

from pubsub_lib.config.driver_options import tls_context
from pubsub_lib.errors import ConfigError, TransportError
from pubsub_nats.options import NatsOptions
from pubsub_nats.parser import SubjectParser

_CLOSE_TIMEOUT: Final = 0.5
"""Maximum seconds for writing the last bytes to a server that may read nothing."""

OnMessage = Callable[[str, str, bytes], None]
"""Called with the subject, the reply subject and the data of a message."""
OnError = Callable[[Exception], None]


class NoConnectionError(TransportError):
    """A connection could not be made."""


class RefusedError(NoConnectionError):
    """The server refuses this client, so that waiting does not help."""


class Access(msgspec.Struct, frozen=True):
    """The options, with the files of ``tls_ca_file``, ``tls_cert_file`` and ``tls_key_file`` loaded."""

    options: NatsOptions
    tls: ssl.SSLContext | None


def access(options: NatsOptions) -> Access:
    """Load and check the files of the options. Raises ConfigError."""
    try:
        _credentials(options)
    except OSError as error:
        raise ConfigError(f"credentials_file in [pubsub_nats] cannot be used: {error}; correct it") from error
    tls = tls_context(options, "pubsub_nats", "tls_") if options.tls_ca_file or options.tls_cert_file else None
    if options.credentials_file and importlib.util.find_spec("nkeys") is None:
        raise ConfigError("credentials_file in [pubsub_nats] needs the package nkeys; install nats-py[nkeys]")
    return Access(options, tls)


def _credentials(options: NatsOptions) -> RawCredentials | None:
    """The JWT and the key of the user, as they are in the file now: they may be renewed. Raises OSError.

    The client library would look for the line before the JWT for ever.
    """
    if not options.credentials_file:
        return None
    text = Path(options.credentials_file).read_text(errors="replace")
    if "BEGIN NATS USER JWT" not in text or "BEGIN USER NKEY SEED" not in text:
        raise OSError(f"{options.credentials_file} has no JWT, or no key, of a user")
    return RawCredentials(text)


class NatsClient(Client):
    """One connection to one server. It is not made again: :mod:`.connection` makes a new client.

    ``on_message`` is called for the messages of all subscriptions, in the order in which the server sent them.
    ``tls_name``: the name that the server's certificate must have; "" for the host of ``url``.
    """

    def __init__(self, access: Access, url: str, on_message: OnMessage, on_error: OnError, tls_name: str = "") -> None:
        super().__init__()
        self._access = access
        self._url, self._tls_name = url, tls_name
        self._on_message = on_message
        self._on_error = on_error
        self._ps = SubjectParser(self)
        self.lost: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        """Done when a connection has ended, also by an error of the client, after which it only stops to read."""

    async def open(self, name: str) -> None:
        """Connect. Raises NoConnectionError."""
        options = self._access.options
        given: dict[str, Any] = {"tls": self._access.tls, "connect_timeout": options.connect_timeout}
        given.update(user=options.user or None, password=options.password or None, tls_hostname=self._tls_name or None)
        # The connection's keepalive is faster, and takes received messages for an answer.
        given.update(error_cb=self._report, allow_reconnect=False, ping_interval=3600)
        try:
            await self.connect(servers=[self._url], name=name, user_credentials=_credentials(options), **given)
        except Exception as error:
            raise self._no_connection(error) from error
        assert self._reading_task is not None
        self._reading_task.add_done_callback(lambda _: self.lost.set_result(None))

    def others(self) -> list[tuple[str, str]]:
        """Address and ``tls_name`` of further servers of the cluster. With TLS, an IP address may have the name of the
        host that named it, because certificates often have no addresses."""
        scheme, host = self._url.partition("://")[0], self._tls_name or urlsplit(self._url).hostname or ""
        has_name = bool(self._server_info.get("tls_required")) and not self._host_is_ip(host)
        found = [(f"{scheme}://{each.netloc}", "") for each in self.discovered_servers]
        return [(url, host) for url, _ in found if has_name and self._host_is_ip(urlsplit(url).hostname)] + found

    async def end(self) -> None:
        """Close, also when the server does not read."""
        try:
            await asyncio.wait_for(self.close(), _CLOSE_TIMEOUT)
        except (OSError, errors.Error, TimeoutError, RuntimeError, AssertionError):
            pass  # the connection may be lost in any state, or was not begun
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _report(self, error: Exception) -> None:
        if self._status in (self.DISCONNECTED, self.CONNECTING):
            raise error  # else the client would retry in a loop of its own
        self._on_error(error)

    def _no_connection(self, error: Exception) -> NoConnectionError:
        text = " ".join(str(error).split()) or type(error).__name__
        options = self._access.options
        kind: type[NoConnectionError] = RefusedError
        who = options.user or options.credentials_file
        if any(each and each in text for each in ("uthoriz", "uthentic", "nkeys:", options.credentials_file)):
            reason = f"refuses the user {who!r} ({text}); correct user, password or credentials_file"
        elif isinstance(error, ssl.SSLError | _PlainError):
            reason = f"gives no encrypted connection: {text}; correct servers and the TLS files"
        else:
            kind = NoConnectionError
            if isinstance(error, TimeoutError):
                text = f"no answer within {options.connect_timeout:g} s"
            reason = f"is unavailable: {text}; start it, or correct servers"
        return kind(f"the NATS server {self._url} {reason} in [pubsub_nats]")

    # -- hooks of the client's base class ------------------------------------------------------------------------

    def _connect_command(self) -> bytes:
        if (self._access.tls or self._url.startswith("tls://")) and not self._server_info.get("tls_required"):
            raise _PlainError("it does not require TLS")  # before it gets the password
        return super()._connect_command()

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        # The base class swallows the cancellation of a task that waits here for a server that does not read.
        flushed = await super()._flush_pending(force_flush)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return flushed

    async def _send_ping(self, future: "asyncio.Future[Any] | None" = None) -> None:
        # The base class writes a ping past the commands that wait to be written. The answer must show that the server
        # has handled them, above all the subscriptions.
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(b"PING\r\n")
        await self._flush_pending()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> None:
        # The base class has a queue and a task for each subscription, so that messages would overtake hellos. It would
        # also drop what arrives for a subscription that has just ended. Headers are not read, because this library
        # sends none, and those of others may be damaged; a subject that is not UTF-8 is counted as foreign.
        self.stats["in_bytes"] += len(data)
        self._on_message(subject.decode(errors="replace"), reply.decode(errors="replace"), data)


class _PlainError(errors.Error):
    """The server would get the password unencrypted."""
