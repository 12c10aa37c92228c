"""Tests of the inventory: its tables and what replicas see are one."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from inventory import Base, Port, publish, run
from sqlalchemy.orm import Session

from pubsub_lib import Replica
from pubsub_lib.testing.local import Local


@pytest.fixture
def session(pubsub_local: Local) -> Iterator[Session]:
    engine = sa.create_engine(pubsub_local.settings.store_url)
    sa.event.listen(engine, "connect", lambda dbapi, _: dbapi.execute("PRAGMA foreign_keys=ON"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        publish(session, pubsub_local.store, "tenant-1")
        yield session
    engine.dispose()


@pytest.fixture
def replica(pubsub_local: Local) -> Replica:
    return pubsub_local.replica(["tenant-1"])


def test_rows_become_objects(pubsub_local: Local, session: Session, replica: Replica) -> None:
    run(session, ["port p1 s1 3", "route 10.0.0.0/24 p1", "port p1 s1 4"])
    pubsub_local.flush()
    assert dict(replica.iterate("lport")) == {"p1": {"switch": "s1", "number": 4}}
    assert dict(replica.iterate("lroute")) == {"10.0.0.0/24": {"port": "p1"}}
    run(session, ["remove 10.0.0.0/24", "remove p1"])
    pubsub_local.flush()
    assert replica.records() == []


@pytest.mark.parametrize("line", ["port p2 s1 3", "route 10.0.0.0/24 p9", "remove p9", "port p2 s1 three", "paint p1"])
def test_what_the_database_refuses_is_not_published(
    pubsub_local: Local, session: Session, replica: Replica, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(session, ["port p1 s1 3", line])
    pubsub_local.flush()
    assert [record.key for record in replica.records()] == ["p1"]
    assert session.scalars(sa.select(Port.name)).all() == ["p1"]
    assert capsys.readouterr().err.startswith(f"inventory: {line!r}: ")
