"""Options of ``nats_pubsub_driver``, in the group ``[pubsub_nats]``. Needs no NATS client."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from msgspec import Meta

import pubsub_lib.config.driver_options as shared
from pubsub_lib.config.fields import checked_options, option, opts_of
from pubsub_lib.errors import ConfigError
from pubsub_lib.masking import masked_url

EXTRA: Final = "nats"
"""The extra of this distribution that brings the NATS client."""
BINDS: Final = False
"""Publishers bind no address."""

_Count = Annotated[int, Meta(ge=1, le=2**40)]
_Seconds = Annotated[float, Meta(ge=0.01, le=3600)]


class NatsOptions(shared.DriverOptions, frozen=True, forbid_unknown_fields=True):
    """The driver's own options. Times in seconds."""

    servers: Annotated[
        tuple[str, ...],
        option(
            "Addresses of NATS servers: nats://host:port, or tls://host:port for connections that must be encrypted. "
            "Further servers of their cluster are found by themselves."
        ),
    ] = ("nats://127.0.0.1:4222",)
    prefix: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$", max_length=200)],
        option(
            "First tokens of all subjects. Publishers and subscribers of one store need the same prefix, and those of "
            "another store on the same servers another one."
        ),
    ] = "pubsub"
    user: Annotated[str, option("Name of the user at the servers.")] = ""
    password: Annotated[str, option("Password of the user.", secret=True)] = ""
    credentials_file: Annotated[
        str, option("File with the JWT and the key of a user (.creds), in place of user and password.")
    ] = ""
    tls_ca_file: Annotated[str, option("File with the certificates that sign the servers'; empty: the system's.")] = ""
    tls_cert_file: Annotated[str, option("File with the certificate that this client shows to the servers.")] = ""
    tls_key_file: Annotated[str, option("File with the key of tls_cert_file.")] = ""
    connect_timeout: Annotated[
        _Seconds, option("Maximum duration of connecting to one server, and of a publisher's start. In seconds.")
    ] = 5.0
    reconnect_interval: Annotated[_Seconds, shared.RECONNECT_INTERVAL] = 0.1
    max_reconnect_interval: Annotated[_Seconds, shared.MAX_RECONNECT_INTERVAL] = 2.0
    keepalive_interval: Annotated[_Seconds, option("Wait between two pings of the server. In seconds.")] = 2.0
    keepalive_timeout: Annotated[
        _Seconds, option("Time without a message or an answer to a ping, after which a connection is lost. In seconds.")
    ] = 5.0
    pending_messages: Annotated[
        _Count, option("Maximum number of received messages that wait in a subscriber; further ones are lost.")
    ] = 10_000
    pending_bytes: Annotated[_Count, option("Maximum size of the waiting messages together, in bytes.")] = (
        64 * 1024 * 1024
    )
    send_queue: Annotated[_Count, shared.SEND_QUEUE] = 10_000
    send_wait: Annotated[shared.SendWait, shared.SEND_WAIT] = 0.5
    questions_per_second: Annotated[_Count, shared.QUESTIONS_PER_SECOND] = 2000


OPTIONS: Final = opts_of(NatsOptions)


def checked(given: Mapping[str, Any]) -> NatsOptions:
    """Return the options from their names and values. Raises ConfigError for invalid ones."""
    options = checked_options(NatsOptions, given, "nats_pubsub_driver", "pubsub_nats")
    for wrong in filter(None, (*map(_wrong_server, options.servers), _conflict(options))):
        raise ConfigError(f"nats_pubsub_driver cannot use its options: {wrong} in [pubsub_nats]")
    return options


def _conflict(options: NatsOptions) -> str:
    if not options.servers:
        return "servers is empty; name at least one"
    if options.user and options.credentials_file:
        return "user and credentials_file are both given; remove one"
    return shared.conflict(options, ("user", "password"), ("tls_cert_file", "tls_key_file"))


def _wrong_server(url: str) -> str:
    if "@" in url:
        return "an address of servers holds a user or a password; set the options for them, and remove it"
    with suppress(ValueError):  # else it is wrong, too
        parts = urlsplit(url)
        more = parts.path.strip("/") or parts.query or parts.fragment
        if parts.scheme in ("nats", "tls") and parts.hostname and parts.port != 0 and not more:
            return ""
    return f"the address {masked_url(url)!r} of servers is not nats://host:port or tls://host:port; correct it"
