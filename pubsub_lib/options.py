"""The options of an INI file (oslo.config), in the group ``[pubsub]``. Nothing here reads a global ``CONF``.

Names and defaults of Dragonflow's publish-subscribe spec are kept, and a Dragonflow file's ``[df]`` group is
still read for them. :mod:`pubsub_lib.settings` turns the options once into frozen settings; programs without
an INI file need only that module.

A driver's own options stand in ``<its package>.options.OPTIONS``, importable without the driver's
dependencies, and are read from the group that is named like the package.
"""

import copy
from typing import Final

from oslo_config import cfg

from pubsub_lib import dragonflow, installed_drivers

GROUP: Final = "pubsub"
POLLING_DRIVER: Final = "db_polling_pubsub_driver"
"""What a replica follows by while publish-subscribe is off."""

_LOWEST: Final = 0.001  # seconds; below that a timer is a busy loop
MAX_SECONDS: Final = 3e9
"""About a century: far below what a timer, or the database's arithmetic, overflows at."""


def _seconds(name: str, default: float, text: str, least: float = _LOWEST, maximum: float = MAX_SECONDS) -> cfg.Opt:
    return cfg.FloatOpt(name, default=default, min=least, max=maximum, help=f"{text} In seconds.")


def _count(name: str, default: int, text: str, maximum: int | None = None) -> cfg.Opt:
    return cfg.IntOpt(name, default=default, min=1, max=maximum, help=text)


STORE_MAX_COUNT: Final = 2**31 - 1
STORE_MAX_SECONDS: Final = 1_000_000.0
"""The servers count in milliseconds, of 31 bits."""


def _store_seconds(name: str, default: float, text: str) -> cfg.Opt:
    return _seconds(name, default, text, maximum=STORE_MAX_SECONDS)


def _store_count(name: str, default: int, text: str) -> cfg.Opt:
    return _count(name, default, text, maximum=STORE_MAX_COUNT)


STORE_PREFIX: Final = "store_"
"""Stands before a name of :class:`pubsub_lib.store.StoreSettings`; ``timeout`` alone would not say whose."""
STORE: Final[tuple[cfg.Opt, ...]] = (
    _store_count(
        "store_pool_size",
        5,
        "Connections to the database that are kept per process and kind (writers, readers); twice as many may be open "
        "for a moment.",
    ),
    _store_seconds("store_connect_timeout", 5.0, "How long a connection to the database may take to be made."),
    _store_seconds("store_statement_timeout", 30.0, "How long one SQL statement may take; SQLite has no such bound."),
    _store_seconds(
        "store_lock_timeout",
        5.0,
        "How long to wait for one lock (SQLite: for the writer's place), and for a free connection of the pool.",
    ),
    _store_seconds(
        "store_idle_in_transaction_timeout",
        10.0,
        "After how long the server ends the transaction of a writer that stopped; MySQL and SQLite have no such bound.",
    ),
    _store_count(
        "store_retry_attempts",
        10,
        "Tries of one operation that met a deadlock, a lock timeout or a lost connection.",
    ),
    _store_seconds("store_retry_max_seconds", 30.0, "After how long no new try of an operation begins."),
    _store_count("store_page_size", 2000, "Rows that one statement of a sync reads."),
    _store_count(
        "store_max_delta_links",
        100_000,
        "A replica that fell behind by more links than this reads all objects instead.",
    ),
)

