"""Fixtures of all tests: databases on private servers, seeds, and an orderly end.

A server is started for the first test that needs it and stopped at the end, also after Ctrl-C and SIGTERM.
Without a server's binaries its tests are skipped with one sentence; with ``CI=true`` they fail.
"""

import contextlib
import gc
import logging
import os
import random
import shutil
import signal
import traceback
import zlib
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import hypothesis
import pytest
from _axe import script_path
from _bench.e2e.side import LeftOutError
from _redis_server import PrivateRedis
from _servers import PrivateMariaDB, PrivatePostgres, PrivateServer, port_variable
from _spread import mixed, spread
from xdist.workermanage import WorkerController

from pubsub_lib import logs
from pubsub_lib.errors import ConfigError
from pubsub_lib.logs import RepeatFilter
from pubsub_lib.store import Store
from pubsub_lib.store.administration import new_id
from tests.spark_session import small_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from selenium import webdriver

IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")
SEED_VARIABLE = "PUBSUB_TEST_SEED"
END_TO_END = Path(__file__).parent / "e2e"
"""The folder of the tests that wait for other processes most of their time."""
LONG = {"test_chaos.py", "test_demo.py", "test_demo_drivers.py", "test_prepare.py"}
"""The longest of them: demos, runs with random faults, and the archive with which their audits start."""

hypothesis.settings.register_profile("dev", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if IN_CI else "dev")

_seed = int(os.environ.get(SEED_VARIABLE) or (0 if IN_CI else random.SystemRandom().getrandbits(32)))
os.environ[SEED_VARIABLE] = str(_seed)  # one for all parallel test processes
Server = TypeVar("Server", PrivateServer, PrivateRedis)
Handlers = dict[signal.Signals, Any]

_BEFORE = pytest.StashKey[Handlers]()
_VARIANTS = pytest.StashKey[Counter[str]]()
"""For each test whose first variants alone are not long, the number of variants that were collected."""
_PARTS = pytest.StashKey[Counter[tuple[str, str]]]()
"""For each test and each part of ``quick_variants`` the number of variants that have it."""
_workers: list[WorkerController] = []
"""The parallel test processes, in the process that started them."""


def pytest_configure() -> None:
    # As after Ctrl-C: fixtures are torn down, and no server keeps running.
    signal.signal(signal.SIGTERM, _interrupt)
    # A script's background processes and their children ignore Ctrl-C: tests that send it would wait for ever.
    signal.signal(signal.SIGINT, _interrupt)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEFORE] = _handlers()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    # The processes of later tests would inherit an ignored signal, and a test that sends it would wait for ever.
    before = item.stash[_BEFORE]
    try:
        yield
    except Exception:  # not KeyboardInterrupt, after which signals stay ignored
        _restore(before)
        raise
    after = _handlers()
    if after != before:
        _restore(before)
        pytest.fail(f"the test changed the signal handlers from {before} to {after}; use the fixture signal_handlers")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodeready(node: WorkerController) -> None:
    _workers.append(node)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(exitstatus: int) -> None:
    # xdist would now end the test processes: after 5 s it sends a KeyboardInterrupt, after 5 s more it kills them, and
    # then their servers keep running. On a busy machine this is too short.
    if exitstatus == pytest.ExitCode.INTERRUPTED:
        for node in _workers:
            node.gateway._io.popen.terminate()
        for node in _workers:
            with contextlib.suppress(EOFError, node.channel.RemoteError, node.channel.TimeoutError):
                node.channel.waitclose(60)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # All tests and their modules live until the end. The garbage collector need not look at them again and again.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    spec = getattr(item, "callspec", None)
    quick = item.get_closest_marker("quick_variants")
    if spec is None and quick is not None:
        raise pytest.UsageError(f"{item.nodeid} is marked quick_variants and has no variants")
    if spec is None or item.get_closest_marker("long") is not None:
        return
    # Of a test that has several variants on each database, all but one of those on MariaDB are long.
    several_on_mariadb = quick is None and "mariadb" in spec.id.split("-") and len(spec.params) > 1
    if (several_on_mariadb and _following(item, 1)) or (quick is not None and not _chosen(item, spec.id, quick.args)):
        item.add_marker(pytest.mark.long)


