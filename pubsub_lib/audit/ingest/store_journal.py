"""The store's side of an audit: its changelog and its objects, written as a journal of side ``store``."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pubsub_lib.audit.settings import MEASURED
from pubsub_lib.core.model import ALL, Link
from pubsub_lib.errors import JournalError
from pubsub_lib.journal import Journal, JournalSettings
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store
from pubsub_lib.store.inspection import Inspection

_TOGETHER: Final = 200  # links in one entry
_OBJECT: Final = 100  # bytes of an object in the journal


class StoreSide:
    """The database of an audit: a context manager. It is only read: a standby is enough."""

    def __init__(self, database: Settings | str) -> None:
        """Open the store. Raises ConfigError and StoreError."""
        self._store = Store(database, read_only=True)
        self.lacking = ""
        """The problem of an empty store, once its journal is written."""

    def __enter__(self) -> "StoreSide":
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def expected_size(self) -> int:
        """About the bytes of the objects in the journal, before they are read. Blocks for one query. Raises StoreError
        when the store cannot be read.
        """
        return _OBJECT * sum(head.count for head in self._store.read_heads({ALL}).topics.values())

    def write(self, folder: Path) -> Path:
        """Write the store's journal into ``folder``, and close the store. Returns the folder. Blocks and raises as
        :func:`journal_of_store`.
        """
        with self._store:
            if not journal_of_store(self._store, folder):
                self.lacking = (
                    f"{self._store!r} has neither objects nor a changelog, but the journals have messages; give "
                    "--store their database"
                )
        return folder


def journal_of_store(store: Store, folder: Path) -> bool:
    """Write the present content of the store into ``folder``: the objects of every topic, then the retained changelog,
    both of one snapshot, whatever is written to the store meanwhile. Returns whether the store has any.

    Blocks while both are read; the objects are held in memory. Raises StoreError, and JournalError when the folder
    cannot be written, because no record may be lost here.
    """
    store_id = store.read_heads(()).store_id
    return store.inspect.at_once(lambda at: _whole_journal(at, folder, store_id))


def _whole_journal(store: Inspection, folder: Path, store_id: bytes) -> bool:
    """Nothing is left in the folder when the store cannot be read: the snapshot may be read again."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryDirectory(prefix=".", dir=folder) as scratch:
            found = _written(store, Path(scratch), store_id)
            for file in Path(scratch).iterdir():
                file.rename(folder / file.name)
    except OSError as error:
        raise _unwritable(folder, error.strerror or error) from error
    return found


def _written(store: Inspection, folder: Path, store_id: bytes) -> bool:
    journal = Journal(JournalSettings(str(folder), to_parquet=False), "store", "store")
    journal.of_store(store_id)
    try:
        objects = _objects(store, journal)
        links = _links(store, journal)
    finally:
        journal.close()
    if journal.counters()["lost"]:
        raise _unwritable(folder.parent, journal.error or "records were lost")
    return objects or links


def _unwritable(folder: Path, why: object) -> JournalError:
    return JournalError(f"the store's journal cannot be written to {folder} ({why}); free disk space there")


def _objects(store: Inspection, journal: Journal) -> bool:
    everything = store.contents()
    for number, (topic, snapshot) in enumerate(sorted(everything.topics.items()), 1):
        # The position is the store's head: a topic with an older point has not changed since.
        journal.listing(number, topic, everything.head, list(snapshot.records))
    return bool(everything.topics)


def _links(store: Inspection, journal: Journal) -> bool:
    oldest = store.oldest()
    if oldest is None:
        return False
    together: list[Link] = []
    last = oldest.link.point
    for link in store.every_link():
        together.append(link)
        last = max(last, link.point, key=lambda point: point.position)
        if len(together) == _TOGETHER:
            journal.links("committed", together)
            together = []
    journal.links("committed", together)
    clock = store.clock()
    journal.note(
        "changelog", prev=oldest.link.tx_prev, point=last,
        cause=clock.origin if clock else "", peer=MEASURED if clock else "", count=clock.ahead if clock else 0,
    )  # fmt: skip
    return True
