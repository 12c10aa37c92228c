"""Adds the windows of a follower to a lake (docs/audit.md, "Days")."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import xxhash

from pubsub_lib.audit.durable import write_whole
from pubsub_lib.audit.lake.addition import Audited, Run
from pubsub_lib.audit.lake.append import append, closed_windows, first_kept
from pubsub_lib.audit.lake.tables import day_of
from pubsub_lib.audit.settings import PARTICIPANTS, AuditSettings
from pubsub_lib.audit.stream.runs import JournalPart
from pubsub_lib.audit.stream.windows import Closed, place_of, written
from pubsub_lib.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOREVER: Final = 2**62
_STATE: Final = "append.json"


class _Appended(msgspec.Struct):
    """What is in the ``lake``: the end of each domain's closed windows, the problems of the follower until then, and
    the revisions of windows.
    """

    lake: str
    until: dict[str, int] = {}
    problems: list[str] = []
    revised: list[tuple[str, int, int]] = []
    """Domain, window and revision of the windows that have one."""


class Feed:
    """Knows the windows, and the revisions of windows, that are not in the lake yet. What could not be added is added
    by a later call, also by the next follower of the same folder. Only one thread may use a feed.
    """

    def __init__(
        self, lake: Path, out: Path, checkpoint: Path, settings: AuditSettings, spark: "SparkSession",
        keep_days: int | None,
    ) -> None:  # fmt: skip
        """``out``: the folder of the follower. Blocks while it reads the windows in both. Raises ConfigError when the
        lake cannot be read.
        """
        self.lake = lake
        self.incomplete = False
        """Whether an append reported a problem."""
        self._out, self._settings, self._spark, self._keep_days = out, settings, spark, keep_days
        self._path = checkpoint / _STATE
        self._state = self._restored()
        # The same follower after a restart replaces its own results and no others.
        self._audit = xxhash.xxh3_128_hexdigest(os.fsencode(out.resolve()))
        self._revisions = {each.key: each.revision for each in written(out)}
        days = sorted({day for _, window in self._revisions if (day := day_of(window)) is not None})
        first = first_kept(lake, days, keep_days)
        removed = {each for each in self._revisions if (day := day_of(each[1])) is not None and day < first}
        waiting = self._revisions.keys() - closed_windows(lake, [day for day in days if day >= first])
        waiting |= {(domain, window) for domain, window, _ in set(self._revised()) - set(self._state.revised)}
        self._waiting = waiting - removed

    def _restored(self) -> _Appended:
        new = _Appended(str(self.lake.resolve()))
        if not self._path.exists():
            return new
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_Appended)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{self._path} is not a follower's state ({error}); remove it") from error
        return found if found.lake == new.lake else new

    def _revised(self) -> list[tuple[str, int, int]]:
        return sorted((*key, revision) for key, revision in self._revisions.items() if revision > 1)

    def add(
        self, closed: Iterable[Closed], parts: Mapping[str, Sequence[JournalPart]], until: Mapping[str, int],
        problems: Sequence[str],
    ) -> list[str]:  # fmt: skip
        """Add these windows and all that wait. Without any window, a new day is added when one of its windows would be
        closed: it has no messages.

        ``parts``: all files of the follower; ``until``: the end of its closed windows; ``problems``: all of its
        problems. Returns sentences for the user. Blocks. Raises Spark's errors, ConfigError and OSError; then all
        windows wait, also those that are in the lake already.
        """
        from pubsub_lib.audit.lake.collect import of_windows

        self._revisions |= {each.key: each.revision for each in closed}
        self._waiting |= {each.key for each in closed}
        if not self._waiting and all(
            domain in self._state.until and day_of(end - 1) == day_of(self._state.until[domain] - 1)
            for domain, end in until.items()
        ):
            return []
        new = [each for each in problems if each not in self._state.problems]
        domains = [
            self._audited(domain, of_domain, until[domain], new)
            for domain, of_domain in sorted(parts.items())
            if domain in until
        ]
        folders = [place_of(self._out, *each, self._revisions[each]) for each in sorted(self._waiting)]
        addition = of_windows(self._spark, folders, self._audit, domains, self._settings)
        found = append(self.lake, addition, self._keep_days)
        self.incomplete |= bool(found.problems)
        state = _Appended(self._state.lake, dict(until), list(problems), self._revised())
        write_whole(self._path, msgspec.json.encode(state))
        self._state = state
        self._waiting.clear()
        return [*found.problems, *found.notes]

    def _audited(self, domain: str, parts: Sequence[JournalPart], end: int, problems: Sequence[str]) -> Audited:
        """The time since the last call, and before it the days of the windows that wait."""
        runs: dict[str, Run] = {}
        for part in parts:
            if part.side in PARTICIPANTS:
                one = Run(part.run, part.first, part.first_wall, part.last_wall)
                before = runs.get(part.run, one)
                first, begin = min(one.first, before.first), min(one.begin, before.begin)
                runs[part.run] = Run(part.run, first, begin, max(one.end, before.end))
        since = self._state.until.get(domain, min((each.begin for each in runs.values()), default=end))
        begin = min(since, end, *(window for of, window in self._waiting if of == domain))
        replicas = {part.name for part in parts if part.side == "replica"}
        return Audited(
            domain, begin, end, _FOREVER, [runs[run] for run in sorted(runs)], idle_since=since,
            incomplete=bool(problems), problems=problems, replicas=len(replicas),
        )  # fmt: skip
