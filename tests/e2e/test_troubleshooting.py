"""docs/troubleshooting.md quotes the code: its texts are those of errors, log lines and reasons; its commands, metrics,
alerts and options exist. Every alert and every reason of ``/ready`` has an entry. The texts and commands of two other
pages for operators are checked in the same way.
"""

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pubsub_lib.audit import command_line
from pubsub_lib.cli.app import PubsubDb
from pubsub_lib.service import main as service

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
OTHERS = "\n".join((ROOT / "docs" / name).read_text() for name in ("database-rights.md", "upgrading.md"))
RULES = ROOT / "etc" / "prometheus-rules.yml"
MEASURED = "\n".join((ROOT / "etc" / name).read_text() for name in ("prometheus-rules.yml", "grafana-dashboard.json"))
"""test_monitoring.py compares the metrics of both files with those of real processes."""
VALUE = "\0"
"""In a template: a value that the program fills in."""
LEAST = 12
"""Letters of a quotation; a shorter one could be found anywhere."""


def template(node: ast.AST) -> str:
    """A text of the source, with its values replaced; "" for anything else."""
    if isinstance(node, ast.Constant):
        return re.sub(r"%(?:\.\d)?[sdrf]", VALUE, node.value) if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else VALUE for each in node.values)
    return ""


def templates(tree: ast.AST) -> Iterator[str]:
    """The texts of a module or function, without docstrings and other texts that no statement uses."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if not isinstance(node, ast.Expr | ast.JoinedStr) and (found := template(child)):
                yield found


@functools.cache
def texts() -> tuple[str, ...]:
    """The texts of the library and its drivers."""
    files = [path for folder in ("pubsub_lib", "drivers") for path in sorted((ROOT / folder).rglob("*.py"))]
    return tuple({text for path in files for text in templates(ast.parse(path.read_text())) if len(text) >= LEAST})


def pattern(quoted: str) -> re.Pattern[str]:
    """A quotation: ``…`` stands for values, and for parts that are left out. A text may lack the part before it."""
    return re.compile(".*".join(map(re.escape, re.sub("^… ", "…", quoted).split("…"))), re.DOTALL)


def lines(language: str, page: str = PAGE) -> list[str]:
    """The lines of a page's blocks of code."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def quoted() -> list[str]:
    """The texts that the page quotes, without the names of the programs that print them."""
    return lines("text")


def spans(page: str = PAGE) -> list[str]:
    """A page's inline code."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(each.split()) for each in re.findall(r"`([^`]+)`", prose)]


def commands() -> list[str]:
    """The commands of this project on the pages, inline and in blocks."""
    every = [*spans(PAGE), *spans(OTHERS), *lines("bash", PAGE), *lines("bash", OTHERS)]
    return sorted({each for each in every if each.startswith(("pubsub-db ", "publisher-service ", "pubsub-audit "))})


@pytest.mark.parametrize("line", sorted({*quoted(), *lines("text", OTHERS)}))
def test_text_of_the_page_is_in_the_source(line: str) -> None:
    assert len(re.sub("[^a-z]", "", line)) >= LEAST
    wanted = pattern(line)
    assert any(wanted.fullmatch(text) for text in texts()), "quote the text of the source, with … for its values"


def test_texts_are_not_found_in_docstrings_and_with_other_words() -> None:
    source = 'def f(x):\n    """The file is damaged"""\n    g(f"the file {x!r} of {x} is " "damaged", "at line %.1f")'
    tree = ast.parse(source)
    found = list(templates(tree))
    assert found == [f"the file {VALUE} of {VALUE} is damaged", f"at line {VALUE}"]
    assert pattern("the file … is damaged").fullmatch(found[0])
    assert pattern("… of … is damaged").fullmatch(found[0])
    for wrong in ("the file … is broken", "file … is damaged", "the file … of … is", "is damaged … the file …"):
        assert not pattern(wrong).fullmatch(found[0]), wrong


def parse(command: str) -> None:
    """Parse a command as its program does. Raises SystemExit for an invalid one, ValueError for an unknown one."""
    program, *words = shlex.split(command)
    try:
        if program == "pubsub-db":
            app = PubsubDb()
            _, rest = app.parser.parse_known_args(words)
            kind, name, rest = app.command_manager.find_command(rest)
            kind(app, app.options, cmd_name=name).get_parser(name).parse_args(rest)
        elif program == "publisher-service":
            service._parser().parse_args(words)
        else:
            command_line.parser().parse_args(words)
    except SystemExit as ended:
        if ended.code != 0:  # 0: of --version
            raise


@pytest.mark.parametrize("command", commands())
def test_command_of_the_page_exists(command: str) -> None:
    parse(command)


@pytest.mark.parametrize(
    "command", ["pubsub-db verify", "pubsub-db heal t", "pubsub-db ls t --all", "publisher-service --repair"]
)
def test_command_that_does_not_exist_is_found(command: str) -> None:
    with pytest.raises((SystemExit, ValueError)):
        parse(command)


def test_metrics_of_the_page_exist() -> None:
    named = {each for span in spans() for each in re.findall(r"\bpubsub_(?:replica|service)_\w+", span)}
    assert len(named) >= 10
    assert {each for each in named if not re.search(rf"\b{each}\b", MEASURED)} == set()


def test_each_alert_has_an_entry_and_no_other_one_is_named() -> None:
    rules = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    named = {each for span in spans() for each in re.findall(r"\bP(?:ubsub|ublisher)[A-Z]\w+", span)}
    assert named == rules


@pytest.mark.parametrize(
    ("module", "function"),
    [("service/service.py", "problems"), ("service/health.py", "problems"), ("service/health.py", "entry_problems"),
     ("service/health.py", "sending_problems"), ("service/health.py", "hanging"),
     ("service/name_conflicts.py", "problems"), ("relay/runtime.py", "problems"),
     ("replica/status.py", "problems"), ("replica/status.py", "unfit")],
)  # fmt: skip
def test_each_reason_of_ready_has_an_entry(module: str, function: str) -> None:
    tree = ast.parse((ROOT / "pubsub_lib" / module).read_text())
    (found,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    reasons = [each for each in templates(found) if len(each.replace(VALUE, "")) >= LEAST and " " in each.strip("; ")]
    reasons = [each for each in reasons if each not in (ast.get_docstring(found), "; the last sync failed: \0")]
    assert reasons
    assert [each for each in reasons if not any(pattern(line).fullmatch(each) for line in quoted())] == []


def test_options_and_names_of_the_page_exist() -> None:
    """Words such as ``max_idle_time`` and ``publisher_port`` are in the source, in the samples or in the rules."""
    files = [*(ROOT / "pubsub_lib").rglob("*"), *(ROOT / "drivers").rglob("*.py"), RULES]
    known = {
        word
        for path in files
        if path.suffix in (".py", ".sample", ".yml")
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))
    }
    named = {word for span in spans() for word in re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", span)}
    named = {each for each in named if not each.startswith(("pubsub_replica_", "pubsub_service_"))}
    assert len(named) >= 20
    assert named - known == set()