def _chosen(item: pytest.Item, variant: str, quick: Sequence[int | str]) -> bool:
    """Whether this variant of a test is one of the first ones, or its name has one of the given parts."""
    if isinstance(quick[0], int):
        return not _following(item, quick[0])
    found = [part for part in quick if str(part) in variant]
    parts = item.session.stash.setdefault(_PARTS, Counter())
    for part in quick:
        parts[_test(item), str(part)] += part in found
    return bool(found)


def _following(item: pytest.Item, number: int) -> bool:
    """Whether this variant of a test follows this number of others that were counted."""
    seen = item.session.stash.setdefault(_VARIANTS, Counter())
    seen[_test(item)] += 1
    return seen[_test(item)] > number


def _test(item: pytest.Item) -> str:
    """A test without the variant."""
    return item.nodeid.partition("[")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.file_or_dir:  # all variants were collected
        numbers = session.stash.get(_PARTS, Counter())
        unused = [f"{test}: {part!r}" for (test, part), number in numbers.items() if not number]
        if unused:
            raise pytest.UsageError("no variant has this part of quick_variants: " + "; ".join(unused))


@pytest.hookimpl(trylast=True)  # of the tests that -m has left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Parallel tests at the head of the list run in one process, from the start. So Spark is started only once. All
    # others are mixed, so that not all processes wait at the same time.
    def with_spark(item: pytest.Item) -> bool:
        return "spark" in getattr(item, "fixturenames", ())

    whole = mixed(items, lambda item: item.path, lambda item: END_TO_END in item.path.parents)
    items[:] = sorted(whole, key=lambda item: (not with_spark(item), item.path.name != "test_prepare.py"))
    workers = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    items[:] = spread(items, _long, workers)


def _long(item: pytest.Item) -> object:
    """The group of a test that starts at the begin of a parallel run, else None. A group runs in one process.

    A long test that started last would keep one processor idle. Two demos at the same time would fail on a busy
    machine, and each would make an archive of Spark's classes. The test of this archive leaves it to them.
    """
    if item.path.name == "test_mutate.py":
        return item
    return "demo" if item.path.parent == END_TO_END and item.path.name in LONG else None


def pytest_report_header() -> str:
    return f"seed: {_seed} ({SEED_VARIABLE}={_seed} repeats this run)"


@pytest.fixture(autouse=True)
def _reset_repeat_filters() -> None:
    """Log lines that an earlier test repeated must not be left out in this test."""
    for found in list(logging.root.manager.loggerDict.values()):
        for each in getattr(found, "filters", ()):
            if isinstance(each, RepeatFilter):
                each.reset()


@pytest.fixture(autouse=True)
def lost_lines() -> Iterator[list[logging.LogRecord]]:
    """The log lines that were lost by an exception, for example because their text does not fit their values. A test
    that expects some clears the list."""
    lost: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> None:
        traceback.print_exc()
        lost.append(record)

    before, logs.report_lost = logs.report_lost, keep
    yield lost
    logs.report_lost = before
    assert lost == [], "log lines were lost"


