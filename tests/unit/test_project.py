"""Checks of the repository: mirror of tests, import contracts, contents of a wheel, generated files."""

import ast
import configparser
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tokenize
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pubsub_lib

ROOT = Path(__file__).resolve().parent.parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DRIVERS = sorted(each.name for each in (ROOT / "drivers").glob("pubsub_*"))

# Modules whose tests are not at the mirror's path: module, or folder with a slash at its end -> file or folder, with
# the reason as a comment.
TESTED_ELSEWHERE: dict[str, str] = {
    "core/merged_view.py": "tests/unit/core/test_cache.py",  # the merged view is used only by the cache
    "sync/checks.py": "tests/unit/sync/test_reading.py",  # the checks of what is read there
    "cli/endpoint_client.py": "tests/unit/cli/test_replica_client.py",  # seen in the client of a replica's endpoint
    "sync/http_call.py": "tests/unit/sync/test_client.py",  # one request is seen in the client that makes it
    "core/relay_contents.py": "tests/unit/core/test_relaying.py",  # what a relay has is seen in what it sends
    "core/relay_sequencer.py": "tests/unit/core/test_relaying.py",
    # Steps of one pipeline, which is compared as a whole with an independent program.
    **{
        f"audit/rules/{name}.py": "tests/unit/audit/rules/test_pipeline.py"
        for name in (
            "applications",
            "base_tables",
            "belated",
            "changelog",
            "commit_tables",
            "contents",
            "delivery",
            "fast_path",
            "held_contents",
            "intervals",
            "listings",
            "participants",
            "receipts",
            "state",
            "store_clock",
            "stream_ids",
            "syncs",
            "unexpected_receipts",
        )
    },
    "audit/rules/drift.py": "tests/unit/audit/rules/test_corrections.py",
    "audit/rules/later_intervals.py": "tests/unit/audit/rules/test_deciding_intervals.py",
    # Figures that are computed from the pipeline's tables: tested with the same cases, because runs of Spark are slow.
    **{
        f"audit/report/{name}.py": "tests/unit/audit/rules/test_pipeline.py"
        for name in ("aggregates", "anomalies", "collect", "latency", "streams", "trails", "windows")
    },
    # Parts of the page, which a browser shows as a whole.
    "audit/report/figures.py": "tests/unit/audit/report/test_page.py",
    "audit/report/labels.py": "tests/unit/audit/report/test_summary.py",  # the words of a summary
    # Parts of the follower, which is tested as a whole.
    "audit/stream/windows.py": "tests/unit/audit/stream/test_loop.py",
}

# Tests of the whole project, which do not mirror a module.
OF_THE_PROJECT = {
    Path("tests/unit/test_plain_words.py"),
    Path("tests/unit/test_project.py"),
    Path("tests/unit/test_protocol.py"),
    Path("tests/unit/test_random_numbers.py"),
}

# Folders of tests/unit that do not mirror pubsub_lib.
OTHER_MIRRORS = {"drivers", "pubsub_pytest", "tools"}

DRIVER_MAY_IMPORT = {
    "api", "config.driver_options", "config.fields", "core", "curve_keys", "driver_state", "errors", "fault_injection",
    "hello_requests", "logs", "masking", "port_owner", "receive_queue", "reconnect_pause", "send_queue", "socket_lock",
    "socket_path", "subscriptions", "threads", "zmq_frames",
}  # fmt: skip
MAY_IMPORT_STORE = {"pubsub_pgnotify", "pubsub_sql"}  # their transport is the store itself

# All modules that the core may import: without clocks, sockets, threads, logs, or its own randomness.
CORE_MAY_IMPORT = {
    "pubsub_lib.core", "pubsub_lib.errors", "pubsub_lib.arguments", "msgspec", "xxhash",
    "bisect", "collections", "enum", "functools", "hashlib", "heapq", "itertools", "math", "operator", "random",
    "types", "typing", "weakref",
}  # fmt: skip

