"""The options of an INI file (oslo.config), in the group ``[pubsub]``. Nothing here reads a global ``CONF``.

Names and defaults of Dragonflow's publish-subscribe spec are kept, and a Dragonflow file's ``[df]`` group is
still read for them. :mod:`pubsub_lib.settings` turns the options once into frozen settings; programs without
an INI file need only that module.

A driver defines its own options in ``<its package>.options.OPTIONS``, which can be imported without the driver's
dependencies. They are read from the group that has the package's name.
"""

import copy
from typing import Final

from oslo_config import cfg

from pubsub_lib import dragonflow, installed_drivers

GROUP: Final = "pubsub"
POLLING_DRIVER: Final = "db_polling_pubsub_driver"
"""The driver of a replica while publish-subscribe is off."""

_LOWEST: Final = 0.001  # seconds; a shorter timer is a busy loop
MAX_SECONDS: Final = 3e9
"""About a century: far below the value at which a timer, or the database's arithmetic, overflows."""


def _seconds(name: str, default: float, text: str, least: float = _LOWEST, maximum: float = MAX_SECONDS) -> cfg.Opt:
    return cfg.FloatOpt(name, default=default, min=least, max=maximum, help=f"{text} In seconds.")


def _count(name: str, default: int, text: str, maximum: int | None = None) -> cfg.Opt:
    return cfg.IntOpt(name, default=default, min=1, max=maximum, help=text)


STORE_MAX_COUNT: Final = 2**31 - 1
STORE_MAX_SECONDS: Final = 1_000_000.0
"""The servers hold such a time in milliseconds, in 31 bits."""


def _store_seconds(name: str, default: float, text: str) -> cfg.Opt:
    return _seconds(name, default, text, maximum=STORE_MAX_SECONDS)


def _store_count(name: str, default: int, text: str) -> cfg.Opt:
    return _count(name, default, text, maximum=STORE_MAX_COUNT)


STORE_PREFIX: Final = "store_"
"""Prefix of the names of :class:`pubsub_lib.store.StoreSettings`: an option ``timeout`` alone would be ambiguous."""
STORE: Final[tuple[cfg.Opt, ...]] = (
    _store_count(
        "store_pool_size",
        5,
        "Connections to the database that each process keeps open for writing, and as many for reading; up to twice "
        "as many are open for short times.",
    ),
    _store_seconds("store_connect_timeout", 5.0, "Maximum time to open a connection to the database."),
    _store_seconds("store_statement_timeout", 30.0, "Maximum time of one SQL statement. SQLite has no such limit."),
    _store_seconds(
        "store_lock_timeout",
        5.0,
        "Maximum wait for one database lock (SQLite: for the write lock), and for a free connection of the pool.",
    ),
    _store_seconds(
        "store_idle_in_transaction_timeout",
        10.0,
        "The server ends a writer's transaction that is idle for this time. MySQL and SQLite have no such limit.",
    ),
    _store_count(
        "store_retry_attempts",
        10,
        "Maximum number of attempts of one operation that meets deadlocks, lock timeouts or lost connections.",
    ),
    _store_seconds("store_retry_max_seconds", 30.0, "No further attempt of an operation starts after this time."),
    _store_count("store_page_size", 2000, "Maximum number of rows that one statement of a sync reads."),
    _store_count(
        "store_max_delta_links",
        100_000,
        "A replica that is behind by more links than this reads all objects instead of the missing changes.",
    ),
)

GENERAL: Final[tuple[cfg.Opt, ...]] = (
    cfg.StrOpt(
        "store_url",
        default="",
        secret=True,
        sample_default="sqlite:////var/lib/pubsub_lib/net.db",
        help="SQLAlchemy URL of the database that holds the objects. Required.",
    ),
    cfg.StrOpt(
        "service_name",
        default="",
        help="Stable name of this service. Every message contains it, and every transaction of this service has it as "
        "its origin. Required for programs that publish.",
    ),
    cfg.ListOpt("topics", default=[], help="Topics that a replica subscribes to when its program names none."),
    cfg.BoolOpt(
        "default_topic",
        default=True,
        help="A replica of named topics also subscribes to 'default', the topic of objects without a topic.",
    ),
    cfg.BoolOpt(
        "paranoid",
        default=False,
        help="For tests: a replica compares its cache with the database after every sync, and fails on a difference.",
    ),
    *STORE,
)

