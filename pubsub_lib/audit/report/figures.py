"""The page's figures, drawn by plotly from the rows of a summary. Pure functions: rows in, HTML out; no Spark.

Each returns the HTML of one figure, or "" when there is nothing to draw. Texts from data are escaped, because plotly
takes some tags in texts for markup.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import plotly.io

from pubsub_lib.audit.report.labels import HOPS, SUMS
from pubsub_lib.audit.report.summary import Balance, Losses
from pubsub_lib.audit.report.times import time

ROWS: Final = 20
"""Maximum number of rows (domains, replicas, streams) of a figure."""
POINTS: Final = 1000
"""Maximum number of slices or syncs of a figure."""
TEXT: Final = 48
"""Maximum number of characters of a label."""

_INK, _GRID = "#33404d", "#e4e8ec"
COLORS: Final = ("#3a6ea5", "#d98032", "#2f9e78", "#7d63ad", "#b8609a", "#5c8d9e", "#a08b3d", "#8a8f98")
"""Colours of hops, domains and causes. None is red: red marks faults that need an operator."""
_MARKS: Final = (
    ("begin", "began", None, "triangle-right", "#3a6ea5"),
    ("clean end", "last", "closed", "square-open", "#56636f"),
    ("killed", "last", "killed", "x-thin", "#22303c"),
)
"""Kinds of marks: name, column of their time, the end that they are for (None: any), shape, colour."""
_PERCENTILES: Final = {"p50": "50 %", "p95": "95 %", "p99": "99 %", "p999": "99.9 %", "max": "max"}


def label(*parts: object) -> str:
    """A label of these parts, cut and escaped."""
    text = " · ".join(str(part) for part in parts if part not in ("", None))
    return html.escape(text if len(text) <= TEXT else text[: TEXT - 1] + "…")


def figure(name: str, data: Sequence[Mapping[str, Any]], height: int, **layout: Any) -> str:
    """The HTML of a figure: its id is ``figure-NAME``; ``layout``: more keys of plotly's layout."""
    axis = {"gridcolor": _GRID, "linecolor": _GRID, "zerolinecolor": _GRID, "automargin": True}
    for key, given in layout.items():
        if key.startswith(("xaxis", "yaxis")):
            layout[key] = {**axis, **given}
    whole = {
        "data": list(data),
        "layout": {
            "template": {}, "height": height, "margin": {"l": 10, "r": 16, "t": 10, "b": 36},
            "font": {"family": "system-ui, sans-serif", "size": 12, "color": _INK},
            "paper_bgcolor": "white", "plot_bgcolor": "white",
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
            **layout,
        },
    }  # fmt: skip
    drawn: str = plotly.io.to_html(
        whole, full_html=False, include_plotlyjs=False, div_id=f"figure-{name}", default_height=f"{height}px",
        config={"responsive": True, "displayModeBar": False},
    )  # fmt: skip
    return drawn


def balance(balances: Mapping[str, Balance]) -> str:
    """The sums of each domain as a bar."""
    some = list(balances.items())[:ROWS]
    domains = [label(domain) or "all" for domain, _ in some]
    bars = [
        {
            "type": "bar", "orientation": "h", "name": name, "y": domains, "marker": {"color": color},
            "x": [getattr(each, name) for _, each in some],
            "hovertemplate": f"%{{x}} {name}<extra></extra>",
        }
        for name, color in SUMS.items()
        if name == "delivered" or any(getattr(each, name) for _, each in some)
    ]  # fmt: skip
    shown = len(some) > 1
    return figure(
        "balance", bars, 110 + 26 * len(some), barmode="stack", xaxis={"title": {"text": "deliveries"}},
        yaxis={"autorange": "reversed", "showticklabels": shown, "type": "category"},
    ) if some else ""  # fmt: skip