GENERAL: Final[tuple[cfg.Opt, ...]] = (
    cfg.StrOpt(
        "store_url",
        default="",
        secret=True,
        sample_default="sqlite:////var/lib/pubsub_lib/net.db",
        help="SQLAlchemy URL of the database that holds the objects. Needed.",
    ),
    cfg.StrOpt(
        "service_name",
        default="",
        help="Stable name of this service: it stands in every message and names the origin of what it writes. "
        "Needed by whatever publishes.",
    ),
    cfg.ListOpt("topics", default=[], help="Topics that are subscribed to when the program names none itself."),
    cfg.BoolOpt(
        "default_topic",
        default=True,
        help="A replica of named topics also follows the topic 'default', that of objects without a topic.",
    ),
    cfg.BoolOpt(
        "paranoid",
        default=False,
        help="For tests: compare the cache with the database after every sync, and fail on a difference.",
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
        help="Follow the messages of publishers. When off, replicas follow by polling the database.",
    ),
    cfg.StrOpt(
        "pub_sub_driver",
        default="zmq_pubsub_driver",
        deprecated_group=dragonflow.GROUP,
        help="The driver between publishers and subscribers, by its name among the installed ones.",
    ),
    cfg.StrOpt(
        "local_ip",
        default="127.0.0.1",
        sample_default="<your address>",
        deprecated_group=dragonflow.GROUP,
        help="Address of this host, for use in other options as $local_ip.",
    ),
    cfg.ListOpt(
        "publishers_ips",
        default=["$local_ip"],
        deprecated_group=dragonflow.GROUP,
        help="Addresses of the hosts that run a publisher.",
    ),
    cfg.PortOpt(
        "publisher_port", default=8866, min=1, deprecated_group=dragonflow.GROUP, help="Port that publishers bind."
    ),
    cfg.StrOpt(
        "publisher_transport",
        default="tcp",
        deprecated_group=dragonflow.GROUP,
        help="Transport protocol of the publishers, the first part of their addresses.",
    ),
    cfg.StrOpt(
        "publisher_bind_address",
        default="*",
        deprecated_group=dragonflow.GROUP,
        help="Address that a publisher binds. '*' means every interface, and that only with insecure = true; "
        "without it $local_ip alone is bound.",
    ),
    cfg.BoolOpt(
        "insecure",
        default=False,
        help="Allow a publisher without keys to bind every interface ('*', 0.0.0.0 or [::]), so that everybody in "
        "reach can read and ask.",
    ),
    cfg.BoolOpt(
        "pub_sub_use_multiproc",
        default=True,
        deprecated_group=dragonflow.GROUP,
        help="Worker processes hand their messages to the host's one publisher service (bind-based drivers only).",
    ),
    cfg.StrOpt(
        "pub_sub_multiproc_driver",
        default="zmq_pubsub_multiproc_driver",
        deprecated_group=dragonflow.GROUP,
        help="The driver between worker processes and the publisher service.",
    ),
    cfg.StrOpt(
        "publisher_multiproc_socket",
        default="/var/run/zmq_pubsub/zmq-publisher-socket",
        deprecated_group=dragonflow.GROUP,
        help="Socket between worker processes and the publisher service.",
    ),
    _seconds(
        "discovery_interval",
        10.0,
        "How often replicas look for publishers in the directory; 0 means that they listen to publishers_ips alone.",
        least=0.0,
    ),
)

TIMING: Final[tuple[cfg.Opt, ...]] = (
    _seconds(
        "max_idle_time",
        5.0,
        "How often a replica asks every publisher for a hello reply, and after how long without a message a publisher "
        "sends a hello to all.",
    ),
    _seconds(
        "message_delay_window",
        1.0,
        "How long a message may wait for an earlier one before the missing changes are read from the database.",
    ),
    _seconds("hello_wait", 1.0, "How long a new topic waits for its first hello reply before the first sync."),
    _seconds("reading_age", 1.0, "How old a publisher's reading of the heads may be when it says hello."),
    _seconds("round_trip", 1.0, "Allowance for a question to a publisher and its answer."),
    _seconds("poll_interval", 2.0, "How often the store is polled while no publisher proves to be fresh."),
    _seconds(
        "connect_jitter",
        0.5,
        "A replica asks the publishers for their state at a random moment within this time of each connection.",
        least=0.0,
    ),
    _seconds("sync_jitter", 0.5, "A sync starts at a random moment within this time.", least=0.0),
    _seconds("sync_interval", 1.0, "Least time between one sync's end and the next one's start.", least=0.0),
    _seconds("sync_backoff", 1.0, "Wait after a failed sync; it doubles with each further failure."),
    _seconds("max_sync_backoff", 30.0, "Longest wait after a failed sync."),
    _seconds("sync_timeout", 60.0, "A sync that did not end by then counts as failed."),
    _seconds(
        "recount_time",
        600.0,
        "Every object in a replica's memory is compared with its digest within this time, some at a time, so that what "
        "was altered or lost in memory is found and read again; 0 means never.",
        least=0.0,
    ),
)

LIMITS: Final[tuple[cfg.Opt, ...]] = (
    _count("max_value_bytes", 256 * 1024, "Bytes of one value, as canonical JSON."),
    _count("max_value_depth", 64, "Nesting of one value."),
    _count("max_transaction_changes", 10_000, "Changes of one transaction."),
    _count("max_transaction_bytes", 16 * 1024 * 1024, "Bytes of the keys and values of one transaction."),
    _count("max_frame_bytes", 1024 * 1024, "Bytes of one wire frame; the same at publishers and subscribers."),
    _count("max_waiting_links", 10_000, "Messages that wait in one topic for an earlier one."),
    _count("max_waiting_bytes", 64 * 1024 * 1024, "Bytes of the messages that wait in one topic."),
)

HANDLING: Final[tuple[cfg.Opt, ...]] = (
    _count("queue_limit", 10_000, "Changes that wait for one slow handler before changes of one key are merged."),
    _count("handler_tries", 5, "How often a handler that raises is called for one change before it is parked."),
    _seconds("handler_backoff", 0.5, "Wait before a handler's second try; it doubles with each further one."),
    _seconds("max_handler_backoff", 30.0, "Longest wait between two tries of a handler."),
)

METRICS: Final[tuple[cfg.Opt, ...]] = (
    cfg.PortOpt(
        "replica_metrics_port",
        default=0,
        help="Port on which a replica serves its metrics and readiness (/metrics, /ready); 0 means none. Of several "
        "replicas on one host each needs a port of its own.",
    ),
    cfg.StrOpt("replica_metrics_address", default="127.0.0.1", help="Address of that endpoint."),
)