# The spec's options: same names, same defaults; only the switch lost Dragonflow's name.
PUBSUB: Final[tuple[cfg.Opt, ...]] = (
    cfg.BoolOpt(
        "enable_pub_sub",
        default=False,
        deprecated_opts=[
            cfg.DeprecatedOpt(dragonflow.SWITCH, group=dragonflow.GROUP),
            cfg.DeprecatedOpt(dragonflow.SWITCH, group=GROUP),
        ],
        help="Replicas receive changes as messages from publishers. When off, replicas poll the database.",
    ),
    cfg.StrOpt(
        "pub_sub_driver",
        default="zmq_pubsub_driver",
        deprecated_group=dragonflow.GROUP,
        help="Name of the installed driver that carries messages from publishers to subscribers.",
    ),
    cfg.StrOpt(
        "local_ip",
        default="127.0.0.1",
        sample_default="<your address>",
        deprecated_group=dragonflow.GROUP,
        help="Address of this host. Other options can refer to it as $local_ip.",
    ),
    cfg.ListOpt(
        "publishers_ips",
        default=["$local_ip"],
        deprecated_group=dragonflow.GROUP,
        help="Addresses of the hosts that run a publisher.",
    ),
    cfg.PortOpt(
        "publisher_port", default=8866, min=1, deprecated_group=dragonflow.GROUP, help="TCP port of the publishers."
    ),
    cfg.StrOpt(
        "publisher_transport",
        default="tcp",
        deprecated_group=dragonflow.GROUP,
        help="Transport protocol of the publishers: the part of their addresses before '://'.",
    ),
    cfg.StrOpt(
        "publisher_bind_address",
        default="*",
        deprecated_group=dragonflow.GROUP,
        help="Address that a publisher binds. '*' means every interface, but only with insecure = true; otherwise "
        "a publisher binds $local_ip instead of '*'.",
    ),
    cfg.BoolOpt(
        "insecure",
        default=False,
        help="Allow a publisher without keys to bind every interface ('*', 0.0.0.0 or [::]). Every host that reaches "
        "it can then read its messages and send it hello requests.",
    ),
    cfg.BoolOpt(
        "pub_sub_use_multiproc",
        default=True,
        deprecated_group=dragonflow.GROUP,
        help="Worker processes hand their messages over to the publisher service of their host, which sends them "
        "(bind-based drivers only).",
    ),
    cfg.StrOpt(
        "pub_sub_multiproc_driver",
        default="zmq_pubsub_multiproc_driver",
        deprecated_group=dragonflow.GROUP,
        help="Name of the driver that carries messages from worker processes to the publisher service.",
    ),
    cfg.StrOpt(
        "publisher_multiproc_socket",
        default="/var/run/zmq_pubsub/zmq-publisher-socket",
        deprecated_group=dragonflow.GROUP,
        help="Path of the Unix domain socket between worker processes and the publisher service.",
    ),
    _seconds(
        "discovery_interval",
        10.0,
        "How often a replica reads the publishers' addresses from the directory in the database; 0 means that it "
        "connects only to publishers_ips.",
        least=0.0,
    ),
)

