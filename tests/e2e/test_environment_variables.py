"""The table of environment variables in docs/operating.md is complete: it has what the code and the containers read."""

import ast
import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operating.md"
READS = re.compile(r"\benviron\b|\bgetenv\b")
NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
NO_VARIABLES = {"NO_CODEGEN"}
"""Other words of capitals in modules that read the environment."""
OF_PACKAGES = {
    "CLIFF_FIT_WIDTH": "cliff.formatters.table",
    "CLIFF_MAX_TERM_WIDTH": "cliff.formatters.table",
    "SPARK_HOME": "pyspark.find_spark_home",
    "TMPDIR": "tempfile",
}
"""Variables of the table that only another package reads, and its module."""
OPTIONS = "OS_<GROUP>__<OPTION>"


def documented() -> dict[str, list[str]]:
    """The rows of the table: from each variable to the other cells."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Environment variables\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {name: others for first, *others in rows[2:] for name in re.findall(r"`([^`]+)`", first)}


def read_by(source: str) -> set[str]:
    """The variables that a module reads; its constants may hold their names."""
    if not READS.search(source):
        return set()
    words = [each.value for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Constant)]
    return {word for word in words if isinstance(word, str) and NAME.fullmatch(word)} - NO_VARIABLES


def read_by_code() -> set[str]:
    """The variables that the installed packages read."""
    modules = [path for folder in ("pubsub_lib", "drivers", "pubsub_pytest") for path in (ROOT / folder).rglob("*.py")]
    return {name for path in modules for name in read_by(path.read_text(encoding="utf-8"))}


def read_in_containers() -> set[str]:
    """The variables that the image and the compose file read."""
    folder = ROOT / "etc" / "container"
    image, compose = (folder / "Dockerfile").read_text(), (folder / "compose.yml").read_text()
    return {*re.findall(r"environ\['(\w+)'\]", image), *re.findall(r"\$\{(\w+)", compose)}


def test_every_variable_that_is_read_is_in_the_table_and_no_other() -> None:
    found = read_by_code() | read_in_containers()
    assert found >= {"NOTIFY_SOCKET", "XDG_CACHE_HOME", "JAVA_HOME", "PUBSUB_LIB_FAILPOINT", "PUBSUB_READY_URL"}
    assert documented().keys() == found | OF_PACKAGES.keys() | {OPTIONS}


def test_variables_of_other_packages_are_read_by_them() -> None:
    for name, module in OF_PACKAGES.items():
        found = importlib.util.find_spec(module)
        assert found is not None
        assert found.origin is not None
        assert name in Path(found.origin).read_text(encoding="utf-8"), name


def test_each_row_has_a_program_and_an_effect() -> None:
    for name, others in documented().items():
        assert len(others) == 2, name
        assert all(others), name


def test_variables_are_found_in_a_module() -> None:
    assert read_by('import os\nX = "A_B"\ny = os.environ.get(X, os.getenv("C_D")), "NO_CODEGEN", "FILE"') == {
        "A_B",
        "C_D",
    }
    assert read_by('x = "A_B"') == set()
