"""A program with SQLAlchemy models of its own: what it commits is published, in the same transaction.

echo "port p1 s1 3" | python inventory.py --config-file inventory.conf
"""

import argparse
import sys
from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pubsub_lib import Settings, Store, open_publisher
from pubsub_lib.errors import PubSubError


class Base(DeclarativeBase):
    """Tables of this program, which pubsub_lib knows nothing of."""


class Port(Base):
    __tablename__ = "inventory_ports"
    name: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    switch: Mapped[str] = mapped_column(sa.String(64))
    number: Mapped[int]
    __table_args__ = (sa.UniqueConstraint("switch", "number"),)


class Route(Base):
    __tablename__ = "inventory_routes"
    prefix: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    port: Mapped[str] = mapped_column(sa.ForeignKey("inventory_ports.name"))


def publish(session: Session, store: Store, topic: str) -> None:
    """Record every change of a port or a route in this session: it is committed with it, or not at all."""
    changes = store.session(session)

    @event.listens_for(session, "before_flush")
    def record(session: Session, *_: object) -> None:
        for row in (*session.new, *session.dirty):
            if isinstance(row, Port):
                changes.set("lport", row.name, {"switch": row.switch, "number": row.number}, topic=topic)
            elif isinstance(row, Route):
                changes.set("lroute", row.prefix, {"port": row.port}, topic=topic)
        for row in session.deleted:
            if isinstance(row, Port | Route):
                table, key = ("lport", row.name) if isinstance(row, Port) else ("lroute", row.prefix)
                changes.delete(table, key, missing_ok=True)


def run(session: Session, lines: Iterable[str]) -> None:
    """One transaction a line: ``port NAME SWITCH NUMBER``, ``route PREFIX PORT``, ``remove NAME-OR-PREFIX``."""
    for line in lines:
        try:
            match line.split():
                case ["port", name, switch, number]:
                    session.merge(Port(name=name, switch=switch, number=int(number)))
                case ["route", prefix, port]:
                    session.merge(Route(prefix=prefix, port=port))
                case ["remove", name]:
                    session.delete(session.get(Port, name) or session.get_one(Route, name))
                case _:
                    raise ValueError("no such command")
            session.commit()
        except (ValueError, sa.exc.SQLAlchemyError) as error:
            session.rollback()
            print(f"inventory: {line.strip()!r}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Ports and routes, one command a line.")
    parser.add_argument("--config-file", required=True)
    try:
        settings = Settings.from_file(parser.parse_args().config_file)
        engine = sa.create_engine(settings.store_url)
        Base.metadata.create_all(engine)
        with Store(settings) as store, open_publisher(settings, store), Session(engine) as session:
            publish(session, store, "tenant-1")
            run(session, sys.stdin)
    except PubSubError as error:
        sys.exit(f"inventory: {error}")
