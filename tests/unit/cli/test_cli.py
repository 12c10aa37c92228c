"""``pubsub-db`` uses cliff and argparse through documented names only."""

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cliff.columns import FormattableColumn

from pubsub_lib import cli
from pubsub_lib.cli.output import List

# What https://docs.openstack.org/cliff/latest/ names: the class reference, the introduction, the base of formatters.
DOCUMENTED = {
    "cliff.app": {"App"},
    "cliff.columns": {"FormattableColumn"},
    "cliff.command": {"Command"},
    "cliff.commandmanager": {"CommandManager"},
    "cliff.formatters.base": {"Formatter", "ListFormatter", "SingleFormatter"},
    "cliff.hooks": {"CommandHook"},
    "cliff.interactive": {"InteractiveApp"},
    "cliff.lister": {"Lister"},
    "cliff.show": {"ShowOne"},
}
STREAMS = {"stdin", "stdout", "stderr"}
FOR_TESTS = {"make_test_instance"}  # of stevedore

SOURCES = sorted(Path(cli.__path__[0]).rglob("*.py"))
TESTS = sorted(Path(__file__).parent.rglob("*.py"))


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_")


def own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def undocumented_imports(source: str) -> Iterator[str]:
    """Names that a source imports from cliff, and cliff's documentation does not contain."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.partition(".")[0] == "cliff")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "cliff":
            names = {each.name for each in node.names} - DOCUMENTED.get(node.module or "", set())
            yield from (f"{node.module}.{each}" for each in sorted(names))


def foreign_privates(source: str) -> Iterator[str]:
    """Private names that a source takes from objects and modules of others, and streams that it replaces."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names = (node.module or "").split(".") + [each.name for each in node.names]
            yield from (f"import of {each}" for each in names if private(each))
        elif isinstance(node, ast.Attribute):
            if (private(node.attr) and not own(node.value)) or node.attr in FOR_TESTS:
                yield f"{ast.unparse(node)}"
            elif node.attr in STREAMS and not isinstance(node.ctx, ast.Load):
                yield f"{ast.unparse(node)} = …"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant) and private(str(name.value)):
                yield ast.unparse(node)


def private_names(kind: type) -> set[str]:
    """The private names that a class defines, or uses through ``self`` or ``cls``."""
    names = set(vars(kind))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):  # a class in C
        tree = ast.Module([], [])
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and own(node.value)}
    return {each for each in names if private(each)}


def shared_privates(kind: type) -> set[str]:
    """The private names of a class that belong to a base class of another package."""
    package = kind.__module__.partition(".")[0]
    bases = [each for each in kind.__mro__ if each.__module__.partition(".")[0] not in (package, "builtins")]
    theirs = {name for each in bases if each.__module__ not in ("abc", "typing") for name in private_names(each)}
    return private_names(kind) & theirs - {"_abc_impl"}  # of each abstract class


def modules() -> list[ModuleType]:
    found = pkgutil.walk_packages(cli.__path__, f"{cli.__name__}.")
    return [importlib.import_module(each.name) for each in found if not each.name.endswith("__main__")]


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=lambda path: path.name)
def test_imports_from_cliff_are_documented(path: Path) -> None:
    assert list(undocumented_imports(path.read_text())) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_commands_use_no_private_name_of_another_object(path: Path) -> None:
    assert list(foreign_privates(path.read_text())) == []


def test_commands_use_no_private_name_of_a_base_class() -> None:
    kinds = [each for module in modules() for each in vars(module).values() if isinstance(each, type)]
    ours = {each for each in kinds if each.__module__.startswith(cli.__name__)}
    assert len(ours) > 60
    assert {each.__qualname__: names for each in ours if (names := shared_privates(each))} == {}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from cliff.help import HelpAction", "cliff.help.HelpAction"),
        ("from cliff.formatters.table import TableFormatter", "cliff.formatters.table.TableFormatter"),
        ("from cliff import help", "cliff.help"),
        ("from cliff.command import Command, inspect", "cliff.command.inspect"),
        ("import cliff._argparse", "cliff._argparse"),
        ("from cliff.lister import Lister", ""),
        ("import cliffdemo", ""),
    ],
)
def test_an_undocumented_import_is_found(line: str, found: str) -> None:
    assert list(undocumented_imports(line)) == ([found] if found else [])


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("parser._actions", "parser._actions"),
        ("self.parser._get_optional_actions()", "self.parser._get_optional_actions"),
        ("argparse._SubParsersAction", "argparse._SubParsersAction"),
        ("from argparse import _HelpAction", "import of _HelpAction"),
        ("from autopage._x import pager", "import of _x"),
        ("getattr(command, '_formatter_group')", "getattr(command, '_formatter_group')"),
        ("ExtensionManager.make_test_instance([])", "ExtensionManager.make_test_instance"),
        ("before, self.stdout = self.stdout, out", "self.stdout = …"),
        ("self._handler.close()", ""),
        ("self.__class__.__name__ + other.__doc__", ""),
        ("sys.stdout.write('')", ""),
    ],
)
def test_a_private_use_is_found(line: str, found: str) -> None:
    assert list(foreign_privates(line)) == ([found] if found else [])


def test_a_private_name_of_a_base_class_is_found() -> None:
    class Reading(FormattableColumn[Any]):
        def human_readable(self) -> str:
            return str(self._value)

    class Overriding(List):
        def _load_hooks(self) -> None:
            self._own = 1

    assert shared_privates(Reading) == {"_value"}
    assert shared_privates(Overriding) == {"_load_hooks"}
