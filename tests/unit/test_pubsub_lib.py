"""The public interface: the behaviour of every public method before ``start`` and after ``close``."""

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import pubsub_lib
from pubsub_lib import AsyncReplica, Publisher, Replica, Settings, Store, Worker
from pubsub_lib.errors import ClosedError, NotStarted, PubSubError, UsageError

Call = Callable[[Any], Any]
"""A call of one method or property, with valid arguments."""
LONG: Final = 60.0
ROOT: Final = Path(__file__).resolve().parents[2]


class Gives:
    """The expected answer, as a predicate."""

    def __init__(self, fits: Callable[[Any], bool] = lambda answer: True) -> None:
        self.fits = fits


ANY: Final = Gives()
NONE: Final = Gives(lambda answer: answer is None)
FALSE: Final = Gives(lambda answer: answer is False)
INFINITE: Final = Gives(lambda answer: answer == float("inf"))
UNREADY: Final = Gives(lambda answer: not answer.ready and answer.problems and answer.staleness == float("inf"))

Expected = Gives | type[PubSubError]
Table = dict[str, tuple[Call, Expected, Expected]]
"""Public name -> the call, its expected result before ``start``, its expected result after ``close``."""

REPLICA: Final[Table] = {
    "start": (lambda r: r.start(), ANY, ClosedError),
    "close": (lambda r: r.close(), NONE, NONE),
    # Handlers and indexes may be added before ``start``.
    "on": (lambda r: r.on("lport", print), ANY, ClosedError),
    "add_index": (lambda r: r.add_index("by", "lport", "switch"), NONE, ClosedError),
    # Its freshness can be read at any time before ``close``.
    "synced": (lambda r: r.synced, FALSE, ClosedError),
    "staleness": (lambda r: r.staleness(), INFINITE, ClosedError),
    "status": (lambda r: r.status(), UNREADY, ClosedError),
    "subscribe": (lambda r: r.subscribe("t"), NotStarted, ClosedError),
    "unsubscribe": (lambda r: r.unsubscribe("t"), NotStarted, ClosedError),
    "topics": (lambda r: r.topics, NotStarted, ClosedError),
    "publishers": (lambda r: r.publishers, NotStarted, ClosedError),
    "get": (lambda r: r.get("lport", "p1"), NotStarted, ClosedError),
    "record": (lambda r: r.record("lport", "p1"), NotStarted, ClosedError),
    "records": (lambda r: r.records(), NotStarted, ClosedError),
    "iterate": (lambda r: r.iterate("lport"), NotStarted, ClosedError),
    "lookup": (lambda r: r.lookup("by", "s1"), NotStarted, ClosedError),
    "contents": (lambda r: r.contents("t"), NotStarted, ClosedError),
    "resync": (lambda r: r.resync(), NotStarted, ClosedError),
    "wait_synced": (lambda r: r.wait_synced(LONG), NotStarted, ClosedError),
    "wait_for": (lambda r: r.wait_for(None, LONG), NotStarted, ClosedError),
    "wait_handled": (lambda r: r.wait_handled(None, LONG), NotStarted, ClosedError),
}  # fmt: skip

ASYNC: Final[Table] = {
    **{name: (call, before, after) for name, (call, before, after) in REPLICA.items() if name != "status"},
    # Before ``start`` the threaded replica, which keeps the handlers, does not exist.
    "on": (lambda r: r.on("lport", print), NotStarted, ClosedError),
    "add_index": (lambda r: r.add_index("by", "lport", "switch"), NotStarted, ClosedError),
    "status": (lambda r: r.status(), NotStarted, ClosedError),
    "synced": (lambda r: r.synced(), FALSE, ClosedError),
    "topics": (lambda r: r.topics(), NotStarted, ClosedError),
    "publishers": (lambda r: r.publishers(), NotStarted, ClosedError),
    "changes": (lambda r: anext(r.changes("lport")), NotStarted, ClosedError),
    "threaded": (lambda r: r.threaded, NotStarted, ANY),  # its methods raise then
}  # fmt: skip

PUBLISHER: Final[Table] = {
    "start": (lambda p: p.start(), NONE, ClosedError),
    "close": (lambda p: p.close(), NONE, NONE),
    "publish": (lambda p: p.publish([]), NotStarted, ClosedError),
    "serve_syncs_at": (lambda p: p.serve_syncs_at(8867), NONE, NONE),
    # Counters and identity can be read at any time.
    "counters": (lambda p: p.counters(), Gives(lambda answer: answer["unsent"] == 0), ANY),
    "busy": (lambda p: p.busy(0.0), Gives(lambda answer: answer == {"publisher": 0.0, "sending": 0.0}), ANY),
    "progress": (lambda p: p.progress(1.0), Gives(lambda answer: not answer.sequences), ANY),
    "commit_to_sent": (lambda p: p.commit_to_sent(), Gives(lambda answer: answer.count == 0), ANY),
    "uuid": (lambda p: p.uuid, ANY, ANY),
}

WORKER: Final[Table] = {
    "start": (lambda w: w.start(), NONE, ClosedError),
    "close": (lambda w: w.close(), NONE, NONE),
    "hand_over": (lambda w: w.hand_over([]), NotStarted, ClosedError),
    "counters": (lambda w: w.counters(), Gives(lambda answer: answer["unsent"] == 0), ANY),
}