def over_time(slices: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]] = ()) -> str:
    """The running sums of expected and applied deliveries; below, the deliveries that failed in each slice, and the
    begins and ends of services and replicas.
    """
    some = [each for each in slices if time(each["slice"]) is not None][:POINTS]
    if not some:
        return ""
    times = [time(each["slice"]) for each in some]
    lines = [
        {
            "type": "scatter", "mode": "lines", "name": name, "x": times,
            "y": list(accumulate(each[column] for each in some)),
            "line": {"color": color, "width": width, "shape": "hv", "dash": dash},
        }
        for name, column, color, width, dash in (
            ("expected", "expected", "#8a96a3", 4, "solid"), ("applied", "settled", SUMS["delivered"], 2, "solid"),
        )
    ]  # fmt: skip
    bars = [
        {
            "type": "bar", "name": name, "x": times, "y": [each[name] for each in some], "yaxis": "y2",
            "marker": {"color": SUMS[name]},
        }
        for name in ("lost", "repaired", "unknown", "pending")
        if any(each[name] for each in some)
    ]  # fmt: skip
    marks = ends(runs, lambda run: f"{run['side']}s", "y3")
    heights = {"y": 240, **({"y2": 90} if bars else {}), **({"y3": 60} if marks else {})}
    domains = _stacked(heights)
    axes: dict[str, dict[str, Any]] = {
        "y": {"title": {"text": "running sum"}, "rangemode": "tozero"},
        "y2": {"title": {"text": "per slice"}, "rangemode": "tozero"},
        "y3": {"type": "category", "fixedrange": True},
    }
    return figure(
        "over-time", [*lines, *bars, *marks], 60 + sum(heights.values()), barmode="stack", hovermode="x unified",
        xaxis={"type": "date", "anchor": list(heights)[-1]},
        **{f"yaxis{name[1:]}": {**axes[name], "domain": domain} for name, domain in domains.items()},
    )  # fmt: skip


def _stacked(heights: Mapping[str, int]) -> dict[str, list[float]]:
    """The domains of axes one below the other, the first one on top, with a tenth between two of them."""
    gap = 0.1
    whole = sum(heights.values()) / (1 - gap * (len(heights) - 1))
    found: dict[str, list[float]] = {}
    top = 1.0
    for name, height in heights.items():
        found[name] = [max(0.0, round(top - height / whole, 4)), round(top, 4)]
        top -= height / whole + gap
    return found


def ends(
    runs: Sequence[Mapping[str, Any]], row: Callable[[Mapping[str, Any]], str], axis: str = "y"
) -> list[dict[str, Any]]:
    """Marks of begins and ends: a trace for each kind that there is. ``row``: the text of a run on the axis. The kinds
    differ in their shapes, not in their colours alone. None is red: a process that was killed is no fault of delivery.
    """
    found: list[dict[str, Any]] = []
    for name, column, end, symbol, color in _MARKS:
        some = [run for run in runs if end in (None, run["end"]) and time(run[column]) is not None][:POINTS]
        if some:
            found.append({
                "type": "scatter", "mode": "markers", "name": name, "x": [time(run[column]) for run in some],
                "y": [row(run) for run in some], "yaxis": axis, "cliponaxis": False,
                "marker": {"symbol": symbol, "color": color, "size": 11, "line": {"color": color, "width": 2}},
                "text": [f"{name}: {_participant(run)}" for run in some],
                "hovertemplate": "%{text}<br>%{x}<extra></extra>",
            })  # fmt: skip
    return found


def _participant(run: Mapping[str, Any]) -> str:
    return label(run["domain"], f"{run['side']} {run['name']}", run["host"])


def latencies(rows: Sequence[Mapping[str, Any]]) -> str:
    """Percentiles in milliseconds, on a logarithmic axis (which cannot show values of 0 or less). One domain: of every
    hop; several domains: of publish → apply only."""
    domains = list(dict.fromkeys(row["domain"] for row in rows))[: len(COLORS)]
    if len(domains) > 1:
        rows = [row for row in rows if row["hop"] == "publish_apply" and row["domain"] in domains]
    lines = [
        {
            "type": "scatter", "mode": "lines+markers", "x": list(_PERCENTILES.values()),
            "y": [row[name] / 1000 if row[name] > 0 else None for name in _PERCENTILES],
            "name": label(row["domain"], HOPS.get(row["hop"], row["hop"])),
            "marker": {"size": 8}, "line": {"color": COLORS[place % len(COLORS)]},
            "hovertemplate": "%{y:.3~f} ms<extra>%{fullData.name}</extra>",
        }
        for place, row in enumerate(rows)
        if row["hop"] in HOPS
    ]  # fmt: skip
    return figure(
        "latencies", lines, 360, xaxis={"type": "category"},
        yaxis={"type": "log", "title": {"text": "milliseconds"}, "dtick": 1, "exponentformat": "none"},
    ) if lines else ""  # fmt: skip


