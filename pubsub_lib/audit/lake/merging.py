"""Which result of a window counts when two audits have it (docs/audit.md, "Days"). Pure functions of a day's tables."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import Any, Final

import msgspec
import pyarrow as pa

from pubsub_lib.audit.lake.tables import KEYED, KIND, LIMIT, ORDER, SCHEMAS, Tables

Key = tuple[str, int]
"""Domain and begin of a window."""
Found = tuple[str, str, str]
"""Domain, table and verdict of findings without a window."""
_ORDER: Final = [("domain", "ascending"), ("window", "ascending")]


class Outcome(msgspec.Struct, frozen=True):
    """Numbers of windows: ``added``, of these with an earlier result (``replaced``), and those whose earlier result was
    ``kept``. ``lacking``: the first run that only an earlier result had. ``no_store``: a result was kept because only
    the earlier audit had the store. ``foreign``: domains whose earlier results came from other journals.
    """

    added: int = 0
    replaced: int = 0
    kept: int = 0
    lacking: str = ""
    no_store: bool = False
    foreign: frozenset[str] = frozenset()

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.added + other.added, self.replaced + other.replaced, self.kept + other.kept,
            self.lacking or other.lacking, self.no_store or other.no_store, self.foreign | other.foreign,
        )  # fmt: skip


def merged(earlier: Tables, later: Tables, window: int) -> tuple[dict[str, pa.Table], Outcome]:
    """The tables of a day after an audit was added, and what was replaced. ``window``: the length of windows.

    A later result replaces the earlier one of the same domain and window. An earlier result of a closed window is kept
    when the window is open in the later one, when the later one read less of a run that was active in the window, or
    when only the earlier one had the store.
    Findings without a window replace those of a domain; of an audit with less evidence (``_with_less``) only those of
    which it has more. Of the anomalies that count, the first ``LIMIT`` of each kind are kept.
    """
    before, after = _windows(earlier), _windows(later)
    covered, covers = earlier["coverage"].to_pylist(), later["coverage"].to_pylist()
    lacking = _lacking(covered, covers)
    had_store = {(row["audit"], row["domain"]) for row in (*covered, *covers) if row["store"]}
    kept: set[Key] = set()
    first_lacking, storeless, foreign = "", False, set[str]()
    for key in before.keys() & after.keys():
        one = lacking[before[key]["audit"], key[0]]
        missing = one.active(key[1], key[1] + window)
        no_store = (before[key]["audit"], key[0]) in had_store and (after[key]["audit"], key[0]) not in had_store
        if before[key]["closed"] and (missing or no_store or not after[key]["closed"]):
            kept.add(key)
            storeless |= no_store
            first_lacking = min(filter(None, (first_lacking, missing)), default="")
            if one.foreign:
                foreign.add(key[0])
    taken = after.keys() - kept
    less = _with_less(covered, covers, lacking)
    old, new = _findings(earlier["verdict"]), _findings(later["verdict"])
    audited = {row["domain"] for row in covers if row["findings"]}
    replaced = {each for each in old if each[0] in audited and (each[0] not in less or new[each] >= old[each])}
    dropped = {each for each in new if each[0] in less and new[each] < old[each]}
    found = {}
    for name in KEYED:
        parts = [_without(earlier[name], taken, replaced), _without(later[name], kept, dropped)]
        found[name] = pa.concat_tables(parts).sort_by(_ORDER)
    found["anomaly"] = _limited(found["anomaly"]).sort_by(_ORDER)
    remaining = {(before[key]["audit"], key[0]) for key in before.keys() - taken} | {*less.values()}
    found["coverage"] = _coverage(earlier, later, remaining, {domain for domain, _ in taken})
    replaced_windows = len(taken & before.keys())
    return found, Outcome(len(taken), replaced_windows, len(kept), first_lacking, storeless, frozenset(foreign))


class _Lacking(msgspec.Struct):
    """The runs of an earlier audit of which a later one read less. ``foreign``: the later one has none of its runs."""

    runs: list[Mapping[str, Any]] = []
    foreign: bool = False

    def active(self, begin: int, end: int) -> str:
        """The first of these runs with records of this time; "" without any."""
        return min((run["run"] for run in self.runs if run["begin"] < end and run["end"] >= begin), default="")


def _windows(tables: Tables) -> dict[Key, dict[str, Any]]:
    return {(row["domain"], row["window"]): row for row in tables["window"].to_pylist()}


def _lacking(
    earlier: Iterable[Mapping[str, Any]], later: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, str], _Lacking]:
    """By audit and domain of the earlier rows of ``coverage``."""
    first: dict[str, dict[str, int]] = defaultdict(dict)
    audits = set()
    for row in later:
        audits.add((row["audit"], row["domain"]))
        first[row["domain"]].update({run["run"]: run["first"] for run in row["runs"]})
    found: dict[tuple[str, str], _Lacking] = defaultdict(_Lacking)
    for row in earlier:
        if (row["audit"], row["domain"]) in audits:
            continue  # the same follower, which goes on
        have = first[row["domain"]]
        runs = [run for run in row["runs"] if run["run"] not in have or have[run["run"]] > run["first"]]
        found[row["audit"], row["domain"]] = _Lacking(runs, not any(run["run"] in have for run in row["runs"]))
    return found


def _with_less(
    earlier: Iterable[Mapping[str, Any]],
    later: Iterable[Mapping[str, Any]],
    lacking: Mapping[tuple[str, str], _Lacking],
) -> dict[str, tuple[str, str]]:
    """The domains of which a later audit has findings from less evidence than an earlier one: without the store, or
    from fewer records of a run. With audit and domain of the earlier one.
    """
    store = {row["domain"]: row["store"] for row in later if row["findings"]}
    found = {}
    for row in earlier:
        key = (row["audit"], row["domain"])
        if row["findings"] and row["domain"] in store:
            no_store = row["store"] and not store[row["domain"]]
            if no_store or (key in lacking and lacking[key].runs):
                found[row["domain"]] = key
    return found


def _findings(verdicts: pa.Table) -> Counter[Found]:
    """The numbers of the findings without a window."""
    found: Counter[Found] = Counter()
    for row in verdicts.to_pylist():
        if row["window"] is None:
            found[row["domain"], row["of"], row["verdict"]] += row["count"]
    return found


def _without(table: pa.Table, keys: Set[Key], findings: Set[Found]) -> pa.Table:
    """The rows without these windows and these findings (which have no window)."""
    rows = table.select([name for name in ("domain", "window", "of", "verdict") if name in table.schema.names])
    keep = [
        (row["domain"], row["of"], row["verdict"]) not in findings
        if row["window"] is None
        else (row["domain"], row["window"]) not in keys
        for row in rows.to_pylist()
    ]
    return table.filter(pa.array(keep, pa.bool_()))


def _limited(anomalies: pa.Table) -> pa.Table:
    """The first ``LIMIT`` anomalies of each kind. Which ones does not depend on the order of the rows."""
    by = dict.fromkeys((*KIND, *ORDER, *anomalies.schema.names))
    ordered = anomalies.sort_by([(name, "ascending") for name in by])
    places: Counter[tuple[str, ...]] = Counter()
    keep = []
    for kind in zip(*(ordered[name].to_pylist() for name in KIND), strict=True):
        places[kind] += 1
        keep.append(places[kind] <= LIMIT)
    return ordered.filter(pa.array(keep, pa.bool_()))


def _coverage(earlier: Tables, later: Tables, remaining: Set[tuple[str, str]], contributed: Set[str]) -> pa.Table:
    """The rows of the audits that have a part in the day: a window, or the whole time of an idle day.

    ``remaining``: audit and domain of earlier windows that count. ``contributed``: domains with a later window that
    counts.
    """
    before, rows = earlier["coverage"].to_pylist(), []
    new = {(row["audit"], row["domain"]): row for row in later["coverage"].to_pylist()}
    of_domain = {domain: row for (_, domain), row in new.items()}
    wider = set()
    for row in before:
        same, other = new.get((row["audit"], row["domain"])), of_domain.get(row["domain"])
        if same is not None:
            same["problems"] = list(dict.fromkeys([*row["problems"], *same["problems"]]))
            same["incomplete"] |= row["incomplete"]
            same["begin"], same["end"] = min(row["begin"], same["begin"]), max(row["end"], same["end"])
            contributed = {*contributed, row["domain"]}
        elif (row["audit"], row["domain"]) in remaining or other is None or not _inside(row, other):
            rows.append(row)
            if other is not None and _inside(other, row):
                wider.add(row["domain"])
    for (_, domain), row in new.items():
        if domain in contributed or row["findings"] or domain not in wider:
            rows.append(row)
    return pa.Table.from_pylist(rows, schema=SCHEMAS["coverage"])


def _inside(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(other["begin"] <= one["begin"] and one["end"] <= other["end"])
