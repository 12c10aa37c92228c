"""Object by object: the database against the files, and each replica against the database."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from _routes.data import Identity, State
from _routes.plan import PROGRESS, SESSION
from pubsub_lib.core.model import Record
from pubsub_lib.store.verbs import Stored

Objects = Mapping[Identity, Stored]

Sessions = Mapping[str, Collection[Mapping[str, object]]]
"""Per topic what its hot key may hold in the end: what the last transaction on the topic of any writer wrote."""


class Differences(msgspec.Struct, frozen=True):
    """How many objects are missing, too many or different, and one of them in words."""

    number: int
    example: str

    def __str__(self) -> str:
        """Both, for a sentence."""
        return f"{self.number:,} objects, for example {self.example}"


def snapshot(objects: Iterable[Stored]) -> dict[Identity, Stored]:
    """One consistent reading, by identity."""
    return {(item.table, item.key): item for item in objects}


def of_files(objects: Objects, expected: State, progress: Mapping[str, int], sessions: Sessions) -> Differences:
    """What of the database is not as the files and the writers' shares say."""
    found = [f"{topic}, whose {SESSION} is missing" for topic in sessions if (SESSION, topic) not in objects]
    routes = 0
    for identity, item in objects.items():
        if item.table == PROGRESS:
            if msgspec.json.decode(item.value) != {"done": progress.get(item.key)}:
                found.append(f"{item.key}, which stands at {item.value.decode()}")
            continue
        if item.table == SESSION:
            if msgspec.json.decode(item.value) not in sessions.get(item.key, ()) or item.topic != item.key:
                found.append(f"{item.key}, whose {SESSION} stands at {item.value.decode()}")
            continue
        routes += 1
        if expected.get(identity) != (item.topic, item.value):
            found.append(f"{item.key!r}, which is not as in the files")
    missing = len(expected) - routes
    if missing > 0:
        found += [f"{key!r}, which is missing" for _, key in expected.keys() - objects.keys()]
    return _summed(found)


def of_replica(objects: Objects, topics: Sequence[str], records: Iterable[Record]) -> Differences:
    """What of a replica of these topics (none: of everything) is not as in the database."""
    wanted = {name: item for name, item in objects.items() if not topics or item.topic in topics}
    found = []
    for record in records:
        item = wanted.pop((record.table, record.key), None)
        if item is None:
            found.append(f"{record.key!r}, which the database does not have there")
        elif (record.version, record.value) != (item.version, item.value):
            found.append(f"{record.key!r}, here in version {record.version}, there in {item.version}")
    found += [f"{key!r}, which the replica does not have" for _, key in wanted]
    return _summed(found)


def _summed(found: Sequence[str]) -> Differences:
    return Differences(len(found), found[0] if found else "")
