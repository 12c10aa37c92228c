"""Log a change of the store's history."""

from collections.abc import Iterable

from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.quarantine import Publisher
from pubsub_lib.logs import fields, logger

_log = logger(__name__, limited=False)


def log_history_change(change: HistoryChange) -> None:
    """Log one warning for each topic of the notice. Any thread; blocks only as long as the logging handlers."""
    for topic, (before, after) in change.points.items():
        named = f"the topic {topic!r}" if topic else "the store"
        if before == after:
            happened = f"a deleted object of {named} exists again at position {after.position}"
        else:
            happened = (
                f"{named} was at position {before.position} and is at position {after.position} of another history; "
                "commits that only the old history had are lost"
            )
        service, uuid = change.publishers.get(topic, ("", ""))
        sender = f"; the publisher {service!r} with the UUID {uuid} sent the last of them" if uuid else ""
        _log.warning(
            "the history of the store changed: %s%s (a restored backup, a fail-over, commits lost by a crash, or a "
            "publisher that sent what was never committed)",
            happened,
            sender,
            extra=fields(topic=topic, position=after.position),
        )
    log_quarantined(change.quarantined, "changes that the database does not contain")


def log_quarantined(publishers: Iterable[Publisher], what: str) -> None:
    """Log one error for each publisher that is not used from now on. ``what``: what it sent."""
    for service, uuid in publishers:
        _log.error(
            "the publisher %r with the UUID %s sent %s; its messages are not used: if the database lost no commits, "
            "find the program with this UUID, or the worker that lied to it (pubsub-db status --replica: how long)",
            service,
            uuid,
            what,
            extra=fields(service=service, uuid=uuid),
        )