MAX_LINES = 300
MAX_FUNCTION_LINES = 50
# Larger files: their maximum number of lines, and why they are not split. The numbers may only be lowered.
LARGE_FILES = {
    "pubsub_lib/core/cache.py": (496, "the path of every change, without calls in between"),
    "pubsub_lib/core/codec.py": (450, "both directions of one format"),
    "pubsub_lib/core/handler_queue.py": (460, "one queue with its policy"),
    "pubsub_lib/core/tracker.py": (651, "one state machine"),
    "pubsub_lib/journal/writer.py": (344, "one file format's writing side"),
    "pubsub_lib/publisher/publisher.py": (312, "a public class with its documentation"),
    "pubsub_lib/replica/asyncio_replica.py": (494, "a public class with its documentation"),
    "pubsub_lib/replica/engine.py": (363, "three threads that share one lock"),
    "pubsub_lib/replica/handlers.py": (492, "threads of handlers that share one lock"),
    "pubsub_lib/replica/replica.py": (687, "a public class with its documentation"),
    "pubsub_lib/store/repair_plan.py": (403, "one proof, in steps"),
    "pubsub_lib/store/store.py": (639, "a public class with its documentation"),
    "pubsub_lib/testing/conformance.py": (395, "the list of a driver's checks"),
    "simulator/monitor.py": (358, "one observer of the whole system"),
    "simulator/store.py": (360, "one model of the store"),
    "tools/generate_wire_format.py": (409, "one page with its text"),
    "tools/spark_cluster_app.py": (307, "a script"),
}
LARGE_FUNCTIONS = {
    "pubsub_lib/audit/rules/unexpected_receipts.py": {"unrecorded": 51},
    # One more function call for each change would double the cost.
    "pubsub_lib/core/cache.py": {"apply_run": 96, "replace": 101},
    # Constructors that join parts.
    "pubsub_lib/replica/replica.py": {"__init__": 52},
    "pubsub_lib/service/service.py": {"__init__": 56},
    "pubsub_lib/store/store.py": {"__init__": 66},
    "pubsub_lib/store/links.py": {"assemble": 57},
    # A migration is never changed again.
    "pubsub_lib/store/migrations/versions/r0001_objects.py": {"upgrade": 60},
    "simulator/store.py": {"_write": 59},
    "tools/_bench_audit/journals.py": {"_columns": 61},
}


def modules() -> list[Path]:
    """All modules of pubsub_lib except alembic's versions, which the store's schema tests cover."""
    found = sorted((ROOT / "pubsub_lib").rglob("*.py"))
    return [each.relative_to(ROOT / "pubsub_lib") for each in found if "migrations" not in each.parts]


def has_code(source: str) -> bool:
    """Whether any function has a body with code; constants and plain data need no test."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [each for each in node.body if not isinstance(each, ast.Pass)]
            if not all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in body):
                return True
    return False


def mirror(module: Path) -> Path:
    """The path of a module's tests: ``core/cache.py`` -> ``tests/unit/core/test_cache.py``."""
    name = module.parent.name or "pubsub_lib" if module.stem == "__init__" else module.stem.strip("_")
    return Path("tests/unit") / module.parent / f"test_{name}.py"


def where_tested(module: Path) -> Path:
    """The required path of a module's tests."""
    keys = [module.as_posix(), *(f"{folder.as_posix()}/" for folder in module.parents)]
    return Path(next((TESTED_ELSEWHERE[each] for each in keys if each in TESTED_ELSEWHERE), mirror(module)))


def copy_project(to: Path) -> Path:
    """The project as a source tree without history, environments and caches; with tests, tools and docs."""
    skipped = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(ROOT, to, ignore=skipped)
    return to


def test_has_code_distinguishes_contracts_from_code() -> None:
    assert not has_code('X = 1\nclass A:\n    def f(self):\n        """Must."""\n    def g(self): ...')
    assert has_code("def f():\n    return 1")


def test_every_module_with_code_has_tests_at_its_mirror() -> None:
    missing = []
    for module in modules():
        at = where_tested(module)
        if has_code((ROOT / "pubsub_lib" / module).read_text()) and not (ROOT / at).exists():
            missing.append(f"pubsub_lib/{module} needs {at}")
    assert missing == [], "write the tests, or add their path to TESTED_ELSEWHERE"


