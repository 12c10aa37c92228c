"""Object by object: the database against the files, and each replica against the database."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from _routes.data import Identity, State
from _routes.plan import PROGRESS, SESSION
from pubsub_lib.core.model import Record
from pubsub_lib.store.verbs import Stored

Objects = Mapping[Identity, Stored]

Sessions = Mapping[str, Collection[Mapping[str, object]]]
"""For each topic the valid final values of its hot key: the values of each writer's last transaction on the topic."""


class Differences(msgspec.Struct, frozen=True):
    """The number of objects that are missing, unexpected or different, and the description of one of them."""

    number: int
    example: str

    def __str__(self) -> str:
        """The number and the example, for a sentence."""
        return f"{self.number:,} objects, for example {self.example}"


def snapshot(objects: Iterable[Stored]) -> dict[Identity, Stored]:
    """The objects by identity."""
    return {(item.table, item.key): item for item in objects}


def of_files(objects: Objects, expected: State, progress: Mapping[str, int], sessions: Sessions) -> Differences:
    """The differences between the database and the expected state by the files and the writers' shares."""
    found = [f"{topic}, whose {SESSION} is missing" for topic in sessions if (SESSION, topic) not in objects]
    routes = 0
    for identity, item in objects.items():
        if item.table == PROGRESS:
            if msgspec.json.decode(item.value) != {"done": progress.get(item.key)}:
                found.append(f"{item.key}, whose value is {item.value.decode()}")
            continue
        if item.table == SESSION:
            if msgspec.json.decode(item.value) not in sessions.get(item.key, ()) or item.topic != item.key:
                found.append(f"{item.key}, whose {SESSION} is {item.value.decode()}")
            continue
        routes += 1
        if expected.get(identity) != (item.topic, item.value):
            found.append(f"{item.key!r}, which differs from the files")
    missing = len(expected) - routes
    if missing > 0:
        found += [f"{key!r}, which is missing" for _, key in expected.keys() - objects.keys()]
    return _summed(found)


def of_replica(objects: Objects, topics: Sequence[str], records: Iterable[Record]) -> Differences:
    """The differences between a replica of these topics (none: all topics) and the database."""
    wanted = {name: item for name, item in objects.items() if not topics or item.topic in topics}
    found = []
    for record in records:
        item = wanted.pop((record.table, record.key), None)
        if item is None:
            found.append(f"{record.key!r}, which the database does not have on these topics")
        elif (record.version, record.value) != (item.version, item.value):
            found.append(f"{record.key!r}, replica version {record.version}, database version {item.version}")
    found += [f"{key!r}, which the replica does not have" for _, key in wanted]
    return _summed(found)


def _summed(found: Sequence[str]) -> Differences:
    return Differences(len(found), found[0] if found else "")