TABLES: Final[dict[type, Table]] = {Replica: REPLICA, AsyncReplica: ASYNC, Publisher: PUBLISHER, Worker: WORKER}
CASES: Final = [(kind, name) for kind, table in TABLES.items() for name in table]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path / 'face.db'}"
    return Settings(store_url=url, driver="memory", service_name="api-1", multiproc_driver="memory")


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with Store(settings.store_url) as store:
        yield store


def make(kind: type, settings: Settings, store: Store) -> Any:
    return kind(settings, ["t"]) if kind in (Replica, AsyncReplica) else kind(settings, store)


async def answer(subject: Any, call: Call, expected: Expected) -> None:
    """Call it, await an awaitable result, and compare."""
    if isinstance(expected, Gives):
        given = call(subject)
        given = await given if isinstance(given, Awaitable) else given
        assert expected.fits(given), given
        return
    with pytest.raises(expected) as raised:
        given = call(subject)
        await given
    assert type(raised.value) is expected


async def start_and_close(subject: Any) -> None:
    for step in (subject.start, subject.close):
        done = step()
        if inspect.isawaitable(done):
            await done


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_public_name_is_in_the_table(kind: type) -> None:
    assert {name for name in dir(kind) if not name.startswith("_")} == set(TABLES[kind])


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_before_the_start(kind: type, name: str, settings: Settings, store: Store) -> None:
    async def main() -> None:
        subject = make(kind, settings, store)
        call, before, _ = TABLES[kind][name]
        await answer(subject, call, before)
        closed = subject.close()
        if inspect.isawaitable(closed):
            await closed

    asyncio.run(main())


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda each: getattr(each, "__name__", each))
@pytest.mark.parametrize("started", [True, False], ids=["started", "never-started"])
def test_after_the_close(kind: type, name: str, started: bool, settings: Settings, store: Store) -> None:
    async def main() -> None:
        subject = make(kind, settings, store)
        if started:
            await start_and_close(subject)
        else:
            closed = subject.close()
            if inspect.isawaitable(closed):
                await closed
        call, _, after = TABLES[kind][name]
        if (kind, name, started) == (AsyncReplica, "threaded", False):
            after = ClosedError  # the threaded replica never existed
        await answer(subject, call, after)

    asyncio.run(main())


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_a_second_start_is_refused(kind: type, settings: Settings, store: Store) -> None:
    async def main() -> None:
        subject = make(kind, settings, store)
        begun = subject.start()
        if inspect.isawaitable(begun):
            await begun
        await answer(subject, lambda it: it.start(), UsageError)
        closed = subject.close()
        if inspect.isawaitable(closed):
            await closed

    asyncio.run(main())


@pytest.mark.parametrize(
    "name",
    [
        *("AsyncReplica", "Publisher", "Replica", "Store", "Worker", "open_publisher"),
        *("HandlerPolicy", "JournalSettings", "Limits", "Settings", "StoreSettings", "Timing"),
        *("Commit", "Event", "Handle", "Object", "Point", "Status", "Stored", "Table", "Transaction"),
    ],
)
def test_public_names_are_exported(name: str) -> None:
    assert name in pubsub_lib.__all__
    assert getattr(pubsub_lib, name).__name__ == name


def test_every_exported_name_exists_and_is_in_the_reference() -> None:
    pages = "".join(page.read_text() for page in sorted((ROOT / "docs" / "reference").glob("*.rst")))
    modules = re.findall(r"automodule:: (\S+)", pages)
    for name in pubsub_lib.__all__:
        found = getattr(pubsub_lib, name)
        if isinstance(found, str):
            continue  # a constant; docs/using.md shows it
        documented = re.search(rf"auto(class|function):: \S+\.{name}$", pages, re.MULTILINE)
        assert documented or found.__module__ in modules, f"{name} is not in docs/reference"


def test_version_is_read_without_the_metadata_of_an_installation() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", pubsub_lib.__version__)
    assert "importlib.metadata" not in loaded("from pubsub_lib import __version__") - loaded("pass")


def loaded(line: str) -> set[str]:
    """The modules of a new process that runs this line."""
    code = f"import sys; {line}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "line", ["import pubsub_lib", "import pubsub_lib.errors", "from pubsub_lib.errors import NotFound"]
)
def test_import_of_the_errors_loads_no_foreign_package(line: str) -> None:
    ours = {name.partition(".")[0] for name in loaded(line) - loaded("pass")} - set(sys.stdlib_module_names)
    assert ours == {"pubsub_lib"}


def test_each_public_name_is_imported_at_its_first_use() -> None:
    assert "sqlalchemy" in loaded("from pubsub_lib import Store")
    assert "pubsub_lib.replica.replica" not in loaded("from pubsub_lib import Timing")
    for name in pubsub_lib.__all__:
        assert getattr(pubsub_lib, name) is not None
        assert name in dir(pubsub_lib)
    with pytest.raises(AttributeError, match="has no attribute 'Replika'"):
        pubsub_lib.Replika  # type: ignore[attr-defined] # noqa: B018


def test_type_checkers_and_the_interpreter_import_the_same_names() -> None:
    tree = ast.parse(Path(pubsub_lib.__file__).read_text())
    for_checkers = {
        alias.name: (node.module or "").removeprefix("pubsub_lib.")
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert for_checkers == pubsub_lib._MODULES
    assert sorted(for_checkers) == sorted(pubsub_lib.__all__)
