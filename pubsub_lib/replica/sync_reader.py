"""Reading from the store for a sync."""

from collections.abc import Mapping
from typing import Protocol

from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.model import SyncAnswer, Want
from pubsub_lib.errors import StoreError
from pubsub_lib.failpoints import hit


class SyncReader(Protocol):
    """The method of a store that a replica needs."""

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """Answer all wants in one consistent reading. Blocks; raises StoreError."""


def read_all(reader: SyncReader, job: StartSync) -> SyncAnswer:
    """Read what the sync wants. Blocks; raises StoreError, also for an answer that lacks a topic."""
    kinds = {want.after is None for want in job.wants.values()}
    for full in kinds:
        hit("sync.during_snapshot" if full else "sync.during_delta")
    answer = reader.read_sync(job.wants)
    missing = job.wants.keys() - answer.chains.keys()
    if missing:
        raise StoreError(f"the store's answer lacks {sorted(missing)[:5]}; it must contain all requested topics")
    return answer
