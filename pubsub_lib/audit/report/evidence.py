"""What is missing from the journals, as problems (audit-verdicts.md, "Participants"), and what is not finished."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql import Column, Row, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.ingest.expected import absent
from pubsub_lib.audit.report.summary import Coverage, Problem
from pubsub_lib.audit.rules import participants, run_ends
from pubsub_lib.audit.rules.base_tables import FOREVER, closed
from pubsub_lib.audit.rules.pipeline import Tables
from pubsub_lib.audit.settings import AuditSettings, Listing
from pubsub_lib.audit.spark.settled import hashed, lookup, together

RUNS: Final = 400
"""Maximum number of runs of services and replicas in a summary."""
_OF_RUN: Final = ("domain", "side", "name", "host", "run", "began", "last", "end")


class Evidence(msgspec.Struct, frozen=True):
    """``silent``: runs. ``open_domains``: those whose first window is not closed. ``domains``: whether there is any.
    ``runs``: begins and ends of services and replicas, ``run_count`` in all.
    """

    problems: Sequence[str]
    silent: Sequence[str]
    open_domains: Sequence[str]
    domains: bool
    coverage: Sequence[Coverage]
    runs: Sequence[Mapping[str, Any]]
    run_count: int


class Followed(msgspec.Struct, frozen=True):
    """What a follower knows of a domain. ``until``: the end of its closed windows; ``begun``: side and name of each
    participant of which a file is there that was not read yet.
    """

    until: int
    begun: Collection[tuple[str, str]] = ()


def evidence(
    tables: Tables,
    settings: AuditSettings,
    expected: Iterable[tuple[str, str]] = (),
    listed: Mapping[str, Listing] | None = None,
) -> Evidence:
    """Run the jobs. ``expected``: side and name of each participant that must have a journal. ``listed``: when the
    folders of each domain were listed, as it was given to the pipeline. Blocks.
    """
    every, known = _rows(tables, settings, listed or {}, {})
    sentences = [each.sentence for each in _problems(tables, settings, every, known, {})]
    sentences += _absent(tables, list(expected))
    begun = {domain for domain, row in known.items() if row["closed"]}
    coverage = [
        Coverage(domain, row["store"], row["names"], row["listed"], row["held"])
        for domain, row in sorted(every.items())
    ]
    silent, runs, run_count = _ends(tables)
    return Evidence(sentences, silent, sorted(every.keys() - begun), bool(every), coverage, runs, run_count)


def problems(tables: Tables, settings: AuditSettings, followed: Mapping[str, Followed]) -> list[Problem]:
    """The problems of the closed windows of a follower, by domain. Blocks until the jobs are done."""
    return _problems(tables, settings, *_rows(tables, settings, {}, followed), followed)


def _rows(
    tables: Tables, settings: AuditSettings, listed: Mapping[str, Listing], followed: Mapping[str, Followed]
) -> tuple[dict[str, Row], dict[str, Row]]:
    """By domain what the journals show of participants, and of requests."""
    until = F.lit(FOREVER)
    for domain, each in sorted(followed.items()):
        until = F.when(F.col("domain") == domain, F.lit(each.until)).otherwise(until)
    rows, about = tables.without_objects, (tables.runs, tables.events, settings)
    every = {row["domain"]: row for row in participants.of_domains(rows, *about, until).collect()}
    requests = _with_requests(tables, settings, run_ends.known_until(listed), until)
    return every, {row["domain"]: row for row in requests}


def _problems(
    tables: Tables, settings: AuditSettings, every: Mapping[str, Row], known: Mapping[str, Row],
    followed: Mapping[str, Followed],
) -> list[Problem]:  # fmt: skip
    begun = {domain: each.begun for domain, each in followed.items()}
    found = []
    for domain, row in every.items():
        later = any(side == "replica" for side, _ in begun.get(domain, ()))
        found += [
            Problem(domain, "begin", _headless(domain, row)),
            Problem(domain, "overlap", _overlaps(domain, row)),
            Problem(domain, "no replica", "" if later else _no_replica(domain, row)),
            Problem(domain, "records", _holed(domain, row)),
            Problem(domain, "databases", _databases(domain, row)),
            Problem(domain, "state", _stateless(domain, row)),
        ]
    if any(row["replica_holed"] for row in known.values()):
        found += _unsubscribed(tables, settings)
    for domain, row in known.items():
        found += [
            Problem(domain, "requests", _unknown_requests(domain, row)),
            Problem(domain, "hidden requests", _hidden_requests(domain, row)),
        ]
    found += _unknown_parents(tables, begun) if any(row["moves"] for row in every.values()) else []
    return [each for each in found if each.sentence]


def _with_requests(tables: Tables, settings: AuditSettings, known_until: Column, until: Column) -> list[Row]:
    """The domains with participants: whether the first window is closed, and a replica lost records; the unknown
    requests, and those of them that a gap may hide. ``until``: windows with a later end are not closed.
    """
    closed_until = F.least("closed_until", until).alias("closed_until")
    about = (F.col("domain"), closed_until, F.col("replica_gaps"))
    domains = tables.domains.select(*about, (known_until - settings.grace).alias("known_until"))
    unknown = together(participants.requests(tables.events).join(lookup(domains), "domain"))
    ended = closed(F.col("answered"), F.col("closed_until"), settings)
    unknown = unknown.filter(ended & (F.col("answered") <= F.col("known_until")))
    hidden = participants.hidden(settings)
    of_gaps, others = F.when(hidden, F.col("peer")), F.when(~hidden, F.col("peer"))
    counted = unknown.groupBy("domain").agg(
        F.count(others).alias("unknown"),
        F.min(others).alias("first_unknown"),
        F.count(of_gaps).alias("hidden"),
        F.min(of_gaps).alias("first_hidden"),
    )
    begun = closed(F.col("begin"), F.col("closed_until"), settings)
    holed = (F.size("replica_gaps") > 0).alias("replica_holed")
    return (
        tables.domains.select("domain", begun.alias("closed"), holed).join(hashed(counted), "domain", "left").collect()
    )


def _ends(tables: Tables) -> tuple[list[str], list[dict[str, Any]], int]:
    """The silent runs, and of services and replicas the first ``RUNS`` with their number in all (audit-verdicts.md,
    "Runs"). One job.
    """
    killed = ~F.col("ended") & (F.col("over") | F.col("expired"))
    end = F.when(F.col("ended"), "closed").when(killed, "killed").otherwise("")
    began = F.when(F.col("first_number") == 1, F.col("first_wall"))
    shown = {"began": began, "last": F.col("last_wall"), "end": end}
    serves = Window.partitionBy("serves")
    in_order = serves.orderBy((F.col("end") != "killed"), F.desc("first_wall"), "domain", "run")
    each = (
        tables.runs.withColumns({**shown, "serves": F.col("side").isin("service", "replica")})
        .withColumn("silent", F.col("expired") & ~F.col("over"))
        .withColumns({"place": F.row_number().over(in_order), "all": F.count("*").over(serves)})
        .filter(F.col("silent") | (F.col("serves") & (F.col("place") <= RUNS)))
    )
    found = each.select(*_OF_RUN, "silent", "serves", "place", "all").collect()
    named = sorted((row for row in found if row["serves"] and row["place"] <= RUNS), key=lambda row: row["place"])
    runs = [{name: row[name] for name in _OF_RUN} for row in named]
    return sorted(row["run"] for row in found if row["silent"]), runs, named[0]["all"] if named else 0


def _of(domain: str) -> str:
    return f" of {domain}" if domain else ""


def _headless(domain: str, row: Row) -> str:
    """The problem of missing first records, or "". A replica records each subscription only once, when it subscribes.
    A message without a recorded subscription is not expected, so its loss is not noticed.
    """
    if not row["headless"]:
        return ""
    return (
        f"the journals of {row['headless']} replicas' runs{_of(domain)} {_first(row['first_headless'])} "
        "lack the begin of the run with the replica's subscriptions, so losses may be missed; add the older journals, "
        "and keep journals as long as a replica runs"
    )


def _first(run: Row) -> str:
    return f"(first: {run['run']} of {run['name']})"


def _unsubscribed(tables: Tables, settings: AuditSettings) -> list[Problem]:
    return [
        Problem(
            row["domain"],
            "subscription",
            f"{row['number']} replicas' runs{_of(row['domain'])} {_first(row['first'])} "
            "lack the record of a subscription: after lost records they read or hold a topic without one, so its "
            "losses are missed; free disk space, or add the missing files",
        )
        for row in participants.unsubscribed(tables.without_objects, tables.runs, settings).collect()
    ]


def _holed(domain: str, row: Row) -> str:
    if not row["holed"]:
        return ""
    return (
        f"{row['lost']} records of {row['holed']} writers', services' and relays' runs{_of(domain)} "
        f"{_first(row['first_holed'])} are lost between others, so messages that they sent may be missed; free disk "
        "space, or add the missing files"
    )


def _databases(domain: str, row: Row) -> str:
    """The problem of journals of several databases, or "". Ids that one run recorded are of one database: it was made
    again, or got another id, while the run went on.
    """
    groups: list[set[str]] = []
    for ids in row["stores"]:
        same = [each for each in groups if each & set(ids)]
        groups = [each for each in groups if each not in same] + [set(ids).union(*same)]
    early = {each for ids in row["early"] for each in ids}
    groups = [each for each in groups if each & early]
    if len(groups) < 2:
        return ""
    first, second = sorted(min(each) for each in groups)[:2]
    return (
        f"{len(groups)} databases have journals{_of(domain)} (ids {first} and {second}), so no verdict is certain: "
        "positions and topics of one are compared with those of another; give each database a domain of its own "
        "(net-2=FOLDER), unless it was made again while all programs were stopped"
    )


def _stateless(domain: str, row: Row) -> str:
    names = row["stateless"]
    if not names:
        return ""
    return (
        f"{len(names)} replicas{_of(domain)} (first: {names[0]}) read objects, and no record shows what they held, so "
        "their state was not compared with the store; add the missing files, or update these replicas"
    )


def _overlaps(domain: str, row: Row) -> str:
    if not row["overlaps"]:
        return ""
    first = row["first_overlap"]
    return (
        f"{row['overlaps']} replicas' runs{_of(domain)} began while another run of the same name still wrote (first: "
        f"{first['run']} during {first['other']}, both {first['name']}), so they are judged as one replica and losses "
        "may be missed; give each replica its own replica_name"
    )


def _no_replica(domain: str, row: Row) -> str:
    if row["replicas"] or not row["participants"]:
        return ""
    return f"there is no journal of a replica{_of(domain)}, so no delivery was audited; add the replicas' journals"


def _unknown_requests(domain: str, row: Row) -> str:
    if not row["unknown"]:
        return ""
    return (
        f"{row['unknown']} answered hello requests{_of(domain)} (first: {row['first_unknown']}) are in no replica's "
        "journal, so the deliveries of one replica or more were not audited; add all replicas' journals"
    )


def _hidden_requests(domain: str, row: Row) -> str:
    if not row["hidden"]:
        return ""
    return (
        f"{row['hidden']} answered hello requests{_of(domain)} (first: {row['first_hidden']}) came while records of "
        "replicas were lost, so it is not known whether a replica without a journal sent them; free disk space, or add "
        "the missing files"
    )


def _unknown_parents(tables: Tables, begun: Mapping[str, Collection[tuple[str, str]]]) -> list[Problem]:
    return [
        Problem(
            row["domain"],
            "parents",
            f"{row['number']} parents of replicas{_of(row['domain'])} (first: {row['first']}) have no journal, so what "
            "they sent is not known; add the relays' journals",
        )
        for row in participants.unknown_parents(tables.runs, tables.events, begun).collect()
    ]


def _absent(tables: Tables, expected: Sequence[tuple[str, str]]) -> Sequence[str]:
    if not expected:
        return ()
    return absent(expected, {tuple(row) for row in tables.runs.select("side", "name").distinct().collect()})
