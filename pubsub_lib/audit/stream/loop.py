"""A follower: each round takes in journals, closes windows, and writes their verdicts (docs/audit.md, "Following").

After an error or a crash the next round repeats the unfinished steps: files in the spool are complete or do not exist,
Spark repeats the stream's batches, and windows are recognized by their names. The state is saved before the windows are
written, with what was known then, and again when they are closed.
"""

import os
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

import msgspec

from pubsub_lib.audit.durable import write_whole
from pubsub_lib.audit.ingest.expected import Expected
from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.audit.stream.findings import Findings
from pubsub_lib.audit.stream.intake import Coming, Intake, Look
from pubsub_lib.audit.stream.judge import Judge, Judged
from pubsub_lib.audit.stream.part_clocks import every_part, with_right_times
from pubsub_lib.audit.stream.runs import (
    JournalPart,
    Known,
    closed_before,
    copied_again,
    expired,
    followed,
    frontier,
    known,
    participants,
    too_late,
)
from pubsub_lib.audit.stream.spool import taken_of
from pubsub_lib.audit.stream.tables import Stream
from pubsub_lib.audit.stream.windows import Closed, Span
from pubsub_lib.errors import ConfigError
from pubsub_lib.journal.appending import claim

_STATE: Final = "state.json"


class State(msgspec.Struct):
    """The persistent state of a follower. ``closed``: the end of the last closed window of each domain; ``closing``:
    that of the last window which a round, finished or not, may have written.
    """

    settings: AuditSettings
    closed: dict[str, int] = {}
    seen: dict[str, set[str]] = {}
    """Per domain the files (stems) that existed when windows were closed, or were reported as too late."""
    problems: list[str] = []
    expired: dict[str, set[str]] = {}
    """Per domain the runs that had expired when windows were closed."""
    closing: dict[str, int] = {}
    unreported: list[str] = []
    """Problems that no finished round has returned."""
    missing: dict[str, dict[str, str]] = {}
    """Per domain and kind the problems of the last closing (:class:`~pubsub_lib.audit.report.summary.Problem`)."""
    store: bool = False
    """Whether windows were closed with the store."""


class Round(msgspec.Struct, frozen=True):
    """The result of one round. ``waiting``: per domain the run that keeps the next windows open, and the time until
    which that run is known. ``notes``: as of :meth:`~pubsub_lib.audit.stream.tables.Stream.noted`. ``young``: as of
    :class:`~pubsub_lib.audit.stream.intake.Look`.
    """

    closed: Sequence[Closed]
    problems: Sequence[str]
    waiting: Mapping[str, tuple[str, int | None]]
    notes: Sequence[str] = ()
    young: Sequence[Path] = ()
    findings: Sequence[Findings] = ()


