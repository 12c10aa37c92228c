"""The result of an audit as one self-contained HTML page (docs/audit.md, "The page").

A pure function of a summary: it needs no Spark and reads only the template and plotly's script. The size of the page is
bounded for every summary. Every text from data is escaped (by the template; by ``figures`` where plotly shows it).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import jinja2
import msgspec
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from pubsub_lib.audit.report import figures
from pubsub_lib.audit.report.labels import BLAMES, HOPS, VERDICTS, verdict
from pubsub_lib.audit.report.summary import BITS, INCOMPLETE, TABLES, Summary
from pubsub_lib.audit.report.times import time
from pubsub_lib.audit.report.tree_nodes import trees

LIMIT: Final = 8_000_000
"""Maximum number of bytes of the page; most of them are plotly's script."""
ROWS: Final = 20
"""Maximum number of rows of a table, and of anomalies of a kind."""
TRAILS: Final = 5
"""Maximum number of anomalies of a kind that have a trail."""
RECORDS: Final = 24
"""Maximum number of records of a trail."""
TEXT: Final = 80
"""Maximum number of characters of a text from data."""
_FAULTS: Final = frozenset().union(*(kinds for bit, kinds in BITS.items() if bit != INCOMPLETE))
_TIMES: Final = {"p": "published", "detected": "sync began", "settled": "settled"}


class Step(msgspec.Struct, frozen=True):
    """One record of a trail. ``after``: milliseconds since the record before, which may be from another clock.
    ``objects``: what it changes or holds.
    """

    what: str
    who: str
    at: str
    after: str
    objects: str
    more: str


class Anomaly(msgspec.Struct, frozen=True):
    """One anomaly on the page."""

    title: str
    more: str
    steps: Sequence[Step]
    end: str


class Kind(msgspec.Struct, frozen=True):
    """One kind of anomaly: the number of anomalies, and the first ones. ``fault``: the kind is a fault."""

    of: str
    verdict: str
    meaning: str
    fault: bool
    count: int
    folder: str
    first: Sequence[Anomaly]


def environment() -> jinja2.Environment:
    """The templates of pages, and their filters."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("pubsub_lib.audit.report", ""), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.filters.update(number=_number, ms=_milliseconds, size=_bytes, text=_text)
    return found


def page(summary: Summary, tables: str = "") -> str:
    """The whole page. ``tables``: the folder of the tables relative to the page, ending in ``/``; "": the same."""
    found = _kinds(summary, tables)
    drawn = {
        "balance": figures.balance(summary.balance),
        "over_time": figures.over_time(summary.over_time, summary.runs),
        "latencies": figures.latencies(summary.latencies),
        "losses": figures.losses(summary.losses),
        "timeline": figures.timeline(summary.timeline, summary.runs),
    }
    return environment().get_template("page.html.jinja").render(
        script=Markup(get_plotlyjs()),  # noqa: S704 - plotly is trusted
        figures={name: Markup(drawing) for name, drawing in drawn.items()},  # noqa: S704 - drawn by this library
        summary=summary, verdict=verdict(summary), state=_state(summary), kinds=found, verdicts=_verdicts(summary),
        sections={(kind.of, kind.verdict) for kind in found}, worst=summary.keys[:ROWS], timeline=figures.POINTS,
        hops=HOPS, rows=ROWS, audited=time(summary.audited), span=_span(summary), folder=quote(tables),
        tables=TABLES if summary.balance or summary.counts else (), ends=_ends(summary),
        trees=trees(summary.tree, ROWS),
    )  # fmt: skip


def _state(summary: Summary) -> str:
    """The severity of the result: "bad": a fault; "unsure": incomplete evidence; "good": neither."""
    return "bad" if summary.exit_code & ~INCOMPLETE else "unsure" if summary.exit_code else "good"


def _span(summary: Summary) -> tuple[str | None, str | None] | None:
    if not summary.over_time:
        return None
    return time(summary.over_time[0]["slice"]), time(summary.over_time[-1]["slice"])


def _ends(summary: Summary) -> list[tuple[str, str, str, str, str]]:
    """Who, host, begin, last record and end of each run of a service or a replica."""
    ends = {"closed": "clean end", "killed": "killed", "": "goes on"}
    return [
        (
            " · ".join(part for part in (each["domain"], f"{each['side']} {each['name']}") if part), each["host"],
            time(each["began"]) or "not in the journals", time(each["last"]) or str(each["last"]), ends[each["end"]],
        )
        for each in summary.runs
    ]  # fmt: skip


def _verdicts(summary: Summary) -> list[tuple[str, str, str, str, str, int]]:
    """of, verdict, detail, blame, meaning, count; of all domains together, the most severe first."""
    sums: dict[tuple[str, str, str, str], int] = defaultdict(int)
    for each in summary.counts:
        sums[each.of, each.verdict, each.detail, each.blame] += each.count
    found = [(*kind, VERDICTS.get(kind[1], ""), count) for kind, count in sums.items()]
    return sorted(found, key=lambda row: (_severity(row[1]), row[:4]))


def _severity(kind: str) -> int:
    order = list(VERDICTS)
    place = order.index(kind) if kind in order else len(order)
    return len(order) if kind == "ok" else place


def _kinds(summary: Summary, tables: str) -> list[Kind]:
    """A section for each kind of anomaly, the most severe first."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for count in summary.counts:
        counts[count.of, count.verdict] += count.count
    first: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for each in summary.first:
        first[str(each["of"]), str(each["verdict"])].append(each)
    return [
        Kind(
            of, kind, VERDICTS.get(kind, ""), kind in _FAULTS, max(counts[of, kind], len(some)),
            f"{quote(tables)}anomaly/verdict={quote(kind, safe='')}/",
            [_anomaly(each, with_trail=place < TRAILS) for place, each in enumerate(some[:ROWS])],
        )
        for (of, kind), some in sorted(first.items(), key=lambda item: (_severity(item[0][1]), item[0]))
    ]  # fmt: skip