def losses(rows: Sequence[Losses]) -> str:
    """A row for each stream, from its lowest to its highest sequence: the number of messages missing in each part. The
    part with the most is the darkest. Parts with a lost message are red, parts with only repaired ones are blue.
    """
    some = [each for each in rows if any(each.lost) or any(each.repaired)][:ROWS]
    if not some:
        return ""
    names = [_stream(each, place) for place, each in enumerate(some)]
    only_repaired = [
        [0 if lost else repaired for lost, repaired in zip(each.lost, each.repaired, strict=True)] for each in some
    ]
    parts = (("repaired", only_repaired, _BLUES), ("lost", [each.lost for each in some], _REDS))
    grids = [_grid(what, counts, names, colors) for what, counts, colors in parts if any(map(any, counts))]
    return figure(
        "losses", grids, 120 + 28 * len(some), xaxis={"title": {"text": "% of the stream"}, "range": [0, 100]},
        yaxis={"autorange": "reversed", "type": "category"},
    )  # fmt: skip


_BLUES: Final = ((0, "#d3e2f1"), (0.5, "#7fa8d1"), (1, "#274c77"))
_REDS: Final = ((0, "#f3c1b5"), (0.5, "#d9604c"), (1, "#7d1128"))


def _grid(
    what: str, counts: Sequence[Sequence[int]], names: Sequence[str], colors: Sequence[tuple[float, str]]
) -> dict[str, Any]:
    parts = len(counts[0])
    return {
        "type": "heatmap", "z": [[each / max(row) if each else None for each in row] for row in counts],
        "y": names, "customdata": counts, "showscale": False, "hoverongaps": False,
        "x": [100 * (part + 0.5) / parts for part in range(parts)], "xgap": 1, "ygap": 3,
        "colorscale": colors, "zmin": 0, "zmax": 1,
        "hovertemplate": f"%{{y}}<br>%{{customdata}} {what} at %{{x:.0f}} %<extra></extra>",
    }  # fmt: skip


def _stream(losses: Losses, place: int) -> str:
    if not losses.stream:
        return "all streams"
    domain, name, uuid, topic = losses.stream
    return f"{place}. {label(domain, name, topic, uuid[:8])}"  # numbered, because two shortened labels may be equal


def timeline(syncs: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]] = ()) -> str:
    """A row for each replica with long syncs, one bar for each sync, coloured by its cause; and its begins and ends."""
    some = [each for each in syncs if time(each["began"]) is not None][:POINTS]
    replicas = list(dict.fromkeys(label(each["domain"], each["name"]) for each in some))[:ROWS]
    shown = [each for each in some if label(each["domain"], each["name"]) in set(replicas)]
    causes = sorted({each["cause"] or "" for each in shown})[: len(COLORS)]
    bars = []
    for place, cause in enumerate(causes):
        of_cause = [each for each in shown if (each["cause"] or "") == cause]
        bars.append({
            "type": "bar", "orientation": "h", "name": label(cause) or "no cause",
            "y": [label(each["domain"], each["name"]) for each in of_cause],
            "base": [time(each["began"]) for each in of_cause],
            "x": [max((each["took"] or 0) / 1000, 0.001) for each in of_cause],
            "marker": {"color": COLORS[place], "line": {"color": COLORS[place], "width": 2}},
            "text": [_about(each) for each in of_cause], "textposition": "none",
            "hovertemplate": "%{text}<extra></extra>",
        })  # fmt: skip
    own = [each for each in runs if each["side"] == "replica" and label(each["domain"], each["name"]) in set(replicas)]
    marks = ends(own, lambda run: label(run["domain"], run["name"]))
    return figure(
        "timeline", [*bars, *marks], 120 + 26 * len(replicas), barmode="overlay", xaxis={"type": "date"},
        yaxis={"autorange": "reversed", "type": "category"},
    ) if bars else ""  # fmt: skip


def _about(sync: Mapping[str, Any]) -> str:
    took = "no end recorded" if sync["took"] is None else f"{sync['took'] / 1000:.1f} ms"
    needless = "needless" if sync["needless"] else ""
    what = f"{sync['count'] or 0} read, {sync['size'] or 0} bytes"
    return label(sync["cause"], sync["outcome"], took, needless) + "<br>" + label(sync["topic"] or "everything", what)
