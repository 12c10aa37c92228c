"""Runs targets on mutated inputs, and keeps the corpora.

An input is derived from the target's name, the seed and its number only, and from the corpus; so a finding is run again
by its file. An input whose outcome was not seen before joins the corpus of the run, and mutation starts from it, too.
"""

import hashlib
import re
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from _fuzz.target import Target

_MOST_KEPT: Final = 400
"""Maximum number of inputs that one target mutates."""
MAX_FILES: Final = 40
"""Maximum number of inputs of one target in the project."""
MAX_BYTES: Final = 64_000
"""Maximum size of all of them together."""
_PARTS: Final = re.compile(r"'[^']*'|\"[^\"]*\"|b'.*'|[0-9.e+-]*[0-9][0-9.e+-]*")


class Finding(msgspec.Struct, frozen=True):
    """An input that raised an error that is not documented."""

    target: str
    data: bytes
    error: str


class Done(msgspec.Struct):
    """The result of one target."""

    target: str
    executions: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = {}
    findings: list[Finding] = []
    added: list[bytes] = []
    """Inputs with new outcomes, without those of the corpus."""


def outcome_of(target: Target, data: bytes) -> tuple[str, str]:
    """(what the target did with the input, the traceback of an error that is not documented or "")."""
    try:
        return target.run(data), ""
    except target.typed as error:
        return f"{type(error).__name__}: {_PARTS.sub('_', str(error))[:120]}", ""
    except Exception as error:  # noqa: BLE001 - a finding
        return f"{type(error).__name__} at {_where(error)}", "".join(traceback.format_exception(error))


def _where(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def read_corpus(folder: Path, target: Target) -> list[bytes]:
    """The inputs of a target that are kept in the project, in a stable order."""
    return [each.read_bytes() for each in sorted((folder / target.name).glob("*.bin"))]


def add_to_corpus(folder: Path, target: str, inputs: Iterable[bytes]) -> int:
    """Keep a sample of the inputs in the project, up to the maximum for a target; return the number of new ones."""
    kept = [each.stat().st_size for each in (folder / target).glob("*.bin")]
    number, size = len(kept), sum(kept)
    for data in sorted(inputs, key=_name_of):
        if number < MAX_FILES and size + len(data) <= MAX_BYTES:
            save(folder, target, data)
            number, size = number + 1, size + len(data)
    return number - len(kept)


def save(folder: Path, target: str, data: bytes) -> Path:
    """Write an input to a file that is named by its content."""
    path = folder / target / f"{_name_of(data)}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def fuzz(target: Target, corpus: Iterable[bytes], seed: int, go_on: Callable[[int], bool]) -> Done:
    """Run the corpus and then mutated inputs, while ``go_on(number of executions)``."""
    began = time.monotonic()
    done = Done(target.name)
    inputs = [*target.seeds(), *corpus]
    for data in inputs:
        _one(target, data, done)
    while go_on(done.executions):
        rng = Random(f"{target.name} {seed} {done.executions}")
        data = target.mutate(rng.choice(inputs), rng)
        if _one(target, data, done) and len(inputs) < _MOST_KEPT:
            inputs.append(data)
            done.added.append(data)
    done.seconds = time.monotonic() - began
    return done


def _one(target: Target, data: bytes, done: Done) -> bool:
    """Run one input; whether its outcome is new."""
    outcome, error = outcome_of(target, data)
    seen = done.outcomes.get(outcome, 0)
    done.outcomes[outcome] = seen + 1
    done.executions += 1
    if error and not seen:  # one for each place
        done.findings.append(Finding(target.name, data, error))
    return not seen and not error