TIMING: Final[tuple[cfg.Opt, ...]] = (
    _seconds(
        "max_idle_time",
        5.0,
        "How often a replica sends a hello request to every publisher. A publisher that sent no message for this time "
        "sends a hello to all subscribers.",
    ),
    _seconds(
        "message_delay_window",
        1.0,
        "How long a message may wait for an earlier one before the missing changes are read from the database.",
    ),
    _seconds("hello_wait", 1.0, "How long a new topic waits for a first hello reply before its first sync."),
    _seconds("reading_age", 1.0, "Maximum age of the head positions that a publisher sends in a hello."),
    _seconds("round_trip", 1.0, "Allowed time between a hello request and its reply."),
    _seconds("poll_interval", 2.0, "How often a replica polls the database while no publisher sends hello replies."),
    _seconds(
        "connect_jitter",
        0.5,
        "A replica sends hello requests after a random wait of at most this time when a connection is made.",
        least=0.0,
    ),
    _seconds("sync_jitter", 0.5, "A sync starts after a random wait of at most this time.", least=0.0),
    _seconds("sync_interval", 1.0, "Minimum time between the end of one sync and the start of the next.", least=0.0),
    _seconds("sync_backoff", 1.0, "Wait after a failed sync. It doubles with each further failure."),
    _seconds("max_sync_backoff", 30.0, "Maximum wait after a failed sync."),
    _seconds("sync_timeout", 60.0, "A sync that runs for longer than this counts as failed."),
    _seconds(
        "recount_time",
        600.0,
        "A replica compares every object in its memory with its digest once in this time, in small steps, and reads "
        "altered or lost objects again; 0 means never.",
        least=0.0,
    ),
)

LIMITS: Final[tuple[cfg.Opt, ...]] = (
    _count("max_value_bytes", 256 * 1024, "Maximum size of one value as canonical JSON, in bytes."),
    _count("max_value_depth", 64, "Maximum nesting depth of one value."),
    _count("max_transaction_changes", 10_000, "Maximum number of changes in one transaction."),
    _count("max_transaction_bytes", 16 * 1024 * 1024, "Maximum size of a transaction's keys and values, in bytes."),
    _count("max_frame_bytes", 1024 * 1024, "Maximum size of one wire frame, in bytes. Use one value on all hosts."),
    _count("max_waiting_links", 10_000, "Maximum number of messages of one topic that wait for an earlier message."),
    _count("max_waiting_bytes", 64 * 1024 * 1024, "Maximum size of the waiting messages of one topic, in bytes."),
)

HANDLING: Final[tuple[cfg.Opt, ...]] = (
    _count("queue_limit", 10_000, "When more changes than this wait for one handler, changes of one key are merged."),
    _count("handler_tries", 5, "Maximum number of calls of a failing handler for one change, before it is parked."),
    _seconds("handler_backoff", 0.5, "Wait before a failed handler's second call. It doubles with each further call."),
    _seconds("max_handler_backoff", 30.0, "Maximum wait between two calls of a failing handler."),
)

METRICS: Final[tuple[cfg.Opt, ...]] = (
    cfg.PortOpt(
        "replica_metrics_port",
        default=0,
        help="HTTP port of a replica's metrics and readiness (/metrics, /ready); 0 means none. Each replica on a host "
        "needs its own port.",
    ),
    cfg.StrOpt("replica_metrics_address", default="127.0.0.1", help="Address of a replica's HTTP endpoint."),
)

JOURNAL_PREFIX: Final = "journal_"
"""Prefix of the names of :class:`pubsub_lib.journal.JournalSettings`."""
JOURNAL: Final[tuple[cfg.Opt, ...]] = (
    cfg.StrOpt(
        "journal_folder",
        default="",
        sample_default="/var/lib/pubsub_lib/journals",
        help="Folder in which every writer, service and replica writes its journal for the audit; empty means none.",
    ),
    _seconds("journal_mark_seconds", 2.0, "How often a mark record is written to a journal, also without events."),
    _count("journal_roll_bytes", 64 << 20, "A journal file that reaches this size, in bytes, is converted to Parquet."),
    _seconds("journal_roll_seconds", 300.0, "A journal file that reaches this age is converted to Parquet."),
    cfg.IntOpt(
        "journal_keep_bytes",
        default=10 << 30,
        min=1,
        help="Maximum total size of the finished journal files in the folder, in bytes. The oldest are removed first.",
    ),
    _seconds("journal_keep_seconds", 604_800.0, "Finished journal files that reach this age are removed."),
)
REPLICA: Final[tuple[cfg.Opt, ...]] = (
    cfg.StrOpt(
        "replica_name",
        default="",
        help="Stable name of a replica in its journal; default: the host's name. Use different names on one host.",
    ),
)