JOURNAL_PREFIX: Final = "journal_"
"""Stands before a name of :class:`pubsub_lib.journal.JournalSettings`."""
JOURNAL: Final[tuple[cfg.Opt, ...]] = (
    cfg.StrOpt(
        "journal_folder",
        default="",
        sample_default="/var/lib/pubsub_lib/journals",
        help="Folder in which every writer, service and replica keeps a journal for the audit; empty means none.",
    ),
    _seconds("journal_mark_seconds", 2.0, "How often a journal is marked, also when nothing happens."),
    _count("journal_roll_bytes", 64 << 20, "A journal's file that has grown to this becomes Parquet."),
    _seconds("journal_roll_seconds", 300.0, "A journal's file that is this old becomes Parquet."),
    cfg.IntOpt(
        "journal_keep_bytes",
        default=10 << 30,
        min=1,
        help="The oldest finished files of the folder are removed beyond this sum.",
    ),
    _seconds("journal_keep_seconds", 604_800.0, "Finished files that are this old are removed."),
)
REPLICA: Final[tuple[cfg.Opt, ...]] = (
    cfg.StrOpt(
        "replica_name",
        default="",
        help="Stable name of a replica in its journal; by default the host's. Replicas of one host need names.",
    ),
)

SERVICE_GROUP: Final = "publisher_service"
"""Read by the publisher service alone."""
DAY: Final = 86_400.0
MAX_LINKS: Final = 2**53
"""The most that trimming takes; of seconds it is MAX_SECONDS."""
SERVICE: Final[tuple[cfg.Opt, ...]] = (
    cfg.StrOpt(
        "address",
        default="",
        sample_default="tcp://<your address>:8866",
        help="Address under which replicas reach this service, as it is entered in the directory. By default it is "
        "what the service binds, with $local_ip in place of '*'.",
    ),
    _seconds(
        "lease",
        10.0,
        "How long this service counts as alive without renewing its entry in the directory.",
        least=0.5,
        maximum=DAY,
    ),
    _seconds(
        "follow_interval",
        0.25,
        "How often the changelog is searched for changes that nobody handed over.",
        maximum=DAY,
    ),
    _seconds(
        "grace", 0.5, "How long a worker has to hand over what it committed, before the service does it.", maximum=DAY
    ),
    cfg.IntOpt(
        "keep_links",
        default=1_000_000,
        min=0,
        max=MAX_LINKS,
        help="The changelog is trimmed to so many of its newest links; 0 keeps all of them.",
    ),
    _seconds(
        "keep_time",
        0.0,
        "The changelog is trimmed of links older than this; 0 lets links grow as old as they like. With both bounds "
        "given, a link is removed when it is over either.",
        least=0.0,
    ),
    _seconds(
        "trim_interval", 60.0, "How often the changelog is trimmed and ended entries leave the directory.", maximum=DAY
    ),
    _seconds(
        "recount_time",
        3600.0,
        "Every object in the database is compared with its fingerprint, and every topic with its count and digest, "
        "within this time, so that what was altered there behind the library's back is found and repaired; 0 means "
        "never. One service does it, the one that trims the changelog.",
        least=0.0,
    ),
    cfg.StrOpt(
        "metrics_address",
        default="127.0.0.1",
        help="Address of the endpoint for metrics and readiness (/metrics, /ready).",
    ),
    cfg.PortOpt("metrics_port", default=8867, help="Port of that endpoint; 0 means none."),
)

OPTIONS: Final[tuple[cfg.Opt, ...]] = GENERAL + PUBSUB + TIMING + LIMITS + HANDLING + METRICS + REPLICA + JOURNAL


def register(conf: cfg.ConfigOpts, driver: str = "") -> None:
    """Register the group ``[pubsub]`` in this ``conf`` (again is harmless), and this driver's own group."""
    conf.register_opts(OPTIONS, group=GROUP)
    if driver:
        group, opts = installed_drivers.options_of(driver)
        conf.register_opts(opts, group=group)


def dragonflow_names() -> dict[str, str]:
    """Name in a Dragonflow file's ``[df]`` -> our name, of the options that are read from there."""
    return {
        old.name or option.dest: option.dest
        for option in PUBSUB
        for old in option.deprecated_opts
        if old.group == dragonflow.GROUP
    }


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """All options for ``oslo-config-generator`` (namespace ``pubsub_lib``): ours, then each driver's by its
    group.
    """
    ours = ((GROUP, OPTIONS), (SERVICE_GROUP, SERVICE))
    groups = [(group, [copy.deepcopy(option) for option in opts]) for group, opts in ours]
    drivers = dict(installed_drivers.options_of(driver) for driver in installed_drivers.packages())
    groups.extend((group, [copy.deepcopy(option) for option in drivers[group]]) for group in sorted(drivers))
    return [(group, opts) for group, opts in groups if opts]