def _anomaly(each: Mapping[str, Any], *, with_trail: bool) -> Anomaly:
    where = [_named(each, "domain", ""), _named(each, "name", "replica "), _named(each, "topic", "topic ")]
    if each.get("key") is not None:
        where.append(f"object {_text(each.get('table'))} / {_text(each['key'])}")
    elif each.get("sequence"):
        where.append(f"sequence {each['sequence']}")
    else:
        where.append(_named(each, "position", "position "))
    times = [f"{text} {time(each[name]) or each[name]}" for name, text in _TIMES.items() if each.get(name)]
    shown = ("detail", "kind", "service", "uuid", "position", "version", "stored_version", "versions_behind")
    numbers = [f"{name.replace('_', ' ')} {_text(each[name])}" for name in shown if each.get(name)]
    late = [f"behind {each['behind'] / 1e6:.3f} s"] if each.get("behind") else []
    skew = [f"clock skew {each['skew'] / 1000:.3f} ms"] if each.get("skew") else []
    changed = _first_objects(each)
    return Anomaly(
        " · ".join(part for part in where if part),
        ", ".join([*([changed] if changed else []), *numbers, *times, *late, *skew]),
        _steps(each.get("trail", ())) if with_trail else (),
        BLAMES.get(each.get("blame", ""), ""),
    )


def _first_objects(each: Mapping[str, Any]) -> str:
    """What the message of an anomaly changes, by the first record of its trail that names it. "" for an object's."""
    named = (record for record in each.get("trail", ()) if record.get("objects"))
    return "" if each.get("key") is not None else next((_objects(record) for record in named), "")


def _objects(record: Mapping[str, Any]) -> str:
    """The objects of a record with their versions."""
    found = [
        f"{one['action']} {_text(one['table'], 40)} / {_text(one['key'], 40)} version {one['version']}"
        + (f" (before: {one['before']})" if "before" in one else "")
        for one in record.get("objects", ())
    ]
    return ", ".join([*found, *([f"{record['more']} more"] if record.get("more") else [])])


def _named(each: Mapping[str, Any], name: str, before: str) -> str:
    return f"{before}{_text(each[name])}" if each.get(name) else ""


def _steps(trail: Sequence[Mapping[str, Any]]) -> list[Step]:
    found: list[Step] = []
    previous: int | None = None
    for record in trail[:RECORDS]:
        wall = record["wall"]
        what = record.get("outcome") or record["kind"]
        shown = ("cause", "uuid", "sequence", "position")
        more = [f"{name} {_text(record[name], 36)}" for name in shown if record.get(name)]
        found.append(
            Step(
                _text(what), f"{record['side']} {_text(record['name'], 40)} @ {_text(record['host'], 40)}",
                time(wall) or str(wall), "" if previous is None else f"{(wall - previous) / 1000:+,.3f} ms",
                _objects(record), ", ".join([*more, f"record {record['number']} of run {_text(record['run'], 8)}"]),
            )
        )  # fmt: skip
        previous = wall
    return found


def _text(value: object, limit: int = TEXT) -> str:
    """A text from data, shortened to ``limit``. The template escapes it."""
    text = str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _milliseconds(value: int | None) -> str:
    return "–" if value is None else f"{value / 1000:,.3f}"


def _bytes(value: int | None) -> str:
    size = float(value or 0)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.0f} TB"
