"""The tables of mutants in ``tests/mutants``, and the check that each mutant fits the code."""

import ast
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

FOLDER = Path("tests/mutants")
MARKERS = ("", "postgresql", "mariadb")
NOT_QUICK = ("slow", "long")
"""Markers of tests that take more than ten seconds, and of those that the quick part leaves out."""


class Mutant(msgspec.Struct, frozen=True):
    """A small plausible error in product code, as a patch of one place, and the quick tests that must catch it."""

    name: str
    """Unique in all tables; a Python identifier."""
    path: str
    """The file, relative to the project's folder."""
    before: str
    """Text that occurs exactly once in the file."""
    after: str
    """The text that replaces ``before``."""
    tests: Sequence[str]
    """Node ids of pytest. At least one of the tests must fail on the mutant; none may be marked slow or long."""
    marker: str = ""
    """The server that the tests need: ``postgresql``, ``mariadb``, or none."""
    wrong: str = ""
    """The effect of the error, in one sentence."""

    def applied(self, source: str) -> str:
        """The source with the error. Raises ValueError if ``before`` does not occur exactly once."""
        found = source.count(self.before)
        if found != 1:
            raise ValueError(f"{self.name}: 'before' occurs {found} times in {self.path}, not once; adapt the table")
        return source.replace(self.before, self.after)


def tables(root: Path) -> dict[str, Sequence[Mutant]]:
    """Area → its mutants: each ``tests/mutants/AREA.py`` names them in ``MUTANTS``."""
    return {path.stem: table(path) for path in sorted((root / FOLDER).glob("[!_]*.py"))}


def table(path: Path) -> Sequence[Mutant]:
    """The mutants of one file."""
    spec = importlib.util.spec_from_file_location(f"mutants_of_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    mutants: Sequence[Mutant] = module.MUTANTS
    return mutants


def defects(root: Path, areas: Mapping[str, Sequence[Mutant]]) -> list[str]:
    """A sentence for each entry of the tables that does not fit the source; empty when all entries fit."""
    found: list[str] = []
    names: set[str] = set()
    for mutants in areas.values():
        for mutant in mutants:
            if mutant.name in names:
                found.append(f"{mutant.name}: two mutants have this name")
            names.add(mutant.name)
            found += [f"{mutant.name}: {each}" for each in _defects(root, mutant)]
    return found


def _defects(root: Path, mutant: Mutant) -> Iterator[str]:
    if not mutant.name.isidentifier():
        yield "the name is not an identifier"
    if mutant.marker not in MARKERS:
        yield f"the marker {mutant.marker!r} is none of {', '.join(MARKERS[1:])}"
    yield from _source_defects(root, mutant)
    if not mutant.tests:
        yield "no test is named"
    for test in mutant.tests:
        yield from _test_defects(root, test)


def _source_defects(root: Path, mutant: Mutant) -> Iterator[str]:
    path = root / mutant.path
    if not path.is_file():
        yield f"there is no file {mutant.path}"
        return
    try:
        ast.parse(mutant.applied(path.read_text(encoding="utf-8")))
    except SyntaxError as error:
        yield f"the mutant is not valid Python: {error}"
    except ValueError as error:
        yield str(error).removeprefix(f"{mutant.name}: ")


def _test_defects(root: Path, test: str) -> Iterator[str]:
    path, _, inside = test.partition("::")
    if not inside:
        yield f"{test} names a whole file; name the tests"
        return
    if not (root / path).is_file():
        yield f"there is no file {path}"
        return
    node: ast.AST = ast.parse((root / path).read_text(encoding="utf-8"))
    for name in inside.partition("[")[0].split("::"):
        if _mark_of(node):
            break
        within = [each for each in ast.iter_child_nodes(node) if getattr(each, "name", None) == name]
        if not within:
            yield f"there is no test {test}"
            return
        node = within[-1]
    if mark := _mark_of(node):
        yield f"{test} is marked {mark}; a mutant must be caught by a quick test"


def _mark_of(node: ast.AST) -> str:
    """Which of ``NOT_QUICK`` a decorator, or a module's or class's ``pytestmark``, contains; "" for none."""
    marks: list[ast.expr] = list(getattr(node, "decorator_list", ()))
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        marks += [
            each.value
            for each in ast.iter_child_nodes(node)
            if isinstance(each, ast.Assign) and any(ast.unparse(to) == "pytestmark" for to in each.targets)
        ]
    found = {ast.unparse(each) for mark in marks for each in ast.walk(mark)}
    return next((name for name in NOT_QUICK if f"pytest.mark.{name}" in found), "")
