"""The status page of the service, as HTML: one page that needs no script and loads nothing."""

import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from pubsub_lib.config.service import STANDBY
from pubsub_lib.core.leased_publishers import RELAY
from pubsub_lib.core.model import ALL
from pubsub_lib.http_routes import Answered, Query, Route
from pubsub_lib.service.leases import MAINTENANCE, ORPHANS
from pubsub_lib.service.status import Entry, Status
from pubsub_lib.service.status_agents import agents_of
from pubsub_lib.service.status_html import (
    ago,
    bullets,
    document,
    left_out,
    name,
    names,
    number,
    paragraph,
    seconds,
    section,
    table,
    text,
)

HTML: Final = "text/html; charset=utf-8"
REFRESH: Final = 10
"""Seconds after which a browser loads the page again when its user has requested that. It is not the default, because
loading interrupts a screen reader (WCAG 2.2.1)."""
NAMED_TOPICS: Final = 5
"""Maximum number of granted topics that are named for a client."""
MAX_NAMED: Final = 5
"""Maximum number of excluded workers that are named."""
_LEASES: Final = {
    ORPHANS: "publishes the commits of origins without a live service",
    MAINTENANCE: "trims the changelog, removes expired entries, and recounts the database",
}
_LINKS: Final = {
    "handed": "handed over by workers, or committed for them",
    "followed": "found in the changelog: no worker handed them over",
    "took_over": "of origins without a live service",
    "unsent": "of these, could not be sent: replicas read them from the database",
}
_RELAYED: Final = {
    "links": "changes that were sent on",
    "oversized": "changes too large for a message: replicas read them by syncs",
    "questions": "syncs that replicas below have requested",
    "parent_changes": "changes of the parent",
}
_NO_DIRECTORY: Final = (
    "This relay has no database, so it has no entry in the directory and does not read it. Replicas find it only by "
    "their own <code>parents</code>."
)
_STANDBY: Final = (
    "This service answers first syncs of replicas from a copy of the database, and sends no messages. It is not in the "
    "directory; replicas find it by their own <code>sync_url</code>. "
)
_SYNCS: Final = {
    "answered": "syncs that were answered",
    "prepared": "topics that were answered from a prepared snapshot",
    "busy": "syncs that were sent away for some seconds",
    "refused": "questions that are no first sync, or cannot be decoded",
    "failed": "syncs that failed",
    "bytes": "bytes that were sent",
}


def routes(read: Callable[[], Status]) -> Mapping[str, Route]:
    """The route of the page. ``read`` is called for one request at a time."""

    def answer(query: Query) -> Answered:
        refresh = REFRESH if list(query.get("refresh", ())) == [str(REFRESH)] else 0
        return HTTPStatus.OK, page(read(), refresh).encode(), HTML

    return {"GET /status": answer}


def page(status: Status, refresh: int = 0) -> str:
    """The page; it is loaded again every ``refresh`` seconds, 0: never."""
    state = "ready" if not status.problems else "not ready"
    sections = [_problems(status), _services(status)]
    if status.role != STANDBY:
        sections += [_replicas(status), _topics(status)]
    sections.append(_work(status))
    return document(
        f"{text(status.service)}: {state}",
        _header(status, refresh),
        "".join(sections),
        paragraph(f"pubsub_lib {text(status.version)}. No request of this page reads the database."),
        refresh,
    )


def _header(status: Status, refresh: int) -> str:
    count = len(status.problems)
    state = "Ready" if not count else f"Not ready: {count} problem{'s' * (count > 1)}"
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(status.made_at))
    about = {"UUID of this start": text(status.uuid), "Runs for": seconds(status.running)}
    if status.role == STANDBY:
        about["Role"] = "standby"
    else:
        about["Driver"] = text(status.driver)
        about["Address for replicas"] = text(status.address) or "none: this driver binds no address"
    about["Page made at"] = made
    if status.role == RELAY:
        about["Role"] = "relay"
        about["Listens to"] = ", ".join(map(text, status.listens_to)) or "no publisher yet"
    if not status.database and status.role != STANDBY:
        about["Database"] = "none"
    pairs = "".join(f"<dt>{key}</dt><dd>{value}</dd>\n" for key, value in about.items())
    again = (
        f'<a href="?refresh=0">Stop loading the page again every {refresh} s</a>'
        if refresh
        else f'<a href="?refresh={REFRESH}">Load the page again every {REFRESH} s</a>'
    )
    links = ('<a href="/ready">/ready</a>', '<a href="/metrics">/metrics</a>', again)
    return (
        f"<h1>publisher-service {name(status.service)}</h1>\n"
        + paragraph(state, "state bad" if count else "state good")
        + f"<dl>\n{pairs}</dl>\n"
        + f'<nav aria-label="Other pages">\n{bullets(links)}</nav>\n'
    )


def _problems(status: Status) -> str:
    warnings = []
    if status.gauges.get("broken", {}).get("journal"):
        warnings.append("The journal cannot be written; see the service's log.")
    if status.excluded:
        number_of = len(status.excluded)
        workers = [f"{name(service)} (UUID {text(uuid)})" for service, uuid in status.excluded[:MAX_NAMED]]
        if number_of > MAX_NAMED:
            workers.append(f"and {number_of - MAX_NAMED} more")
        warnings.append(
            f"Messages of {number_of} worker{'s' * (number_of > 1)} are not used, because they named changes that the "
            f"database does not contain: {', '.join(workers)}. See the service's log."
        )
    named = [*map(text, status.problems), *warnings]
    return section("problems", "Problems", bullets(named, "problems") if named else paragraph("No problems."))


