"""The processes of ``tools/bench stress``: writers, a follower of the changelog, and a naive follower."""

import json
import random
import time
from pathlib import Path
from typing import Any

from _children import Line
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, event, insert, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from pubsub_lib.core.model import ZERO
from pubsub_lib.errors import ConditionFailed, StoreBusy
from pubsub_lib.store import Store, url

TOPICS = 6
KEYS = 80
metadata = MetaData()
naive = Table(
    "naive_rows",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("writer", Integer),
    mysql_engine="InnoDB",
)


class RolledBack(Exception):
    """A writer raises it on purpose."""


def users_engine(database: str) -> Engine:
    """An engine, as a user's program would create it."""
    made = create_engine(url.parse(database), pool_size=1)
    if made.dialect.name == "sqlite":
        event.listen(made, "connect", lambda connection, _record: connection.execute("PRAGMA busy_timeout=10000"))
    return made


def write(line: Line, database: str, number: int, seed: int, seconds: float, least: int, folder: str) -> None:
    """One writer, for ``seconds`` and at least ``least`` transactions. Its journal has a line per acknowledged
    transaction; the last line contains the counts."""
    rng = random.Random(f"{seed} {number}")
    counts = {"committed": 0, "raised": 0, "violated": 0, "rolled_back_after_counter": 0, "unchanged": 0, "busy": 0}
    engine = users_engine(database)
    path = Path(folder, f"writer-{number}.jsonl")
    with Store(database, origin=f"writer-{number}") as store, path.open("w", encoding="utf-8") as journal:
        begin(line)
        deadline = time.monotonic() + seconds
        tries = 0
        while time.monotonic() < deadline or tries < least:
            tries += 1
            try:
                commit = in_session(store, engine, rng, number) if rng.random() < 0.4 else in_block(store, rng)
            except RolledBack as error:
                counts[str(error)] += 1
                continue
            except ConditionFailed:
                counts["violated"] += 1
                continue
            except (StoreBusy, DBAPIError):
                counts["busy"] += 1  # the library does not retry a user's session
                continue
            if commit is None:
                counts["unchanged"] += 1
                continue
            counts["committed"] += 1
            journal.write(json.dumps([commit.point.position, commit.nonce]) + "\n")
        journal.write(json.dumps(counts) + "\n")
    engine.dispose()
    line.send()


def verbs(tx: Any, rng: random.Random) -> None:
    """Record a few random operations."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        key, topic = f"k{rng.randrange(KEYS)}", f"topic-{rng.randrange(TOPICS)}"
        match rng.randrange(10):
            case 0:
                tx.create("thing", key, {"n": rng.random()}, topic=topic)
            case 1:
                tx.update("thing", key, {"m": rng.random()})
            case 2 | 3:
                tx.delete("thing", key, missing_ok=True)
            case 4:
                tx.set("thing", key, {"n": 1})
            case _:
                tx.set("thing", key, {"n": rng.random()}, topic=topic if rng.random() < 0.3 else None)


def in_block(store: Store, rng: random.Random) -> Any:
    """A transaction of the store; one in ten raises in the block."""
    with store.transaction() as tx:
        verbs(tx, rng)
        if rng.random() < 0.1:
            raise RolledBack("raised")
    return tx.commit


def in_session(store: Store, engine: Engine, rng: random.Random, number: int) -> Any:
    """A user's session with an additional row; one in five is rolled back after the store's counter was taken."""
    fail = rng.random() < 0.2
    with Session(engine) as session:
        recorder = store.session(session)

        def refuse(_session: Session) -> None:
            raise RolledBack("rolled_back_after_counter")

        if fail:
            event.listen(session, "before_commit", refuse)  # called after the store's listener
        session.execute(insert(naive).values(writer=number))
        verbs(recorder, rng)
        session.commit()
        return recorder.commit


def begin(line: Line) -> None:
    """All processes begin together, however long one takes to start."""
    line.send()
    line.wait()


def follow(line: Line, database: str, folder: str) -> None:
    """Follow the changelog from its begin until the writers have ended and the head is reached."""
    _follow(line, database, folder)
    line.send()


def _follow(line: Line, database: str, folder: str) -> None:
    known, stop = ZERO, Path(folder, "stop")
    with Store(database) as store, Path(folder, "followed.jsonl").open("w", encoding="utf-8") as out:
        begin(line)
        while True:
            ended = stop.exists()
            links, head, complete = store.read_links(known, 500)
            if not complete:
                out.write(json.dumps({"incomplete": known.position}) + "\n")
                return
            for link in links:
                out.write(json.dumps([link.point.position, link.point.nonce, link.topic]) + "\n")
            if links:
                known = links[-1].point
            elif ended and known == head:
                return
            else:
                time.sleep(0.002)


def follow_naively(line: Line, database: str, folder: str) -> None:
    """Follow the table of the naive rows by ``id > last``."""
    last, seen, stop = 0, 0, Path(folder, "stop")
    engine = users_engine(database)
    begin(line)
    while True:
        ended = stop.exists()
        with engine.connect() as connection:
            ids = list(connection.execute(select(naive.c.id).where(naive.c.id > last).order_by(naive.c.id)).scalars())
        if ids:
            last, seen = ids[-1], seen + len(ids)
        elif ended:
            break
        else:
            time.sleep(0.0005)
    engine.dispose()
    line.send(seen)
