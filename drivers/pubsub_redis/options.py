"""Options of ``redis_pubsub_driver``, in the group ``[pubsub_redis]``. Needs no client library."""

from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

import pubsub_lib.config.driver_options as shared
from pubsub_lib.config.fields import checked_options, option, opts_of
from pubsub_lib.errors import ConfigError
from pubsub_lib.masking import masked

EXTRA: Final = "redis"
"""The extra of this distribution that brings the client library."""
BINDS: Final = False
"""Publishers bind no address."""
GROUP: Final = "pubsub_redis"

TCP, TLS, UNIX = "redis", "rediss", "unix"
_PORT: Final = 6379
_MAX: Final = 2_000_000
_Count = Annotated[int, Meta(ge=1, le=_MAX)]
_Seconds = Annotated[float, Meta(ge=0.001, le=3600)]


class RedisOptions(shared.DriverOptions, frozen=True, forbid_unknown_fields=True):
    """The driver's own options. Times in seconds."""

    url: Annotated[
        str,
        option("The server (Redis 6.0 or later): redis://host:port, rediss://host:port with TLS, or unix:///path."),
    ] = "redis://127.0.0.1:6379"
    prefix: Annotated[
        str, option("Start of the names of all channels. Programs that shall communicate have the same.")
    ] = "pubsub_lib:"
    user: Annotated[str, option("User of the server's access control list; empty: its default user.")] = ""
    password: Annotated[str, option("Password of the user; empty: none.", secret=True)] = ""
    ca_file: Annotated[
        str, option("PEM file of the authorities that may sign the server's certificate; empty: the system's.")
    ] = ""
    cert_file: Annotated[str, option("PEM file of the certificate that this program shows to the server.")] = ""
    key_file: Annotated[str, option("PEM file of the private key of cert_file.")] = ""
    connect_timeout: Annotated[
        _Seconds, option("Maximum duration of connecting; a publisher that starts waits that long. In seconds.")
    ] = 5.0
    timeout: Annotated[
        _Seconds,
        option("Maximum time until the server answers or takes data; then the connection is lost. In seconds."),
    ] = 5.0
    ping_interval: Annotated[
        _Seconds, option("Silence after which the server must answer a PING within timeout. In seconds.")
    ] = 2.0
    reconnect_interval: Annotated[_Seconds, shared.RECONNECT_INTERVAL] = 0.1
    max_reconnect_interval: Annotated[_Seconds, shared.MAX_RECONNECT_INTERVAL] = 2.0
    send_queue: Annotated[_Count, shared.SEND_QUEUE] = 10_000
    send_wait: Annotated[shared.SendWait, shared.SEND_WAIT] = 0.5
    questions_per_second: Annotated[_Count, shared.QUESTIONS_PER_SECOND] = 2000


OPTIONS: Final = opts_of(RedisOptions)


class Server(msgspec.Struct, frozen=True):
    """The server of a URL: ``scheme`` with a host and a port, or with the path of a socket."""

    url: str
    scheme: str
    host: str
    port: int
    path: str


def checked(given: Mapping[str, Any]) -> tuple[RedisOptions, Server]:
    """The options and their server, from names and values. Raises ConfigError for invalid ones, and for TLS files
    that cannot be used."""
    options = checked_options(RedisOptions, given, "redis_pubsub_driver", GROUP)
    if not options.prefix.isprintable():
        raise ConfigError(f"the prefix {options.prefix!r} is not printable; correct it in [{GROUP}]")
    if conflict := shared.conflict(options, ("cert_file", "key_file")):
        raise ConfigError(f"redis_pubsub_driver cannot use its options: {conflict} in [{GROUP}]")
    server = server_of(options.url)
    if server.scheme != TLS and (options.ca_file or options.cert_file):
        raise ConfigError(f"ca_file, cert_file and key_file need TLS; set url = rediss://… in [{GROUP}]")
    if server.scheme == TLS:
        shared.tls_context(options, GROUP)
    return options, server


def server_of(url: str) -> Server:
    """The server of a URL. Raises ConfigError, without quoting a password."""
    if "@" in url and not url.startswith(f"{UNIX}:///"):
        raise ConfigError(f"url has a user or a password; set user and password in [{GROUP}] instead")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORT
    except ValueError as error:
        raise ConfigError(f"url is not valid: {error}; set redis://host:port in [{GROUP}]") from None
    socket = parts.scheme == UNIX and not host and len(parts.path) > 1
    network = parts.scheme in (TCP, TLS) and host and parts.path in ("", "/")
    if not (socket or network) or parts.query or parts.fragment:
        raise ConfigError(
            f"url = {masked(url)!r} is not the address of a server; set redis://host:port, rediss://host:port or "
            f"unix:///path in [{GROUP}]"
        )
    return Server(url, parts.scheme, host, port, parts.path)
