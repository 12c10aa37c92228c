"""Which journal files may be in the middle of being copied (docs/audit.md, "Following").

A copy grows: its last whole record, or its size. That a file was touched or written again with the same content is no
growth. What was seen is kept on the disk, so that a follower that runs for one round at a time knows it, too.
"""

import os
import time
from collections.abc import Callable, Container, MutableMapping
from pathlib import Path
from typing import Any, Final

import msgspec

from pubsub_lib.audit.stream.memory import recall, remember
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.appending import OPEN_SUFFIX
from pubsub_lib.journal.entries import parse

State = tuple[int, int]
"""The time of change of a file, and its size."""
Reach = tuple[int, int]
"""The number of the last whole record (-1: no whole header; of a Parquet file always 0), and the size."""
_NEVER: Final = (0, -1)


class Sight(msgspec.Struct):
    """What was seen of a file. ``changed``, ``reached``: when its state was first seen, and its greatest reach."""

    state: State
    changed: float
    reach: Reach
    most: Reach
    reached: float
    ended: bool = False
    """Whether the last record of an append file ends its run."""


class Growth:
    """What was seen of the files that are not taken yet. Only one thread may use it."""

    def __init__(self, memory: Path, patience: float, clock: Callable[[], float]) -> None:
        """``memory``: the file that keeps what was seen. It may be missing or damaged: then files are waited for again.
        ``patience`` (seconds): a file that does not grow for this time is not being copied.
        """
        self._memory = memory
        self._patience = patience
        self._clock = clock
        self._seen: dict[Path, Sight] = {}
        self._kept = recall(memory, dict[str, tuple[Reach, float]]) or {}
        for path, (most, since) in self._kept.items():
            reached = clock() - max(0.0, time.time() - since)
            self._seen[Path(path)] = Sight(_NEVER, clock(), most, most, reached)

    def is_old(self, about: os.stat_result) -> bool:
        """Whether a file was not changed for the patience."""
        return time.time() - about.st_mtime >= self._patience

    def look(self, path: Path, about: os.stat_result) -> Sight:
        """What a file has now. Blocks while it reads an append file that has changed. Raises OSError."""
        state, now = state_of(about), self._clock()
        seen = self._seen.get(path)
        if seen is None:
            seen = self._seen[path] = Sight(_NEVER, now, _NEVER, _NEVER, now)
        if seen.state != state:
            reach, seen.ended = _reach(path, about.st_size)
            seen.state, seen.changed, seen.reach = state, now, reach
            if reach > seen.most or seen.most == _NEVER:
                seen.most, seen.reached = reach, now
        return seen

    def is_quiet(self, seen: Sight) -> bool:
        """Whether a file was not changed for the patience, or has for as long had what it has now."""
        now = self._clock()
        if now - seen.changed >= self._patience:
            return True
        return seen.reach == seen.most and now - seen.reached >= self._patience

    def forget(self, path: Path) -> None:
        """All of a file is taken."""
        self._seen.pop(path, None)

    def keep_only(self, folder: Path, paths: Container[Path]) -> None:
        """Forget the files of a folder that do not exist any more."""
        keep_only(self._seen, folder, paths)

    def save(self) -> None:
        """Keep what was seen, when that changed. Raises OSError."""
        past = {path: (seen.most, self._clock() - seen.reached) for path, seen in self._seen.items()}
        same = self._kept.keys() == {str(path) for path in past}
        if same and all(self._kept[str(path)][0] == most for path, (most, _) in past.items()):
            return
        kept = {str(path): (most, time.time() - age) for path, (most, age) in past.items()}
        remember(self._memory, kept)
        self._kept = kept


def keep_only(known: MutableMapping[Path, Any], folder: Path, paths: Container[Path]) -> None:
    """Remove from ``known`` the files of a folder that are not among ``paths``."""
    for path in [each for each in known if each.parent == folder and each not in paths]:
        del known[path]


def state_of(about: os.stat_result) -> State:
    """The state of a file."""
    return about.st_mtime_ns, about.st_size


def _reach(path: Path, size: int) -> tuple[Reach, bool]:
    """What a file has, and whether it ends its run. Raises OSError."""
    if path.suffix != OPEN_SUFFIX:
        return (0, size), False
    data = path.read_bytes()
    try:
        contents = parse(data, path.name)
    except JournalError:
        return (-1, len(data)), False
    if not contents.entries:
        return (0, len(data)), False
    last = contents.entries[-1]
    return (last.number + last.records - 1, len(data)), not contents.torn and last.kind == "close"
