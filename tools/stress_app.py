#!/usr/bin/env python3
"""Concurrent writer processes against one database, with followers, and a check of everything afterwards.

::

    tools/stress --database postgresql --seconds 60        # also: sqlite, mariadb, all, or any URL
    tools/stress --database all --seconds 60 --seed 7

Twelve writers mix transactions, violated conditions, blocks that raise, and the user's own sessions that are rolled
back after the counter was taken. A follower in a separate process reads the changelog meanwhile. A naive follower reads
``id > last`` of a table that the same transactions fill, to show how many rows that loses. The check at the end:
positions have no gaps, all chains are unbroken, every acknowledged transaction is stored exactly once and no other is,
the follower missed no link, no version decreased, heads equal a recount, and the objects equal the replayed changelog.
Prints one JSON object per database; exit code 1 when a check fails.
"""

import argparse
import contextlib
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import _termination as termination  # noqa: E402
from _servers import PrivateMariaDB, PrivatePostgres  # noqa: E402
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, event, func, insert, select  # noqa: E402
from sqlalchemy.exc import DBAPIError  # noqa: E402
from sqlalchemy.orm import Session  # noqa: E402

from pubsub_lib.core import digest  # noqa: E402
from pubsub_lib.core.model import ZERO, Link, Point  # noqa: E402
from pubsub_lib.errors import ConditionFailed, StoreBusy  # noqa: E402
from pubsub_lib.store import Store, url  # noqa: E402

TOPICS = 6
KEYS = 80
START_SECONDS = 120.0
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


def write(database: str, number: int, seed: int, seconds: float, least: int, folder: str, ready: Barrier) -> None:
    """One writer, for ``seconds`` and at least ``least`` transactions. Its journal has a line per acknowledged
    transaction; the last line contains the counts."""
    rng = random.Random(f"{seed} {number}")
    counts = {"committed": 0, "raised": 0, "violated": 0, "rolled_back_after_counter": 0, "unchanged": 0, "busy": 0}
    engine = users_engine(database)
    path = Path(folder, f"writer-{number}.jsonl")
    with Store(database, origin=f"writer-{number}") as store, path.open("w", encoding="utf-8") as journal:
        ready.wait(START_SECONDS)
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


def follow(database: str, folder: str, ready: Barrier) -> None:
    """Follow the changelog from its begin until the writers have ended and the head is reached."""
    known, stop = ZERO, Path(folder, "stop")
    with Store(database) as store, Path(folder, "followed.jsonl").open("w", encoding="utf-8") as out:
        ready.wait(START_SECONDS)
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


def follow_naively(database: str, folder: str, ready: Barrier) -> None:
    """Follow the table of the naive rows by ``id > last``."""
    last, seen, stop = 0, 0, Path(folder, "stop")
    engine = users_engine(database)
    ready.wait(START_SECONDS)
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
    Path(folder, "naive.json").write_text(json.dumps(seen), encoding="utf-8")


def check(store: Store, folder: Path) -> tuple[list[str], dict[str, Any]]:
    """A sentence for each failed check, and the figures."""
    wrong: list[str] = []
    links = list(everything(store))
    if not links:
        wrong.append("no transaction was written")
    figures: dict[str, Any] = {"links": len(links), "position": store.read_heads([]).store.position}
    check_chains(links, wrong)
    check_objects(store, links, wrong)
    acknowledged: dict[int, int] = {}
    for path in folder.glob("writer-*.jsonl"):
        *lines, last = path.read_text(encoding="utf-8").splitlines()
        for line in lines:
            position, nonce = json.loads(line)
            if nonce in acknowledged:
                wrong.append(f"nonce {nonce} was acknowledged twice")
            acknowledged[nonce] = position
        for name, count in json.loads(last).items():
            figures[name] = figures.get(name, 0) + count
    stored = {link.point.nonce: link.point.position for link in links}
    if stored != acknowledged:
        wrong.append(f"{len(stored)} transactions are stored, {len(acknowledged)} were acknowledged, or they differ")
    followed = [json.loads(line) for line in (folder / "followed.jsonl").read_text(encoding="utf-8").splitlines()]
    if followed != [[link.point.position, link.point.nonce, link.topic] for link in links]:
        wrong.append(f"the follower read {len(followed)} links of {len(links)}, or other links")
    return wrong, figures


def everything(store: Store) -> Iterator[Link]:
    """The whole changelog in commit order."""
    known = ZERO
    while True:
        links, _, complete = store.read_links(known, 1000)
        if not complete:
            raise AssertionError(f"the changelog does not connect to {known}")
        if not links:
            return
        yield from links
        known = links[-1].point


