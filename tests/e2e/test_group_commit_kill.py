"""Group commit of a host: service and workers killed, stopped and restarted, on real databases.

Every ordered transaction is committed exactly once, also that of a worker that was waiting for a killed service; each
worker sees its own commits; replicas equal the database without a full sync.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _processes import pause, poll

from pubsub_lib import Store
from tests.e2e.service_host import (
    LONG,
    Host,
    Watched,
    begin,
    commit,
    done,
    fork,
    order,
    pause_between_transactions,
    write,
)
from tests.e2e.store_checks import assert_consistent
from tests.e2e.warm_start import Running

WORKERS = 3
COUNT = 20
DATABASES: dict[str, list[pytest.MarkDecorator]] = {
    "sqlite_url": [], "postgres_url": [pytest.mark.postgresql], "mariadb_url": [pytest.mark.mariadb, pytest.mark.long],
}  # fmt: skip
"""MariaDB is left to ``tools/test --all``: the store's own tests of group commits run on all three."""


def host_on(database: str, folder: Path, timeout: int) -> Iterator[Host]:
    """``timeout``: seconds after which a worker leaves a service that does not answer."""
    host = Host(
        folder,
        database,
        group_commit="host",
        store_lock_timeout=timeout,
        store_idle_in_transaction_timeout=timeout,
        store_retry_max_seconds=30 * timeout,
        store_retry_attempts=50,
    )
    try:
        yield host
    finally:
        host.close()


@pytest.fixture(
    params=[
        pytest.param(name, marks=[*marks, *([] if name == "postgres_url" else [pytest.mark.long])])
        for name, marks in DATABASES.items()
    ]
)
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of a database for this test."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def host(tmp_path: Path, database_url: str) -> Iterator[Host]:
    """A host whose service commits for its workers, on each database. A slow machine does not reach its timeout."""
    yield from host_on(database_url, tmp_path, 30)


@pytest.fixture
def impatient_host(tmp_path: Path, database_url: str) -> Iterator[Host]:
    """The same, for tests in which workers must reach the timeout."""
    yield from host_on(database_url, tmp_path, 2)


@pytest.fixture
def impatient_host_on_servers(tmp_path: Path, server_url: str) -> Iterator[Host]:
    """The same, on a database whose transactions other processes can outlive."""
    yield from host_on(server_url, tmp_path, 2)


@pytest.fixture(
    params=[
        pytest.param("postgres_url", id="postgresql", marks=pytest.mark.postgresql),
        pytest.param("mariadb_url", id="mariadb", marks=[pytest.mark.mariadb, pytest.mark.long]),
    ]
)
def server_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def transactions(store: Store) -> int:
    """The number of committed transactions, after a check of the whole changelog."""
    return assert_consistent(store)


def order_all(workers: list[Running], count: int = COUNT) -> None:
    for worker in workers:
        order(worker, count)


