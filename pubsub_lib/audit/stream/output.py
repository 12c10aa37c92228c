"""Prints what a follower finds, and computes its exit code (docs/audit.md, "Following")."""

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from pathlib import Path

import msgspec

from pubsub_lib.audit.report.summary import INCOMPLETE
from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.audit.stream.findings import Findings
from pubsub_lib.audit.stream.loop import Round
from pubsub_lib.audit.stream.windows import Closed


class Output:
    """Prints closed windows and findings to stdout and problems to stderr, and computes the exit code."""

    def __init__(
        self, before: Sequence[Closed], as_json: bool, settings: AuditSettings, findings: Sequence[Findings] = ()
    ) -> None:
        """``before``, ``findings``: the results of earlier followers of the same folder."""
        self._known: dict[tuple[str, int], tuple[int, int]] = {}
        """The last revision of each window, and its exit code."""
        self._findings: dict[str, Findings] = {}
        """The last ones of each domain."""
        self.count(before, findings)
        self._json = as_json
        self._settings = settings
        self._waiting: Mapping[str, tuple[str, int | None]] = {}
        self.broken = False
        self._unread = False
        self.behind = True
        """Whether windows were written by a round that did not end."""

    def count(self, windows: Sequence[Closed], findings: Sequence[Findings] = ()) -> None:
        """Add the exit codes of windows and findings. The last revision of a window counts, and the last findings of a
        domain.
        """
        for closed in windows:
            self._known[closed.key] = closed.revision, closed.exit_code
        self._findings |= {each.domain: each for each in findings}

    def with_missed(self, closed: Sequence[Closed], there: Sequence[Closed]) -> list[Closed]:
        """The windows of a round, after those that are ``there`` and not known."""
        self.behind = False
        of_round = {(*each.key, each.revision) for each in closed}
        known = of_round | {(*key, revision) for key, (revision, _) in self._known.items()}
        return [*(each for each in there if (*each.key, each.revision) not in known), *closed]

    @property
    def _code(self) -> int:
        codes = [code for _, code in self._known.values()] + [each.exit_code for each in self._findings.values()]
        return reduce(or_, codes, 0)

    def exit_code(self, problems: Sequence[str]) -> int:
        """The exit code of all closed windows and of the last findings; incomplete when a file could not be read, or no
        window is closed.
        """
        incomplete = problems or self.broken or self._unread or not self._known
        return self._code | INCOMPLETE if incomplete else self._code

    def round(self, one: Round) -> None:
        """Print the result of a round. Raises OSError when the output cannot be written; the windows count anyway."""
        lines = []
        for closed in one.closed:
            self.count([closed])
            lines.append(self._line(closed))
        for each in one.findings:
            before = self._findings.get(each.domain)
            self.count((), [each])
            if each.counts != (before.counts if before else []):
                lines.append(self._line_of_findings(each))
        for problem in (*one.notes, *one.problems):
            self.problem(problem)
        for line in lines:
            print(line, flush=True)  # noqa: T201
        for domain, (run, until) in one.waiting.items():
            if self._waiting.get(domain, ("", None))[0] != run:
                known = "no record is known yet" if until is None or until < 0 else f"known until {_time(until)}"
                print(f"pubsub-audit: windows{_of(domain)} wait for the run {run} ({known})", file=sys.stderr)  # noqa: T201
        self._waiting = one.waiting

    def unread(self, young: Sequence[Path]) -> None:
        """Print which files the only round did not read. A later command may read them, so this is no problem of it."""
        self._unread = bool(young)
        for path in young:
            self.problem(f"{path} may still be copied and was not read; follow again, or give a shorter --patience")

    def problem(self, sentence: str) -> None:
        """Print one sentence to stderr."""
        print(f"pubsub-audit: {sentence}", file=sys.stderr, flush=True)  # noqa: T201

    def _as_json(self, result: Closed | Findings) -> str:
        return msgspec.json.encode({**msgspec.to_builtins(result), "exit_code_so_far": self._code}).decode()

    def _line_of_findings(self, one: Findings) -> str:
        if self._json:
            return self._as_json(one)
        counts = ", ".join(f"{each.count} {each.verdict} of {each.of}" for each in one.counts)
        return f"{_time(one.until)}{_of(one.domain)}: {counts or 'no findings any more'}; exit code so far {self._code}"

    def _line(self, closed: Closed) -> str:
        if self._json:
            return self._as_json(closed)
        end = _time(closed.window + self._settings.window)
        balance = msgspec.to_builtins(closed.balance)
        sums = " + ".join(f"{number} {name}" for name, number in balance.items() if name != "expected")
        wrong = f"{closed.anomalies} anomal{'y' if closed.anomalies == 1 else 'ies'}"
        revised = f" (revision {closed.revision})" if closed.revision > 1 else ""
        return (
            f"{_time(closed.window)} to {end}{_of(closed.domain)}{revised}: {balance['expected']} expected = {sums}; "
            f"{wrong}; exit code so far {self._code}"
        )


def _of(domain: str) -> str:
    return f" of {domain}" if domain else ""


def _time(micros: int) -> str:
    return f"{datetime.fromtimestamp(micros // SECOND, UTC):%Y-%m-%d %H:%M:%S}.{micros % SECOND // 1000:03d}"