def test_every_unit_test_mirrors_a_module() -> None:
    mirrors = {mirror(module) for module in modules()}
    files = {each.relative_to(ROOT) for each in (ROOT / "tests/unit").rglob("test_*.py")}
    unexpected = {
        each
        for each in files - mirrors - OF_THE_PROJECT
        if each.parts[2] not in OTHER_MIRRORS and each.as_posix() not in TESTED_ELSEWHERE.values()
    }
    assert unexpected == set(), "a module was renamed or removed without its tests"


def test_tested_elsewhere_is_not_stale() -> None:
    missing = {each for each in TESTED_ELSEWHERE if not (ROOT / "pubsub_lib" / each).exists()}
    assert missing == set()


def lint_imports(root: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "drivers")])}
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, in which one breach at a time is planted. The copy takes longer than the check."""
    return copy_project(tmp_path_factory.mktemp("tree") / "project")


def test_import_contracts_hold() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


BREACHES = (
    ("pubsub_lib/core/model.py", "import sqlalchemy", "core imports only"),
    ("pubsub_lib/core/tracker.py", "from pubsub_lib.logs import logger", "core has no clock"),
    ("pubsub_lib/core/tracker.py", "import logging", "core has no clock"),
    ("pubsub_lib/core/cache.py", "import time", "core has no clock"),
    ("pubsub_lib/store/store.py", "import pyspark", "Only the audit imports pyspark"),
    ("pubsub_lib/journal/rows.py", "from pyspark.sql import Row", "Only the audit imports pyspark"),
    ("pubsub_lib/core/model.py", "import pubsub_lib.api", "Imports point one way"),
    ("pubsub_lib/core/model.py", "import pubsub_lib.threads.periodic_thread", "Imports point one way"),
    ("pubsub_lib/core/model.py", "import pubsub_lib.fault_injection", "Imports point one way"),
    ("pubsub_lib/publisher/trace_context.py", "import pubsub_lib.replica.status", "Imports point one way"),
    ("pubsub_lib/replica/consistency_check.py", "import pubsub_lib.publisher.worker", "Imports point one way"),
    ("pubsub_lib/audit/settings.py", "import pubsub_lib.replica.status", "Imports point one way"),
    ("pubsub_lib/api.py", "import pubsub_memory", "Nothing in pubsub_lib imports a driver"),
    ("pubsub_lib/testing/rig.py", "import simulator.plan", "Nothing that is installed imports the simulator"),
    ("drivers/pubsub_sql/driver.py", "import simulator.plan", "Nothing that is installed imports the simulator"),
    ("drivers/pubsub_memory/__init__.py", "import pubsub_sql", "Drivers never import each other"),
    ("pubsub_lib/audit/rules/base_tables.py", "import pubsub_lib.audit.report.summary", "Rooms of the audit"),
    ("pubsub_lib/audit/rules/stream_ids.py", "import pubsub_lib.audit.ingest.input", "Rooms of the audit"),
    ("pubsub_lib/audit/report/page.py", "import pubsub_lib.audit.stream.command", "Rooms of the audit"),
    ("pubsub_lib/cli/commands/ls.py", "import pubsub_lib.cli.commands.get", "Commands of pubsub-db never import"),
)
"""Modules, lines that are added to them, and the contracts that they break."""


def breaches() -> Iterator[object]:
    """The first one of each contract; the others are left to ``tools/test --all``."""
    seen = set()
    for each in BREACHES:
        yield pytest.param(*each, marks=[pytest.mark.long] if each[2] in seen else [])
        seen.add(each[2])


@pytest.mark.parametrize(("module", "line", "contract"), [*breaches()])
def test_import_contracts_catch(module: str, line: str, contract: str, tree: Path) -> None:
    path = tree / module
    before = path.read_text()
    path.write_text(f"{before}\n{line}\n")
    try:
        done = lint_imports(tree)
    finally:
        path.write_text(before)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"{contract}[^\n]*(\n[^\n]*)?BROKEN", done.stdout), done.stdout


def test_every_part_of_the_library_is_in_a_layer() -> None:
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["id"] == "one-way")
    named = {name for layer in layers for name in re.findall(r"pubsub_lib\.(\w+)", layer)}
    parts = {module.parts[0].removesuffix(".py") for module in modules()} - {"__init__"}
    assert parts - named == set(), "add the new part to the contract one-way in pyproject.toml"


def test_page_of_the_scheduler_names_the_drivers_that_run_under_it() -> None:
    page = (ROOT / "docs" / "contributing" / "scheduler.md").read_text()
    run, _, others = page.partition("Ordinary tests with real threads alone cover")
    others = others.partition("\n\n")[0]
    tests = "".join(each.read_text() for each in (ROOT / "tests" / "scheduler").glob("*.py"))
    for driver in DRIVERS:
        runs = f"from {driver}" in tests
        assert (f"`{driver}`" in run, f"`{driver}`" in others) == (runs, not runs), driver


def test_every_driver_is_in_the_contracts() -> None:
    roots = set(PYPROJECT["tool"]["importlinter"]["root_packages"])
    assert sorted(roots - {"pubsub_lib", "simulator"}) == DRIVERS


def imported(path: Path) -> set[str]:
    """Dotted names that a file imports, anywhere in it; for ``from a import b`` both a and a.b."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def driver_breaches(driver: Path) -> list[str]:
    """Imports of a driver from the library that its contract does not allow."""
    allowed = DRIVER_MAY_IMPORT | ({"store"} if driver.name in MAY_IMPORT_STORE else set())
    breaches = []
    for path in sorted(driver.rglob("*.py")):
        names = {name.removeprefix("pubsub_lib.") for name in imported(path) if name.startswith("pubsub_lib.")}
        rooms = {name.split(".")[0] for name in names if not any(f"{name}.".startswith(f"{each}.") for each in allowed)}
        breaches += [f"{driver.name}/{path.name} imports pubsub_lib.{each}" for each in sorted(rooms)]
    return breaches


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_driver_imports_only_the_modules_for_drivers(driver: str) -> None:
    assert driver_breaches(ROOT / "drivers" / driver) == []


