"""The options of the publisher service beyond those that all programs share."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from pubsub_lib.config.fields import option
from pubsub_lib.config.program import Text
from pubsub_lib.core.limits import MAX_LINKS
from pubsub_lib.core.timing import SecondsOrNone

DAY: Final = 86_400.0
STANDBY: Final = "standby"
"""The role of a service that sends nothing; the directory has the other roles (core/leased_publishers.py)."""

_Day = Annotated[float, Meta(ge=0.001, le=DAY)]


class ServiceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of ``[publisher_service]``. All times in seconds."""

    role: Annotated[
        Literal["origin", "relay", "standby"],
        option(
            "'origin': the service publishes what this host's workers commit. 'relay': it publishes what it receives "
            "from its parents, or from the origin services in the directory (without store_url: those of "
            "publishers_ips), to the replicas that name it in their parents. A relay follows the topics of [pubsub]. "
            "'standby': it publishes nothing, and answers the first syncs of replicas (serve_syncs) from the database "
            "of store_url, which may be a standby or another copy that is read only."
        ),
    ] = "origin"
    drain_to: Annotated[
        tuple[str, ...],
        option(
            "With role = relay: addresses of other relays. When this relay is stopped, the replicas below it move to "
            "one of them that is among their own parents; by default to the next one of their parents."
        ),
    ] = ()
    sibling_urls: Annotated[
        str,
        option(
            "With role = relay and without sync_url: URLs, separated by commas, of other relays with serve_syncs = "
            "true and the same topics. When this relay needs all objects of a topic, it asks them before it reads the "
            "database."
        ),
    ] = ""
    address: Annotated[
        str,
        option(
            "Address at which replicas reach this service; the service enters it in the directory. By default it is "
            "the address that the service binds, with $local_ip in place of '*'.",
            sample="tcp://<your address>:8866",
        ),
    ] = ""
    """"" when replicas do not find the service in the directory, as with a driver that binds no address."""
    lease: Annotated[
        float,
        Meta(ge=0.5, le=DAY),
        option("How long this service counts as running after it last renewed its entry in the directory. In seconds."),
    ] = 10.0
    follow_interval: Annotated[
        _Day,
        option(
            "How often the service reads the changelog for changes that no worker handed over. With role = standby: "
            "how often it tries whether the database answers. In seconds."
        ),
    ] = 0.25
    grace: Annotated[
        _Day,
        option("How long a worker has to hand over a commit, before the service publishes it. In seconds."),
    ] = 0.5
    keep_links: Annotated[
        int,
        Meta(ge=0, le=MAX_LINKS),
        option("Maximum number of links that trimming keeps in the changelog, the newest ones; 0 means no limit."),
    ] = 1_000_000
    keep_time: Annotated[
        SecondsOrNone,
        option(
            "Maximum age of the links that trimming keeps in the changelog; 0 means no limit. With both limits set, "
            "trimming removes a link that exceeds either. In seconds."
        ),
    ] = 0.0
    trim_interval: Annotated[
        _Day, option("How often the changelog is trimmed and expired directory entries removed. In seconds.")
    ] = 60.0
    recount_time: Annotated[
        SecondsOrNone,
        option(
            "Every object in the database is compared with its fingerprint, and every topic with its count and "
            "digest, once in this time. Data that was altered without the library is found and repaired; 0 means "
            "never. Only the service that trims the changelog does it. In seconds."
        ),
    ] = 3600.0
    metrics_address: Annotated[
        Text,
        option("Address of the service's HTTP endpoint for metrics, readiness and status (/metrics, /ready, /status)."),
    ] = "127.0.0.1"
    metrics_hosts: Annotated[
        tuple[str, ...],
        option(
            "Names by which clients may reach the service's HTTP endpoint, besides its addresses and localhost. A "
            "request whose Host header has another name gets 403."
        ),
    ] = ()
    metrics_port: Annotated[
        int,
        Meta(ge=-1, le=65535),
        option(
            "Port of the service's HTTP endpoint; 0 means none. -1: a free port at each start, which the log names; "
            "with serve_syncs also the hellos to replicas."
        ),
    ] = 8867
    serve_syncs: Annotated[
        bool,
        option(
            "The service's HTTP endpoint answers the syncs of replicas and relays with sync_url, and of those that "
            "have this service among their parents and no other source: all who reach it can read all objects. Needs a "
            "metrics_port. Refused with keys = true unless insecure = true, because the endpoint has no keys."
        ),
    ] = False
    max_syncs: Annotated[
        int,
        Meta(ge=1, le=24),
        option(
            "Maximum number of syncs with objects that the HTTP endpoint answers at the same time, and as many again "
            "of changes alone; other replicas get 503 and come again. Each needs memory for the compressed objects "
            "that it reads."
        ),
    ] = 4
    snapshot_bytes: Annotated[
        int,
        Meta(ge=0, le=2**40),
        option(
            "Maximum size of the compressed snapshots that the service keeps, to answer the first syncs of many "
            "replicas without reading all objects for each; 0 means none. In bytes."
        ),
    ] = 128 * 1024 * 1024
    status_page: Annotated[
        bool,
        option(
            "The service's HTTP endpoint has a page for browsers, /status, with services and topics, their rates, and "
            "problems. When off, the path gets 404."
        ),
    ] = True