class AuditLoop:
    """Owns the checkpoint folder until ``close``. Only one thread may use it."""

    def __init__(
        self, stream: Stream, intake: Intake, judge: Judge, settings: AuditSettings, checkpoint: Path,
        now: Callable[[], int], expected: Sequence[tuple[str, str]] = (), *, store: bool = False,
    ) -> None:  # fmt: skip
        """``now``: the wall clock in microseconds. ``expected``: side and name of each participant that must have a
        journal. ``store``: whether the judge reads the store. Raises ConfigError when another follower uses this
        checkpoint, or when it was made with other settings, or with the store and is now used without it.
        """
        self._stream, self._intake, self._judge = stream, intake, judge
        self._settings = settings
        self._expected = Expected(expected)
        self._store = store
        self._now = now
        self._path = checkpoint / _STATE
        self._lock = _locked(checkpoint)
        self._state = self._restored()
        self._advanced = False
        self._found: list[str] = []
        """Problems of the intake, which it reports once, that are not in the state yet."""
        self._parts: dict[str, Sequence[JournalPart]] = {}

    def _restored(self) -> State:
        if not self._path.exists():
            return State(self._settings)
        try:
            state = msgspec.json.decode(self._path.read_bytes(), type=State)
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{self._path} is not a follower's state ({error}); restore it from a backup, or name another "
                "--checkpoint and another --out"
            ) from error
        if state.settings != self._settings:
            raise ConfigError(
                f"{self._path.parent} was made with other settings ({state.settings}); use these settings, or name "
                "another --checkpoint and another --out"
            )
        if state.store and not self._store:  # its windows would be judged again, without the commits
            raise ConfigError(f"{self._path.parent} was made with --store; give it again, or name another --out")
        return state

    def close(self) -> None:
        """Release the checkpoint. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def problems(self) -> Sequence[str]:
        """All reported problems, also those of earlier followers with the same checkpoint; of missing evidence, and of
        expected participants, only those that are true by the journals of the last closing, or of the last round.
        """
        missing = [sentence for of_domain in self._state.missing.values() for sentence in of_domain.values()]
        return [*self._state.problems, *missing, *self._expected.absent]

    @property
    def parts(self) -> Mapping[str, Sequence[JournalPart]]:
        """Per domain the parts of the files that the last round knew."""
        return self._parts

    @property
    def closed_until(self) -> Mapping[str, int]:
        """The end of the last closed window of each domain that has one."""
        return self._state.closed

    def round(self, *, last: bool = False) -> Round:
        """Take in new files, and write the windows that are closed now. ``last``: no new run is expected, so all
        windows are closed when every run is over. Blocks until Spark is done. Raises Spark's errors, and OSError.
        """
        look = self._take_in()
        parts = self._stream.parts(look.given_up)
        self._advanced = True
        self._expected.look(participants(parts.good, look.coming))
        self._parts = dict(parts.good)
        problems = [*self._found, *parts.problems]
        files: dict[str, Sequence[Path]] = {}
        spans: dict[str, Span] = {}
        waiting: dict[str, tuple[str, int | None]] = {}
        without: dict[str, set[str]] = {}
        for domain, of_domain in sorted(parts.good.items()):
            given_up = look.given_up.get(domain, frozenset()) | parts.unusable.get(domain, set())
            right = with_right_times(known(of_domain, look.coming.get(domain, {}), given_up), self._settings)
            runs = right.runs
            self._parts[domain] = every_part(runs.values(), of_domain)
            problems += self._late(domain, self._parts[domain])
            gone = expired(runs, self._settings)
            problems += self._expired(domain, runs, gone, copied_again(of_domain, look.coming.get(domain, {})))
            end, whole, held = self._closing(self._parts[domain], runs, last=last)
            if right.undecided and end is not None:
                end, held = None, (right.undecided, None)
            if held is not None:
                waiting[domain] = held
            begin = self._state.closed.get(domain)
            if end is not None and (begin is None or end > begin):
                spans[domain] = Span(begin, end, _begun(look.coming.get(domain, {})))
                without[domain] = set(gone)
                files[domain], found = self._stream.files(domain, whole)
                problems += found
        self._begin(spans, without, parts.good, problems)
        judged = self._judge(files, spans) if spans else Judged(())
        new = [*self._finish(spans, judged), *(self._expected.unreported() if spans or last else ())]
        return Round(judged.closed, new, waiting, self._stream.noted(), look.young, judged.findings)

    def _take_in(self) -> Look:
        """Take in new files, and read them. When that fails, the next round reads them."""
        advanced, self._advanced = self._advanced, False
        look = self._intake.look()
        self._found += look.problems
        self._intake.save()
        if look.arrived or not advanced:
            self._stream.advance()
        return look

    def _closing(
        self, parts: Sequence[JournalPart], runs: Mapping[str, Known], *, last: bool
    ) -> tuple[int | None, list[JournalPart], tuple[str, int | None] | None]:
        until = frontier(runs, self._settings)
        now = self._now()
        if last:
            # Later than the last record.
            reach = self._settings.reach + self._settings.window
            now = max((each.last_wall for each in parts), default=0) + reach
        end = closed_before(until, now, self._settings)
        whole = [part for each in runs.values() for part in each.parts]
        if end is not None and all(end <= part.first_wall for part in whole):
            end = None  # no record yet: once closed, such windows would make the first files of other hosts too late
        held = (until.of, until.until) if until.of else None
        return end, whole, held

    def _late(self, domain: str, parts: Sequence[JournalPart]) -> list[str]:
        """The problems of files that arrived after the windows of their records were closed."""
        end = self._state.closing.get(domain, self._state.closed.get(domain))
        seen = self._state.seen.get(domain, set())
        of = f" of {domain}" if domain else ""
        return [
            f"{taken_of(part.stem)[0]} arrived after windows{of} of its records were closed; audit the journals again "
            "with run"
            for part in parts
            if part.stem not in seen and too_late(part, end, self._settings)
        ]

    def _expired(
        self, domain: str, runs: Mapping[str, Known], gone: Mapping[str, Known], copied: Set[str]
    ) -> list[str]:  # fmt: skip
        """The problems of expired runs: without a successor, and those that are not expired any more although windows
        were closed without them. Of runs that are only ``copied`` again this is not known yet.
        """
        of = f" of {domain}" if domain else ""
        silence = self._settings.silence / SECOND
        found = [
            f"the run {run} of the {each.who[0]} {each.who[1]} has not ended, and wrote nothing for {silence:g} "
            f"seconds; windows{of} close without it, and what it received or sent since its last record is unknown"
            for run, each in gone.items()
            if not followed(run, runs, self._settings)
        ]
        back = self._state.expired.get(domain, set()) - gone.keys() - copied
        return found + [
            f"the run {run} goes on, or another took its place, after windows{of} were closed without it; audit the "
            "journals again with run"
            for run in sorted(back)
        ]

    def _begin(
        self, spans: Mapping[str, Span], without: Mapping[str, set[str]], parts: Mapping[str, Sequence[JournalPart]],
        problems: Sequence[str],
    ) -> None:  # fmt: skip
        """Save what is known before the windows are written."""
        state = self._state
        earlier = {*state.problems, *state.unreported}
        new = [each for each in dict.fromkeys(problems) if each not in earlier]
        if spans or new:
            self._save(
                unreported=[*state.unreported, *new],
                closing={of: max(span.end, state.closing.get(of, span.end)) for of, span in spans.items()},
                expired={of: state.expired.get(of, set()) | runs for of, runs in without.items()},
                seen={of: {each.stem for each in of_domain} for of, of_domain in parts.items()},
                store=self._store if spans else state.store,
            )
        self._found.clear()

    def _finish(self, spans: Mapping[str, Span], judged: Judged) -> Sequence[str]:
        """Save that the windows are written. Returns the new problems; of missing evidence those of a new kind, because
        their numbers grow with the journals.
        """
        new = self._state.unreported
        missing: dict[str, dict[str, str]] = {domain: {} for domain in spans}
        for each in judged.problems:
            missing[each.domain][each.kind] = each.sentence
        before = self._state.missing
        kinds = [each for each in judged.problems if each.kind not in before.get(each.domain, {})]
        if spans or new:
            problems = [*self._state.problems, *new]
            closed = {of: span.end for of, span in spans.items()}
            self._save(problems=problems, unreported=[], closed=closed, missing=missing)
        return [*new, *(each.sentence for each in kinds)]

    def _save(self, **changes: Any) -> None:
        """Replace the state, on the disk and then here. Of a change by domain the other domains stay."""
        for name, change in changes.items():
            if isinstance(change, dict):
                changes[name] = getattr(self._state, name) | change
        state = msgspec.structs.replace(self._state, **changes)
        write_whole(self._path, msgspec.json.encode(state))
        self._state = state


def _begun(coming: Mapping[str, Coming]) -> frozenset[tuple[str, str]]:
    """Side and name of each participant with an unfinished file."""
    return frozenset((each.begun.side, each.begun.name) for each in coming.values() if each.begun is not None)


def _locked(checkpoint: Path) -> int:
    fd = claim(checkpoint)
    if fd is None:
        raise ConfigError(f"{checkpoint} is used by another follower; stop that one, or name another --checkpoint")
    return fd