@pytest.mark.parametrize(
    ("driver", "line", "breach"),
    [
        ("pubsub_memory", "from pubsub_lib.store import Store", "pubsub_lib.store"),
        ("pubsub_memory", "from pubsub_lib import loader", "pubsub_lib.loader"),
        ("pubsub_sql", "def f():\n    import pubsub_lib.replica.replica", "pubsub_lib.replica"),
        ("pubsub_sql", "from pubsub_lib.store import Store", ""),
        ("pubsub_sql", "from pubsub_lib.config.fields import option", ""),
        ("pubsub_sql", "from pubsub_lib.config import options", "pubsub_lib.config"),
    ],
)
def test_driver_breaches_are_found(driver: str, line: str, breach: str, tmp_path: Path) -> None:
    (tmp_path / driver).mkdir()
    (tmp_path / driver / "sender.py").write_text(line)
    wanted = [f"{driver}/sender.py imports {breach}"] if breach else []
    assert driver_breaches(tmp_path / driver) == wanted


def core_breaches(core: Path) -> list[str]:
    """Imports of the core that its allow-list does not contain."""
    return [
        f"{path.name} imports {name}"
        for path in sorted(core.rglob("*.py"))
        for name in sorted(imported(path))
        if not any(name == each or name.startswith(f"{each}.") for each in CORE_MAY_IMPORT)
    ]


def test_core_imports_only_its_allow_list() -> None:
    assert core_breaches(ROOT / "pubsub_lib" / "core") == []


@pytest.mark.parametrize(
    "line",
    [
        "from pubsub_lib.logs import logger",
        "import logging",
        "import time",
        "import threading",
        "import os.path",
        "from pubsub_lib import settings",
        "import zmq",
    ],
)
def test_a_forbidden_import_of_the_core_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "tracker.py").write_text(f"import random\n{line}\n")
    assert core_breaches(tmp_path), line


def sources() -> list[Path]:
    """Modules whose size is limited: all but tests and docs."""
    roots = (ROOT / name for name in ("pubsub_lib", "drivers", "simulator", "tools"))
    return sorted(path for root in roots for path in root.rglob("*.py") if "site-packages" not in path.parts)


