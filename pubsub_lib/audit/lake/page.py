"""The report of a lake as one self-contained HTML page (docs/audit.md, "Days"). A pure function of a report."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from pubsub_lib.audit.lake import output
from pubsub_lib.audit.lake.days import SUMS, Day, Report
from pubsub_lib.audit.report.figures import COLORS, figure, label
from pubsub_lib.audit.report.labels import SUMS as COLORS_OF_SUMS
from pubsub_lib.audit.report.labels import VERDICTS
from pubsub_lib.audit.report.page import environment
from pubsub_lib.audit.report.summary import INCOMPLETE
from pubsub_lib.errors import ConfigError

ROWS: Final = 20
"""Maximum number of problems and trends."""
DAYS: Final = 400
"""Maximum number of rows of the table of days, and of days in figures."""
TEXT: Final = 500
"""Maximum number of characters of a problem."""
_FAILED: Final = ("lost", "repaired", "unknown", "pending")
_RED: Final = "#c23b4e"
_SHADE: Final = "#e1e6ea"


def page(report: Report) -> str:
    """The whole page."""
    days = report.days[-DAYS:]
    found = environment()
    found.filters.update(
        sentence=lambda each: each if len(each) <= TEXT else f"{each[: TEXT - 1]}…",
        state=output.state,
        verdict=output.verdict,
        kinds=output.kinds,
    )
    drawn = {"failures": _failures(days), "anomalies": _anomalies(days), "latencies": _latencies(days)}
    of_days = [f"{each.day}: {problem}" for each in report.days for problem in each.problems]
    return found.get_template("days.html.jinja").render(
        script=Markup(get_plotlyjs()),  # noqa: S704 - plotly is trusted
        figures={name: Markup(each) for name, each in drawn.items()},  # noqa: S704 - drawn by this library
        report=report, days=days, sums=SUMS, rows=ROWS, title=output.title(report), state=_state(report),
        problems=[*report.problems, *of_days], several=len({each.domain for each in report.days}) > 1,
    )  # fmt: skip


def save_page(report: Report, file: Path) -> None:
    """Write the page. Raises ConfigError when the file cannot be written."""
    try:
        file.write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror}); name another file") from error


def _state(report: Report) -> str:
    return "bad" if report.exit_code & ~INCOMPLETE else "unsure" if report.exit_code else "good"


def _summed(days: Sequence[Day], value: Any) -> dict[str, int | None]:
    """The sum of all domains for each day; None for a day without a result: a gap."""
    found: dict[str, int | None] = {}
    for day in days:
        before = found.setdefault(day.day, None)
        if day.audited:
            found[day.day] = (before or 0) + value(day)
    return found


def _axes(days: Sequence[Day]) -> dict[str, Any]:
    """The axis of days, also of those without a result, which are shaded: no bar would look like no fault."""
    audited: dict[str, bool] = {}
    for day in days:
        audited[day.day] = audited.get(day.day, False) or day.audited
    shaded = [
        {
            "type": "rect", "xref": "x", "x0": place - 0.5, "x1": place + 0.5, "yref": "y domain", "y0": 0, "y1": 1,
            "fillcolor": _SHADE, "line": {"width": 0}, "layer": "below",
        }
        for place, there in enumerate(audited.values())
        if not there
    ]  # fmt: skip
    axis = {
        "type": "category", "nticks": 10, "categoryarray": list(audited), "range": [-0.5, len(audited) - 0.5],
    }  # fmt: skip
    return {"xaxis": axis, "shapes": shaded}


def _bars(days: Sequence[Day], values: dict[str, dict[str, int | None]], colors: dict[str, str], name: str) -> str:
    """Stacked bars, one for each day."""
    every = list(dict.fromkeys(day.day for day in days))
    bars = [
        {
            "type": "bar", "name": kind, "x": every, "y": [of_day[day] for day in every],
            "marker": {"color": colors[kind]}, "hovertemplate": f"%{{x}}: %{{y}} {kind}<extra></extra>",
        }
        for kind, of_day in values.items()
        if any(of_day.values())
    ]  # fmt: skip
    return figure(name, bars, 300, barmode="stack", yaxis={"rangemode": "tozero"}, **_axes(days)) if bars else ""


def _failures(days: Sequence[Day]) -> str:
    values = {name: _summed(days, lambda day, name=name: day.number(name)) for name in _FAILED}
    return _bars(days, values, {name: COLORS_OF_SUMS[name] for name in _FAILED}, "failures")


def _anomalies(days: Sequence[Day]) -> str:
    found = {kind for day in days for kind in day.anomalies}
    kinds = [kind for kind in VERDICTS if kind in found]
    values = {kind: _summed(days, lambda day, kind=kind: day.anomalies.get(kind, 0)) for kind in kinds}
    colors = {kind: COLORS[place % len(COLORS)] for place, kind in enumerate(kinds)}
    return _bars(days, values, {**colors, "lost": _RED}, "anomalies")


def _latencies(days: Sequence[Day]) -> str:
    """The median and the 99th percentile of each domain. A day without a result interrupts the lines."""
    of_domain: dict[str, list[Day]] = defaultdict(list)
    for day in days:
        of_domain[day.domain].append(day)
    lines = [
        {
            "type": "scatter", "mode": "lines+markers", "connectgaps": False, "name": label(domain, f"{percent} %"),
            "x": [day.day for day in some],
            "y": [None if value is None else value / 1000 for value in (getattr(day, name) for day in some)],
            "line": {"color": COLORS[place % len(COLORS)], "dash": dash},
            "hovertemplate": "%{x}: %{y:.3~f} ms<extra>%{fullData.name}</extra>",
        }
        for place, (domain, some) in enumerate(list(of_domain.items())[: len(COLORS)])
        for name, percent, dash in (("p50", 50, "dot"), ("p99", 99, "solid"))
        if any(day.p50 is not None for day in some)
    ]  # fmt: skip
    layout = {"title": {"text": "milliseconds"}, "rangemode": "tozero"}
    return figure("latencies", lines, 320, yaxis=layout, **_axes(days)) if lines else ""
