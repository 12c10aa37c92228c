"""Reading from the store for a sync."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.model import SyncAnswer, Want
from pubsub_lib.errors import StoreError
from pubsub_lib.failpoints import hit
from pubsub_lib.sync.question import SyncQuestion


class SyncReader(Protocol):
    """The method of a store that a replica needs."""

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """Answer all wants in one consistent reading. Blocks; raises StoreError."""


@runtime_checkable
class ChannelReader(Protocol):
    """The methods of a reader that may ask a relay."""

    def ask(self, question: SyncQuestion) -> SyncAnswer:
        """Answer a question. Blocks; raises StoreError."""

    def close(self) -> None:
        """End a running question, which then raises, and refuse all later ones. Any thread."""


def interrupt(reader: SyncReader) -> None:
    """End a running sync, if the reader can: a query of the database ends by its own timeout."""
    if isinstance(reader, ChannelReader):
        reader.close()


def ask(reader: SyncReader, question: SyncQuestion) -> SyncAnswer:
    """Read from a store or from a sync channel. Blocks; raises StoreError."""
    return reader.ask(question) if isinstance(reader, ChannelReader) else reader.read_sync(question.wants)


def read_all(reader: SyncReader, job: StartSync) -> SyncAnswer:
    """Read what the sync wants. Blocks; raises StoreError, also for an answer of the database that lacks a topic."""
    kinds = {want.after is None for want in job.wants.values()}
    for full in kinds:
        hit("sync.during_snapshot" if full else "sync.during_delta")
    answer = ask(reader, SyncQuestion(job.wants, job.refresh, job.nonce))
    if answer.ages is not None:
        return answer  # a relay leaves out what it does not have: the tracker treats that as a failed sync
    missing = job.wants.keys() - answer.chains.keys()
    if missing:
        raise StoreError(f"the store's answer lacks {sorted(missing)[:5]}; it must contain all requested topics")
    return answer