SERVICE_GROUP: Final = "publisher_service"
"""Read only by the publisher service."""
DAY: Final = 86_400.0
MAX_LINKS: Final = 2**53
"""Maximum number of links for trimming; the maximum of seconds is MAX_SECONDS."""
SERVICE: Final[tuple[cfg.Opt, ...]] = (
    cfg.StrOpt(
        "address",
        default="",
        sample_default="tcp://<your address>:8866",
        help="Address at which replicas reach this service; the service enters it in the directory. By default it is "
        "the address that the service binds, with $local_ip in place of '*'.",
    ),
    _seconds(
        "lease",
        10.0,
        "How long this service counts as running after it last renewed its entry in the directory.",
        least=0.5,
        maximum=DAY,
    ),
    _seconds(
        "follow_interval",
        0.25,
        "How often the service reads the changelog for changes that no worker handed over.",
        maximum=DAY,
    ),
    _seconds(
        "grace", 0.5, "How long a worker has to hand over a commit, before the service publishes it.", maximum=DAY
    ),
    cfg.IntOpt(
        "keep_links",
        default=1_000_000,
        min=0,
        max=MAX_LINKS,
        help="Maximum number of links that trimming keeps in the changelog, the newest ones; 0 means no limit.",
    ),
    _seconds(
        "keep_time",
        0.0,
        "Maximum age of the links that trimming keeps in the changelog; 0 means no limit. With both limits set, "
        "trimming removes a link that exceeds either.",
        least=0.0,
    ),
    _seconds(
        "trim_interval", 60.0, "How often the changelog is trimmed and expired directory entries removed.", maximum=DAY
    ),
    _seconds(
        "recount_time",
        3600.0,
        "Every object in the database is compared with its fingerprint, and every topic with its count and digest, "
        "once in this time. Data that was altered without the library is found and repaired; 0 means never. Only the "
        "service that trims the changelog does it.",
        least=0.0,
    ),
    cfg.StrOpt(
        "metrics_address",
        default="127.0.0.1",
        help="Address of the service's HTTP endpoint for metrics and readiness (/metrics, /ready).",
    ),
    cfg.PortOpt("metrics_port", default=8867, help="Port of the service's HTTP endpoint; 0 means none."),
)

OPTIONS: Final[tuple[cfg.Opt, ...]] = GENERAL + PUBSUB + TIMING + LIMITS + HANDLING + METRICS + REPLICA + JOURNAL


def register(conf: cfg.ConfigOpts, driver: str = "") -> None:
    """Register the group ``[pubsub]`` in this ``conf`` (again is harmless), and this driver's own group."""
    conf.register_opts(OPTIONS, group=GROUP)
    if driver:
        group, opts = installed_drivers.options_of(driver)
        conf.register_opts(opts, group=group)


def dragonflow_names() -> dict[str, str]:
    """Name in a Dragonflow file's ``[df]`` -> our name, for the options that are read from there."""
    return {
        old.name or option.dest: option.dest
        for option in PUBSUB
        for old in option.deprecated_opts
        if old.group == dragonflow.GROUP
    }


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """All options for ``oslo-config-generator`` (namespace ``pubsub_lib``): ours, then each driver's in its group."""
    ours = ((GROUP, OPTIONS), (SERVICE_GROUP, SERVICE))
    groups = [(group, [copy.deepcopy(option) for option in opts]) for group, opts in ours]
    drivers = dict(installed_drivers.options_of(driver) for driver in installed_drivers.packages())
    groups.extend((group, [copy.deepcopy(option) for option in drivers[group]]) for group in sorted(drivers))
    return [(group, opts) for group, opts in groups if opts]