def _services(status: Status) -> str:
    if status.role == STANDBY:
        position = status.gauges.get("standby", {}).get("position")
        last = (
            "Its copy was not read yet."
            if position is None
            else f"Its copy had the position {number(position)} at the last reading."
        )
        return section("services", "Services", paragraph(_STANDBY + last))
    if not status.database:
        return section("services", "Services", paragraph(_NO_DIRECTORY))
    if status.entries_age is None:
        listed = paragraph("The directory was not read yet.")
    else:
        caption = (
            f"Entries with a live lease, read {ago(status.entries_age)}: services, and programs that publish by "
            "themselves (without an address if they have no keys)"
        )
        listed = table(
            caption,
            ("Service", "UUID", "Address", "Lease ends in"),
            (_entry(each, status) for each in status.entries),
            1,
        ) + left_out(status.entries_total - len(status.entries), "services", "status")
    held = status.gauges.get("leases", {})
    rows = [
        (f'<span class="word">{each}</span>', what, "this service" if held.get(each) else "not this service")
        for each, what in _LEASES.items()
    ]
    return section(
        "services",
        "Services",
        listed,
        table("Leases, each for work that one service does", ("Lease", "Its holder", "Held by"), rows),
        paragraph("This service does not read which other service holds a lease.", "hint"),
    )


def _entry(entry: Entry, status: Status) -> tuple[str, ...]:
    own = ' <span class="own">this one</span>' if entry.uuid == status.uuid else ""
    if entry.role == RELAY:
        own += ' <span class="own">relay</span>'
    left = entry.seconds_left
    until = seconds(left) if left >= 0 else f"expired {seconds(-left)} ago, unless renewed since the reading"
    return name(entry.service) + own, text(entry.uuid), text(entry.address) or "none", until


def _replicas(status: Status) -> str:
    sending = status.counters.get("sending", {})
    rows = []
    if "accepted" in sending and "disconnected" in sending:
        rows.append(("open connections of subscribers", number(sending["accepted"] - sending["disconnected"])))
    if "answers" in sending:
        rows.append(("replies to replicas that requested a hello, since the start", number(sending["answers"])))
    known = table("What this service counts", ("What", "Number"), rows, 1) if rows else ""
    return section("replicas", "Replicas", agents_of(status.agents), known, _clients(status))


def _clients(status: Status) -> str:
    if status.clients is None:
        return ""
    rows = [(name(each.name), _granted(each.topics)) for each in status.clients]
    return table("Clients that may connect with their keys", ("Client", "Topics"), rows) + left_out(
        status.clients_total - len(rows), "clients", "clients list"
    )


def _granted(topics: frozenset[str]) -> str:
    return "all" if ALL in topics else names(sorted(topics)[:NAMED_TOPICS], len(topics)) or "none"


def _topics(status: Status) -> str:
    topics = status.topics
    if topics.sent_age is None:
        return section("topics", "Topics", paragraph("The topics are not known yet."))
    read = _read(status)
    overdue = f", as of {ago(topics.sent_age)}" if topics.sent_age >= 1 else ""
    sent = (
        f"Sequence and rate count the messages that this service has sent since its start{overdue}; the rates are "
        f"averages over {seconds(topics.window)}."
    )
    hint = paragraph(f"{read} {sent}", "hint")
    if not topics.rows:
        return section("topics", "Topics", paragraph("No topic was written or sent yet."), hint)
    columns = ("Topic", "Position", "Objects", "Sequence", "Rate")
    rows = (
        (name(each.name), *map(number, (each.position, each.objects, each.sequence)), number(each.rate, 1))
        for each in topics.rows
    )
    left = topics.total - len(topics.rows)
    caption = f"{number(topics.total)} topics, those with the highest rates (in messages per second) first"
    return section(
        "topics",
        "Topics",
        hint,
        table(caption, columns, rows, 4),
        left_out(left, "topics, which have the lowest rates,", "topics"),
    )


def _read(status: Status) -> str:
    """A sentence about the time of the topics' positions."""
    topics, position = status.topics, number(status.topics.store_position)
    if status.role == RELAY:
        if topics.read_age is None:
            return "Position and objects are not known yet."
        return (
            f"Position and objects are those of this relay, as of {ago(topics.read_age)}; its topics were complete up "
            f"to the position {position} of the whole database."
        )
    if topics.read_age is None:
        return "Position and objects were not read from the database yet."
    return (
        f"Position and objects were read from the database {ago(topics.read_age)}, for the hellos of this service; the "
        f"position of the whole database was {position}."
    )


def _work(status: Status) -> str:
    threads = [(text(each.name), ago(each.succeeded), number(each.failures)) for each in status.threads]
    return section(
        "work",
        "Work of this service",
        _counted(status),
        table("Threads", ("Thread", "Last success", "Failures"), threads, 2) if threads else "",
    )


def _counted(status: Status) -> str:
    if status.role == RELAY:
        relayed = status.counters.get("relayed", {})
        rows = [(what, number(relayed.get(key))) for key, what in _RELAYED.items()]
        return table("What this relay has counted since its start", ("What", "Number"), rows, 1)
    if status.role == STANDBY:
        syncs = status.counters.get("sync_channel", {})
        rows = [(what, number(syncs.get(key))) for key, what in _SYNCS.items()]
        return table("What this service has counted since its start", ("What", "Number"), rows, 1)
    links = status.counters.get("links", {})
    rows = [(what, number(links.get(key))) for key, what in _LINKS.items()]
    return table("Changes that were published since the start, by where they came from", ("Links", "Number"), rows, 1)