def check_chains(links: list[Link], wrong: list[str]) -> None:
    """Check positions without gaps, one chain over all transactions, one per topic, and growing versions."""
    position, tx, previous = 0, ZERO, ZERO
    heads: dict[str, Point] = {}
    versions: dict[str, int] = {}
    by_transaction: dict[Point, list[Link]] = {}
    for link in links:
        by_transaction.setdefault(link.point, []).append(link)
        if heads.get(link.topic, ZERO) != link.prev:
            wrong.append(f"the chain of {link.topic} is broken at {link.point}")
        heads[link.topic] = link.point
    for point, group in by_transaction.items():
        tx, previous = point, tx
        if any(link.tx_prev != previous or link.tx_links != len(group) for link in group):
            wrong.append(f"the transactions' chain is broken at {point}")
        numbers = sorted(change.version for link in group for change in link.changes)
        if numbers != list(range(position + 1, point.position + 1)):
            wrong.append(f"positions {numbers} follow {position} at {point}")
        position = point.position
        for change in sorted((change for link in group for change in link.changes), key=lambda each: each.version):
            if change.version <= versions.get(change.key, 0):
                wrong.append(f"the version of {change.key} decreased to {change.version}")
            versions[change.key] = change.version


def check_objects(store: Store, links: list[Link], wrong: list[str]) -> None:
    """Check that heads equal a recount and the last links, and objects equal the replayed changelog."""
    replayed: dict[tuple[str, str], tuple[int, bytes]] = {}
    last: dict[str, Link] = {}
    for link in links:
        last[link.topic] = link
        for change in link.changes:
            if change.value is None:
                replayed.pop((link.topic, change.key), None)
            else:
                replayed[link.topic, change.key] = (change.version, change.value)
    objects = {(each.topic, each.key): (each.version, each.value) for each in store.objects()}
    if objects != replayed:
        wrong.append(f"{len(objects)} objects, {len(replayed)} when replayed, or they differ")
    for topic, head in store.topics().items():
        if store.recount(topic) != head:
            wrong.append(f"the head of {topic} is {head}, a recount gives {store.recount(topic)}")
        if (last[topic].point, last[topic].count, last[topic].digest) != (head.point, head.count, head.digest):
            wrong.append(f"the head of {topic} differs from its last link")
        buckets = 0
        for each in store.bucket_digests(topic).values():
            buckets = digest.add(buckets, each)
        if buckets != head.digest:
            wrong.append(f"the buckets of {topic} do not add up to its digest")


def run(name: str, database: str, writers: int, seconds: float, least: int, seed: int) -> bool:
    """Test one database. Returns True when all checks passed."""
    # Fork each process from a server that has imported the large modules and opened no files: it starts fast.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pubsub_lib"])
    with tempfile.TemporaryDirectory(prefix="pubsub-stress-") as folder:
        Store(database).close()
        engine = users_engine(database)
        metadata.create_all(engine)
        ready = context.Barrier(writers + 2)  # all begin together, however long a process takes to start
        followers = [context.Process(target=each, args=(database, folder, ready)) for each in (follow, follow_naively)]
        crowd = [
            context.Process(target=write, args=(database, number, seed, seconds, least, folder, ready))
            for number in range(writers)
        ]
        try:
            for process in followers + crowd:
                process.start()
            for process in crowd:
                process.join()
            Path(folder, "stop").touch()
            for process in followers:
                process.join()
        except BaseException:
            for process in followers + crowd:
                if process.pid is not None:
                    process.kill()
                    process.join()
            raise
        failed = [str(process.exitcode) for process in followers + crowd if process.exitcode != 0]
        with Store(database) as store:
            wrong, figures = (
                ([f"processes ended with {', '.join(failed)}"], {}) if failed else check(store, Path(folder))
            )
        if not failed:
            with engine.connect() as connection:
                figures["naive_rows"] = connection.execute(select(func.count()).select_from(naive)).scalar_one()
            seen = json.loads(Path(folder, "naive.json").read_text(encoding="utf-8"))
            figures["naive_missed"] = figures["naive_rows"] - seen
        engine.dispose()
    print(
        json.dumps(
            {"database": name, "seed": seed, "writers": writers, "seconds": seconds, **figures, "wrong": wrong[:20]}
        )
    )
    return not wrong


@contextlib.contextmanager
def place(name: str) -> Iterator[str]:
    """A temporary database of that kind, or the database of a URL."""
    if name == "sqlite":
        with tempfile.TemporaryDirectory(prefix="pubsub-stress-") as folder:
            yield f"sqlite:///{folder}/stress.db"
    elif name in ("postgresql", "mariadb"):
        with (PrivatePostgres if name == "postgresql" else PrivateMariaDB)() as server:
            yield server.create_database()
    else:
        yield name


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Run concurrent writers against one database, and check all data afterwards."
    )
    parser.add_argument(
        "--database", default="all", help="sqlite, postgresql, mariadb, all, or a URL of an empty database"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the writers write (default: 60)")
    parser.add_argument(
        "--least", type=int, default=1, help="minimum number of transactions of each writer (default: 1)"
    )
    parser.add_argument("--writers", type=int, default=12, help="number of writer processes (default: 12)")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().getrandbits(32), help="seed of the writers' random choices"
    )
    options = parser.parse_args()
    names = ["sqlite", "postgresql", "mariadb"] if options.database == "all" else [options.database]
    well = True
    for name in names:
        with place(name) as database:
            well = run(name, database, options.writers, options.seconds, options.least, options.seed) and well
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(termination.run("tools/stress", main))
