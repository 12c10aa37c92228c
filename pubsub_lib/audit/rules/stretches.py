"""To which publisher a run with parents listened, and when (audit-verdicts.md, "Relays")."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
from pyspark.sql import Row

from pubsub_lib.audit.rules.base_tables import FOREVER
from pubsub_lib.audit.settings import AuditSettings


class Stretch(msgspec.Struct, frozen=True):
    """Records from ``begin`` on, and before ``end`` if there is one, in which a run follows ``service``. ``named``: the
    first one that names it.
    """

    service: str
    begin: Row
    named: Row
    end: Row | None


def stretches(parents: Sequence[Row]) -> Iterator[Stretch]:
    """The stretches of a run, from its ``parent`` records in their order."""
    move: Row | None = None
    current: tuple[str, Row, Row] | None = None
    for row in parents:
        if row["uuid"] and current is not None and row["service"] == current[0]:
            continue
        if current is not None:
            yield Stretch(*current, row)
        if row["uuid"]:
            current = row["service"], move or row, row
            move = None
        else:
            current, move = None, row
    if current is not None:
        yield Stretch(*current, None)


def unnamed(parents: Sequence[Row], settings: AuditSettings) -> Iterator[dict[str, int]]:
    """From each move of a run to its next ``parent`` record, by number, and ``until`` a time: nothing names its parent
    yet. A parent that is not named until then, or whose name is among lost records, hides nothing for ever.
    """
    for row, after in pairwise([*parents, None]):
        if row is not None and not row["uuid"]:
            end = FOREVER if after is None else after["number"]
            yield {"begin": row["number"], "end": end, "until": row["wall"] + settings.reach}
