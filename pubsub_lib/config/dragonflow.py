"""The options of a Dragonflow file that this library does not read, and their replacements.

The options that are read unchanged are in :mod:`pubsub_lib.config.pubsub`. This module holds the rest of the table in
``docs/dragonflow.md``, which is generated from both.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from pubsub_lib.config.fields import DRAGONFLOW

GROUP: Final = DRAGONFLOW


class Replaced(msgspec.Struct, frozen=True):
    """An option, or a driver, of Dragonflow that has no effect in this library."""

    by: str
    """The replacement, as written in our INI file; "" when there is none."""
    why: str
    """One sentence for the table of the docs."""


_LIVENESS: Final = "A live service renews its entry in the directory; it expires with its lease (the database's clock)."
_RENEWAL: Final = "An entry is renewed three times in its lease."
_LOCK: Final = "Writers are ordered by the database; the library has no lock that could expire."
_DATABASE: Final = "The store is an SQL database, named by one URL."
_ELSEWHERE: Final = "Concerns Dragonflow's controller or Neutron, not the publish-subscribe layer."

REPLACED: Final[Mapping[str, Replaced]] = {
    "publisher_timeout": Replaced("lease in [publisher_service]", _LIVENESS),
    "publisher_rate_limit_timeout": Replaced("lease in [publisher_service]", _RENEWAL),
    "publisher_rate_limit_count": Replaced("lease in [publisher_service]", _RENEWAL),
    "report_interval": Replaced("lease in [publisher_service]", _LIVENESS),
    "service_down_time": Replaced("lease in [publisher_service]", _LIVENESS),
    "neutron_listener_report_interval": Replaced("lease in [publisher_service]", _LIVENESS),
    "neutron_listener_report_delay": Replaced("lease in [publisher_service]", _LIVENESS),
    "monitor_table_poll_time": Replaced(
        "follow_interval in [publisher_service]",
        "The service follows the changelog of all tables, so that changes of controllers are published too.",
    ),
    "db_sync_time": Replaced(
        "recount_time in [pubsub]",
        "Replicas compare counts and digests, and read only the objects that differ, instead of everything.",
    ),
    "enable_df_db_consistency": Replaced(
        "recount_time in [pubsub]", "The comparison with hellos is always on; 0 disables the recount."
    ),
    "enable_selective_topology_distribution": Replaced(
        "topics in [pubsub]", "A replica follows the topics that it names; without any it follows everything."
    ),
    "nb_db_class": Replaced("store_url in [pubsub]", _DATABASE),
    "remote_db_ip": Replaced("store_url in [pubsub]", _DATABASE),
    "remote_db_port": Replaced("store_url in [pubsub]", _DATABASE),
    "remote_db_hosts": Replaced("store_url in [pubsub]", _DATABASE),
    "distributed_lock_ttl": Replaced("", _LOCK),
    "enable_neutron_notifier": Replaced("", "Changes of a controller reach every replica of their topic."),
    "neutron_notifier": Replaced("", "Changes of a controller reach every replica of their topic."),
    "enable_port_status_notifier": Replaced("", "Changes of a controller reach every replica of their topic."),
    "port_status_notifier": Replaced("", "Changes of a controller reach every replica of their topic."),
    **dict.fromkeys(
        (
            "apps_list",
            "auto_detect_port_behind_port",
            "enable_dpdk",
            "enable_virtual_tunnel_port",
            "external_host_ip",
            "integration_bridge",
            "management_ip",
            "metadata_interface",
            "ovsdb_local_address",
            "tunnel_type",
            "tunnel_types",
            "use_centralized_ipv6_DHCP",
            "vhost_sock_dir",
            "vif_type",
        ),
        Replaced("", _ELSEWHERE),
    ),
}
"""By the option's name in ``[df]``."""

_REDIS: Final = "The driver over Redis carries the changes only; the objects stay in the SQL database."
REPLACED_DRIVERS: Final[Mapping[str, Replaced]] = {
    "redis_db_pubsub_driver": Replaced("redis_pubsub_driver", _REDIS),
    "etcd_pubsub_driver": Replaced("zmq_pubsub_driver", "There is no driver for etcd; ZeroMQ needs no server."),
    "zmq_bind_pubsub_driver": Replaced("zmq_pubsub_driver", "The ZeroMQ driver binds at the publisher's side."),
    "dragonflow.db.pubsub_drivers.zmq_pubsub_driver.ZMQPubSub": Replaced(
        "zmq_pubsub_driver", "Drivers are named by their entry point, not by their class."
    ),
    "dragonflow.db.pubsub_drivers.zmq_pubsub_driver.ZMQPubSubMultiproc": Replaced(
        "zmq_pubsub_multiproc_driver", "Drivers are named by their entry point, not by their class."
    ),
    "dragonflow.db.pubsub_drivers.redis_db_pubsub_driver.RedisPubSub": Replaced("redis_pubsub_driver", _REDIS),
}
"""By the value of ``pub_sub_driver`` or ``pub_sub_multiproc_driver``."""


def without_effect(names: Sequence[str], known: Collection[str]) -> list[str]:
    """The options of a ``[df]`` group that have no effect, each with its replacement, or with the option that was
    probably meant. ``known``: the names that are read.
    """
    return [_words(name, known) for name in names if name not in known]


def typos(names: Sequence[str], known: Collection[str]) -> dict[str, str]:
    """The options of a ``[df]`` group that Dragonflow does not have, either -> the most similar name that it has."""
    all_names = [*known, *REPLACED]
    found = {}
    for name in names:
        near = [] if name in all_names else difflib.get_close_matches(name.replace("-", "_"), all_names, 1, cutoff=0.8)
        if near:
            found[name] = near[0]
    return found


def driver_hint(name: str) -> str:
    """The replacement for a driver of Dragonflow that this library does not have; "" for any other name."""
    replaced = REPLACED_DRIVERS.get(name)
    return "" if replaced is None else f"set {replaced.by} in its place"


def _words(name: str, known: Collection[str]) -> str:
    if name in REPLACED:
        by = REPLACED[name].by
        return f"{name} (set {by})" if by else name
    near = typos([name], known)
    return f"{name} (unknown; did you mean {near[name]!r}?)" if near else f"{name} (unknown)"
