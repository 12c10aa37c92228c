"""Named counters of unique ids. A number is never returned twice; gaps are possible (a failed attempt)."""

from sqlalchemy import Connection, insert, select, update

from pubsub_lib.store import schema


def next_value(connection: Connection, name: str) -> int:
    """The counter's next number, from 1. The caller commits; its row is locked until then.

    When two callers create a counter at once, one fails on the primary key and must retry.
    """
    counters = schema.counters.c
    step = update(schema.counters).where(counters.name == name).values(value=counters.value + 1)
    if connection.execute(step).rowcount == 0:
        connection.execute(insert(schema.counters).values(name=name, value=1))
        return 1
    return int(connection.execute(select(counters.value).where(counters.name == name)).scalar_one())
