"""The options that every program reads: the base of ``Settings``, and how a store treats its database."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from pubsub_lib.config.fields import option
from pubsub_lib.core.timing import SecondsOrNone
from pubsub_lib.sync.agents import MAX_INTERVAL

STORE_PREFIX: Final = "store_"
"""Prefix of the options of :class:`StoreSettings`: an option ``timeout`` alone would be ambiguous."""
JOURNAL_PREFIX: Final = "journal_"
HANDLER_PREFIX: Final = "handler_"

MAX_STORE_SECONDS: Final = 1_000_000.0
"""The servers hold such a time in milliseconds, in 31 bits."""

Port = Annotated[int, Meta(ge=0, le=65535)]
Text = Annotated[str, Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Seconds = Annotated[float, Meta(ge=0.001, le=MAX_STORE_SECONDS)]


class ProgramSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of ``[pubsub]`` that are settings as they stand."""

    store_url: Annotated[
        str,
        option(
            "SQLAlchemy URL of the database that holds the objects. Required, except for a replica or a relay with "
            "sync_url or parents.",
            secret=True,
            sample="sqlite:////var/lib/pubsub_lib/net.db",
        ),
    ] = ""
    sync_url: Annotated[
        str,
        option(
            "URLs, separated by commas, of publisher services with serve_syncs = true. A replica, or a relay, reads "
            "its syncs from the first one that answers, and not from the database. Without store_url it needs no "
            "database, and finds publishers by parents or publishers_ips only. A replica or a relay with parents and "
            "without both reads its syncs from its parent, whose hellos name the port. Other programs ignore it.",
            sample="http://127.0.0.1:8867",
        ),
    ] = ""
    max_sync_bytes: Annotated[
        int,
        Meta(ge=1024, le=2**62),
        option("Maximum size of one sync's answer from sync_url, uncompressed, in bytes."),
    ] = 4 * 1024 * 1024 * 1024
    announce_interval: Annotated[
        float,
        Meta(ge=0, le=MAX_INTERVAL),
        option(
            "How often a replica or a relay with sync_url announces itself there, and one with parents alone at its "
            "parent, for pubsub-db agents: its name and host, its topics, its staleness and its parent. 0 means "
            "never. In seconds."
        ),
    ] = 30.0
    service_name: Annotated[
        str,
        option(
            "Stable name of this service. Every message contains it, and every transaction of this service has it as "
            "its origin. Required for programs that publish."
        ),
    ] = ""
    group_commit: Annotated[
        Literal["process", "host"],
        option(
            "Transactions that are committed at the same time share one transaction of the database: those of the "
            "threads of one process, or those of all workers of the host, which the publisher service then commits. "
            "'host' needs pub_sub_use_multiproc. A worker commits by its own connection when the service does not."
        ),
    ] = "process"
    topics: Annotated[tuple[str, ...], option("Topics that a replica subscribes to when its program names none.")] = ()
    default_topic: Annotated[
        bool,
        option("A replica of named topics also subscribes to 'default', the topic of objects without a topic."),
    ] = True
    paranoid: Annotated[
        bool,
        option(
            "For tests: a replica compares its cache with the database after every sync, and fails on a difference."
        ),
    ] = False
    parents: Annotated[
        tuple[str, ...],
        option(
            "Addresses of relays, the preferred one first. A replica, or a relay, with parents listens to one of them "
            "and not to publishers_ips or the publishers in the directory. It listens to the next one when the parent "
            "has proved nothing for three times max_idle_time.",
            sample="tcp://<relay's address>:8866",
        ),
    ] = ()
    discovery_interval: Annotated[
        SecondsOrNone,
        option(
            "How often a replica reads the publishers' addresses from the directory in the database; 0 means that it "
            "connects only to publishers_ips. In seconds."
        ),
    ] = 10.0
    client_key_file: Annotated[
        str,
        option(
            "File with the key of a replica, or of another program that receives, with keys = true: pubsub-db clients "
            "add makes it. Only the program's user should be able to read it.",
            sample="/etc/pubsub_lib/agent-7.key",
        ),
    ] = ""
    clients_interval: Annotated[
        float,
        Meta(ge=0.1, le=60.0),
        option(
            "How often a publisher with keys reads the clients and their topics from the database. A client whose key "
            "was revoked receives nothing after this time and 2 s. In seconds."
        ),
    ] = 2.0
    replica_metrics_port: Annotated[
        Port,
        option(
            "HTTP port of a replica's metrics and readiness (/metrics, /ready); 0 means none. Each replica on a host "
            "needs its own port."
        ),
    ] = 0
    replica_metrics_address: Annotated[Text, option("Address of a replica's HTTP endpoint.")] = "127.0.0.1"
    replica_metrics_hosts: Annotated[
        tuple[str, ...],
        option(
            "Names by which clients may reach a replica's HTTP endpoint, besides its addresses and localhost. A "
            "request whose Host header has another name gets 403."
        ),
    ] = ()
    replica_name: Annotated[
        str,
        option(
            "Stable name of a replica in its journal and its announcements; default: the host's name. Use different "
            "names on one host."
        ),
    ] = ""


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a store treats its database: pool, timeouts, retries, pages. Frozen; made once. All times in seconds.

    A writer that stops while it holds the counter blocks all writers. Therefore ``lock_timeout`` (of the waiting
    writers) and ``idle_in_transaction_timeout`` (of the stopped one; MySQL has none) are short; MariaDB rounds both up
    to whole seconds, and MySQL the first. SQLite has neither an idle-in-transaction nor a statement timeout.
    """

    pool_size: Annotated[
        _Count,
        option(
            "Connections to the database that each process keeps open for writing, and as many for reading; up to "
            "twice as many are open for short times."
        ),
    ] = 5
    connect_timeout: Annotated[
        _Seconds,
        option(
            "Maximum time to open a connection to the database. PostgreSQL, MariaDB and MySQL: rounded up to whole "
            "seconds, of PostgreSQL to at least 2. In seconds."
        ),
    ] = 5.0
    statement_timeout: Annotated[
        _Seconds, option("Maximum time of one SQL statement. SQLite has no such limit. In seconds.")
    ] = 30.0
    lock_timeout: Annotated[
        _Seconds,
        option(
            "Maximum wait for one database lock (SQLite: for the write lock; MariaDB and MySQL: rounded up to whole "
            "seconds), and for a free connection of the pool. In seconds."
        ),
    ] = 5.0
    idle_in_transaction_timeout: Annotated[
        _Seconds,
        option(
            "The server ends a writer's transaction that is idle for this time, and a reader's after one hour, or "
            "after this time if that is longer. MariaDB: rounded up to whole seconds. MySQL and SQLite have no such "
            "limit. In seconds."
        ),
    ] = 10.0
    retry_attempts: Annotated[
        _Count,
        option("Maximum number of attempts of one operation that meets deadlocks, lock timeouts or lost connections."),
    ] = 10
    retry_max_seconds: Annotated[
        _Seconds, option("No further attempt of an operation starts after this time. In seconds.")
    ] = 30.0
    page_size: Annotated[_Count, option("Maximum number of rows that one statement of a sync reads.")] = 2000
    max_delta_links: Annotated[
        _Count,
        option("A replica that is behind by more links than this reads all objects instead of the missing changes."),
    ] = 100_000