@pytest.fixture
def signal_handlers() -> Iterator[None]:
    """SIGINT and SIGTERM raise KeyboardInterrupt; the handlers of before are restored after the test."""
    before = _handlers()
    for number in before:
        signal.signal(number, signal.default_int_handler)
    yield
    _restore(before)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed for this test; the report of a failing test shows how to repeat it."""
    print(f"{SEED_VARIABLE}={_seed}")
    return zlib.crc32(f"{_seed} {request.node.nodeid}".encode())


@pytest.fixture
def rng(seed: int) -> random.Random:
    """A random generator from ``seed``."""
    return random.Random(seed)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PrivateServer]:
    """The PostgreSQL server that all tests share; to kill one, take ``private_postgres``."""
    yield from _shared(PrivatePostgres())


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[PrivateServer]:
    """The MariaDB server that all tests share; to kill one, take ``private_mariadb``."""
    yield from _shared(PrivateMariaDB())


@pytest.fixture
def private_postgres() -> Iterator[PrivateServer]:
    """A PostgreSQL server for this test alone, which it may kill and restart."""
    yield from _serve(PrivatePostgres())


@pytest.fixture
def private_mariadb() -> Iterator[PrivateServer]:
    """A MariaDB server for this test alone, which it may kill and restart."""
    yield from _serve(PrivateMariaDB())


@pytest.fixture(scope="session")
def redis_server() -> Iterator[PrivateRedis]:
    """The Redis server that all tests share, each with channels of its own; to kill one, take ``private_redis``."""
    yield from _serve(PrivateRedis())


@pytest.fixture
def private_redis() -> Iterator[PrivateRedis]:
    """A Redis server for this test alone, which it may kill and restart."""
    yield from _serve(PrivateRedis())


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """The Spark session of all tests that need one: they run in one process, so that only one JVM starts."""
    try:
        made, _ = small_session()
    except ConfigError as error:
        if IN_CI:
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[webdriver.Chrome]":
    """A headless Chromium that the tests of a module share, and axe-core for its pages."""
    from tests.browser import chromium  # it imports selenium, which few tests need

    try:
        script_path()
        with chromium(tmp_path_factory.mktemp("profile")) as running:
            yield running
    except ConfigError as error:
        if IN_CI:
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def sqlite_original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with this library's tables. To copy it takes a tenth of the time of the migrations."""
    path = tmp_path_factory.mktemp("original") / "store.sqlite"
    Store(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session")
def postgres_original(postgres_server: PrivateServer) -> str:
    """URL of a PostgreSQL database with this library's tables, for copies."""
    return _with_tables(postgres_server)


@pytest.fixture(scope="session")
def mariadb_original(mariadb_server: PrivateServer) -> str:
    """URL of a MariaDB database with this library's tables, for copies."""
    return _with_tables(mariadb_server)


@pytest.fixture
def sqlite_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an SQLite database with this library's tables; for a test marked ``empty_database``, of a file that does
    not exist yet."""
    path = tmp_path / "store.sqlite"
    url = f"sqlite:///{path}"
    if not _is_empty(request):
        shutil.copyfile(request.getfixturevalue("sqlite_original"), path)
        new_id(url)
    return url


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, postgres_server: PrivateServer) -> Iterator[str]:
    """URL of a PostgreSQL database with this library's tables; for a test marked ``empty_database``, without them."""
    yield from _database(request, postgres_server, "postgres_original")


@pytest.fixture
def mariadb_url(request: pytest.FixtureRequest, mariadb_server: PrivateServer) -> Iterator[str]:
    """URL of a MariaDB database with this library's tables; for a test marked ``empty_database``, without them."""
    yield from _database(request, mariadb_server, "mariadb_original")


@pytest.fixture(
    params=[
        pytest.param("sqlite_url", id="sqlite"),
        pytest.param("postgres_url", id="postgresql", marks=pytest.mark.postgresql),
        pytest.param("mariadb_url", id="mariadb", marks=pytest.mark.mariadb),
    ]
)
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of a database for this test, which runs once on each of the three database systems.

    It has this library's tables, as after ``pubsub-db init``; for a test marked ``empty_database`` it has none.
    """
    return str(request.getfixturevalue(request.param))


def _shared(server: PrivateServer) -> Iterator[PrivateServer]:
    """The server that ``tools/mutate`` has started for all its runs of pytest; else one for this run."""
    port = os.environ.get(port_variable(server))
    if port is None:
        yield from _serve(server)
        return
    server.attach(int(port))
    yield server
    server.drop_database(server.url)


def _serve(server: Server) -> Iterator[Server]:
    try:
        server.start()
    except (ConfigError, LeftOutError) as error:
        if IN_CI:
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.stop()


def _is_empty(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("empty_database") is not None


def _with_tables(server: PrivateServer) -> str:
    url = server.create_database()
    Store(url).close()
    return url


def _database(request: pytest.FixtureRequest, server: PrivateServer, original: str) -> Iterator[str]:
    if _is_empty(request):
        url = server.create_database()
    else:
        url = server.copy_database(request.getfixturevalue(original))
        new_id(url)
    yield url
    server.drop_database(url)


def _handlers() -> Handlers:
    return {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}


def _restore(before: Handlers) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


def _interrupt(number: int, _frame: object) -> NoReturn:
    # A second signal would interrupt the teardown: tools/test passes on SIGTERM, which pytest may have received, too.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "PYTEST_XDIST_WORKER" in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a parallel test process gets several signals
    raise KeyboardInterrupt(signal.Signals(number).name)