@pytest.mark.quick_variants("service.after_prepared=kill@4-postgres_url", "service.before_answer=kill@4-sqlite_url")
@pytest.mark.parametrize("database", [pytest.param(name, marks=marks) for name, marks in DATABASES.items()])
@pytest.mark.parametrize(
    "failpoint",
    [
        "writer.after_lock=kill@4", "writer.after_counter=kill@4", "writer.before_commit=kill@4",
        "service.after_prepared=kill@4", "service.before_answer=kill@4", "service.before_send=kill@4",
    ],
)  # fmt: skip
def test_service_killed_in_the_middle_of_a_group_commits_nothing_twice(
    failpoint: str, database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with contextmanager(host_on)(request.getfixturevalue(database), tmp_path, 30) as host:
        killed_in_the_middle(failpoint, host)


def killed_in_the_middle(failpoint: str, host: Host) -> None:
    service = host.service(failpoint)
    with Store(host.database) as store, Watched(host.settings) as watched:
        workers = [host.worker() for _ in range(WORKERS)]
        order_all(workers)
        assert service.wait(LONG) == -signal.SIGKILL
        for worker in workers:
            done(worker)
        assert transactions(store) == WORKERS * COUNT
        host.service()
        expected, deadline = WORKERS * COUNT, time.monotonic() + LONG
        while True:
            order_all(workers)
            last = max(map(done, workers))
            expected += WORKERS * COUNT
            # Each worker commits by itself until it tries the service again, which took the others back before.
            if host.metric("commits_total", "requests") > 0:
                break
            assert time.monotonic() < deadline, "no worker returned to the service"
        assert transactions(store) == expected
        watched.must_come_to(last, store)


@pytest.mark.long
def test_service_restarted_under_load_commits_nothing_twice(host: Host) -> None:
    service = host.service()
    with Store(host.database) as store, Watched(host.settings) as watched:
        workers = [host.worker() for _ in range(WORKERS)]
        for times in range(1, 4):
            order_all(workers)
            service.terminate()
            assert service.wait(LONG) == 0
            service = host.service()
            for worker in workers:
                done(worker)
            assert transactions(store) == times * WORKERS * COUNT
        watched.must_come_to(write(workers[0], 1), store)


@pytest.mark.long
def test_transaction_of_a_worker_killed_while_it_waits_is_not_committed(host: Host) -> None:
    service = host.service()
    with Store(host.database) as store:
        gone, other = host.worker(), host.worker()
        write(gone, 1)
        write(other, 1)
        assert host.metric("commits_total", "requests") == 2
        begin(gone)  # before the pause: a service that is stopped in a transaction blocks the database for others
        assert pause(service.pid)
        commit(gone)
        assert poll(lambda: waits_in_receive(gone), LONG)
        gone.kill()
        gone.wait()
        service.send_signal(signal.SIGCONT)
        write(other, 5)
        assert poll(lambda: host.metric("commits_total", "withdrawn") == 1, LONG)
        assert transactions(store) == 7


def waits_in_receive(worker: Running) -> bool:
    """Whether the worker's main thread waits for a socket: after ``begin``, for the answer of the stopped service."""
    return "poll" in Path(f"/proc/{worker.pid}/wchan").read_text()


@pytest.mark.long
def test_service_stopped_before_the_commit_is_left_after_the_timeout(impatient_host: Host) -> None:
    host = impatient_host
    service = host.service()
    with Store(host.database) as store:
        workers = [host.worker() for _ in range(WORKERS)]
        before = 0

        def served() -> bool:
            nonlocal before
            before += WORKERS
            for worker in workers:
                write(worker, 1)
            return host.metric("commits_total", "requests") > 0

        assert poll(served, LONG)
        pause_between_transactions(service, store)
        order_all(workers, 5)
        for worker in workers:
            done(worker)
        assert transactions(store) == before + 5 * WORKERS
        service.send_signal(signal.SIGCONT)
        assert poll(lambda: host.metric("commits_total", "withdrawn") >= 1, LONG)
        write(workers[0], 1)
        assert transactions(store) == before + 5 * WORKERS + 1


def test_service_stopped_while_it_holds_the_counter(impatient_host_on_servers: Host) -> None:
    """The server ends the stopped transaction; the workers look it up by its point, and commit by themselves."""
    host = impatient_host_on_servers
    service = host.service("service.after_prepared=stop@3")
    with Store(host.database) as store:
        workers = [host.worker() for _ in range(WORKERS)]
        order_all(workers, 5)
        for worker in workers:
            done(worker)
        assert transactions(store) == 5 * WORKERS
        service.send_signal(signal.SIGCONT)
        order_all(workers, 5)
        for worker in workers:
            done(worker)
        assert transactions(store) == 10 * WORKERS


@pytest.mark.long
def test_service_stopped_after_the_commit_is_not_asked_again(impatient_host_on_servers: Host) -> None:
    host = impatient_host_on_servers
    service = host.service("service.before_answer=stop@3")
    with Store(host.database) as store:
        workers = [host.worker() for _ in range(WORKERS)]
        order_all(workers, 5)
        for worker in workers:
            done(worker)
        service.send_signal(signal.SIGCONT)
        more = 0

        def served() -> bool:
            """Whether the service commits for all again, after what it had read before it was stopped."""
            nonlocal more
            before = host.metric("commits_total", "requests")
            more += WORKERS
            for worker in workers:
                write(worker, 1)
            return host.metric("commits_total", "requests") >= before + WORKERS

        assert poll(served, LONG)
        assert transactions(store) == 5 * WORKERS + more


def test_workers_without_a_service_commit_by_themselves(host: Host) -> None:
    with Store(host.database) as store:
        workers = [host.worker() for _ in range(2)]
        order_all(workers, 5)
        for worker in workers:
            done(worker)
        assert transactions(store) == 10


def test_forked_worker_commits_through_the_service(host: Host) -> None:
    host.service()
    with Store(host.database) as store:
        worker = host.worker()
        write(worker, 2)
        fork(worker, 3)
        write(worker, 2)
        assert transactions(store) == 7
        assert host.metric("commits_total", "requests") == 7