def test_no_file_grows_beyond_its_limit() -> None:
    lines = {path.relative_to(ROOT).as_posix(): path.read_text().count("\n") for path in sources()}
    limits = {name: LARGE_FILES.get(name, (MAX_LINES, ""))[0] for name in lines}
    too_large = {name: number for name, number in lines.items() if number > limits[name]}
    assert too_large == {}, "split the file"
    stale = {name: lines.get(name, 0) for name, (limit, _) in LARGE_FILES.items() if lines.get(name, 0) <= limit - 20}
    assert stale == {}, "lower the number in LARGE_FILES, or take the file out"
    assert [name for name in LARGE_FILES if lines[name] <= MAX_LINES] == [], "take the file out of LARGE_FILES"


def test_no_function_grows_beyond_its_limit() -> None:
    too_large = {}
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                size = node.end_lineno - node.lineno + 1
                if size > LARGE_FUNCTIONS.get(name, {}).get(node.name, MAX_FUNCTION_LINES):
                    too_large[f"{name}:{node.name}"] = size
    assert too_large == {}, "split the function"


def test_core_uses_only_the_generator_it_is_given() -> None:
    """``random.Random`` is allowed as a type; other names of the module would be a source of randomness."""
    breaches = [
        f"{path.name}:{node.lineno} uses random.{node.attr}"
        for path in sorted((ROOT / "pubsub_lib" / "core").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random"
        if node.attr != "Random"
    ]
    assert breaches == []


@pytest.fixture(scope="module")
def source_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to build from, so that the build leaves no files in the project."""
    return copy_project(tmp_path_factory.mktemp("source") / "project")


@pytest.fixture(scope="module")
def distributions(source_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel, which is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source_tree)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Iterator[zipfile.ZipFile]:
    """The wheel that users install."""
    (built,) = distributions.glob("*.whl")
    with zipfile.ZipFile(built) as opened:
        yield opened


def test_source_distribution_holds_every_file(distributions: Path, source_tree: Path) -> None:
    """Also those that the links of the README and of the pages name: docs, etc, tests and tools."""
    (built,) = distributions.glob("*.tar.gz")
    with tarfile.open(built) as opened:
        names = {each.name.partition("/")[2] for each in opened if each.isfile() or each.issym()}
    files = {path.relative_to(source_tree).as_posix() for path in source_tree.rglob("*") if path.is_file()}
    ours = {each for each in files if ".egg-info/" not in each and not each.startswith("build/")}
    assert ours - names == set(), "name them in MANIFEST.in"
    made = {"PKG-INFO", "setup.cfg"}
    assert {each for each in names - ours - made if ".egg-info/" not in each} == set()


def test_wheel_has_the_metadata_that_a_registry_shows(wheel: zipfile.ZipFile) -> None:
    (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
    metadata = email.message_from_bytes(wheel.read(name))
    assert metadata["Name"] == "pubsub-lib"
    assert metadata["Version"] == pubsub_lib.__version__
    assert metadata["Author"] == "pubsub_lib developers"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    assert len(metadata["Keywords"].split(",")) >= 5
    classifiers = metadata.get_all("Classifier", [])
    assert len(set(classifiers)) == len(classifiers) >= 10
    assert not [each for each in classifiers if each.startswith("License ::")]  # not beside a licence expression


def test_wheel_holds_every_module_once_and_nothing_else(wheel: zipfile.ZipFile, source_tree: Path) -> None:
    roots = [
        source_tree / "pubsub_lib",
        source_tree / "pubsub_pytest",
        *sorted((source_tree / "drivers").glob("pubsub_*")),
    ]
    sources = {
        path.relative_to(root.parent).as_posix()
        for root in roots
        for path in root.rglob("*")
        if path.suffix in (".py", ".mako", ".jinja", ".sample", ".service", ".properties") or path.name == "py.typed"
    }
    names = [each for each in wheel.namelist() if ".dist-info/" not in each and ".data/" not in each]
    assert sorted(names) == sorted(sources)  # as lists, to find a driver that is included twice
    assert {f"{root.name}/py.typed" for root in roots} <= sources


def test_wheel_holds_the_manual_pages(wheel: zipfile.ZipFile) -> None:
    installed = {each.partition(".data/")[2] for each in wheel.namelist() if ".data/" in each}
    pages = {f"data/share/man/man{each.suffix[1:]}/{each.name}" for each in (ROOT / "etc" / "man").iterdir()}
    assert installed == pages
    assert len(pages) == 3


def test_wheel_holds_the_licence(wheel: zipfile.ZipFile) -> None:
    (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/licenses/LICENSE")]
    assert "Apache License" in wheel.read(name).decode()


def test_wheel_offers_the_plugins_of_setup_cfg(wheel: zipfile.ZipFile) -> None:
    registry = configparser.ConfigParser()
    registry.read(ROOT / "setup.cfg")
    wanted = {
        group: dict(line.split(" = ") for line in lines.strip().splitlines())
        for group, lines in registry["options.entry_points"].items()
    }
    assert "pubsub_lib.drivers" in wanted
    (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/entry_points.txt")]
    offered = configparser.ConfigParser()
    offered.read_string(wheel.read(name).decode())
    assert {group: dict(offered[group]) for group in offered.sections()} == wanted


def test_every_plugin_can_be_imported_from_the_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from importlib.metadata import distributions\n"
        "(found,) = [each for each in distributions(path=[sys.argv[1]])]\n"
        "for each in found.entry_points:\n"
        "    thing = each.load()\n"
        "    assert sys.modules[each.module].__file__.startswith(sys.argv[1]), each\n"
        "    print(each.group, each.name, thing.__name__)\n"
    )
    command = [sys.executable, "-I", "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pubsub_lib.drivers memory MemoryDriver" in done.stdout


def test_generated_files_are_up_to_date() -> None:
    """Each ``tools/generate_*.py`` writes files of the project; with ``--check`` it compares them only."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "drivers")])}
    stale = []
    for generator in sorted((ROOT / "tools").glob("generate_*.py")):
        command = [sys.executable, str(generator), "--check"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            stale.append(f"run tools/{generator.name}: {done.stdout}{done.stderr}")
    assert not stale, "\n".join(stale)


def test_no_path_of_a_developers_machine_is_in_the_tree(tmp_path: Path) -> None:
    found = []
    private = re.compile(r"(?<![\w.*}])/(?:root|home|Users|work)/\w|\.pyenv\b")
    for path in sorted(copy_project(tmp_path / "project").rglob("*")):
        if path.suffix in (".gz", ".bin", ".png") or not path.is_file() or path.name == Path(__file__).name:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if private.search(line):
                found.append(f"{path.relative_to(tmp_path / 'project')}:{number}: {line.strip()}")
    assert found == []


MAX_DRIVER_LINES = 700
"""Maximum number of lines of code of a driver that a client library connects."""


def lines_of_code(path: Path) -> int:
    """Number of lines that have code: not those of comments and docstrings."""
    found: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.string.strip() and token.type not in (tokenize.COMMENT, tokenize.ENCODING):
                found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def test_lines_of_code_are_those_without_comments_and_docstrings(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        '"""A\ndocstring."""\n\n# a comment\nA = """\na text"""  # of two lines\n"""Of A."""\n'
    )
    assert lines_of_code(tmp_path / "a.py") == 2


@pytest.mark.parametrize("name", ["nats", "redis", "pgnotify"])
def test_a_driver_of_a_broker_has_less_than_700_lines_of_code(name: str) -> None:
    total = sum(map(lines_of_code, (ROOT / "drivers" / f"pubsub_{name}").rglob("*.py")))
    assert 0 < total < MAX_DRIVER_LINES, f"pubsub_{name} has {total}: make it simpler, not denser"


def test_a_driver_over_a_client_library_needs_less_than_200_lines() -> None:
    """The work that all drivers share is in the library; this driver passes the conformance tests."""
    driver = (ROOT / "tests" / "conformance" / "tcp_driver.py").read_text()
    assert driver.count("\n") < 200
