"""``pubsub-db`` as a process: killed, stopped, without disk space, without its database, and on a terminal."""

import fcntl
import gzip
import json
import os
import pty
import resource
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from _private_server import PrivateServer
from _processes import wait_stopped

from pubsub_lib import Replica, Store
from tests.e2e.service_host import LONG, Host
from tests.e2e.warm_start import Running
from tests.unit.cli.world import ROOT, World

ROUTES = ROOT / "tools/data/rib-small.jsonl.gz"


@pytest.fixture(params=["sqlite_url", pytest.param("postgres_url", marks=pytest.mark.postgresql)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return made(request.getfixturevalue(request.param), tmp_path)


@pytest.fixture
def sqlite(sqlite_url: str, tmp_path: Path) -> World:
    return made(sqlite_url, tmp_path)


def made(url: str, folder: Path) -> World:
    """An empty store with its tables, and a configuration with short timeouts."""
    config = folder / "net.conf"
    config.write_text(f"[pubsub]\nstore_url = {url}\nstore_retry_max_seconds = 10\nstore_lock_timeout = 10\n")
    world = World(url, config)
    world.open().close()
    return world


def write(path: Path, count: int, size: int = 1) -> Path:
    """Write a file of ``count`` lines, in which every third key occurs twice."""
    with path.open("w") as file:
        for n in range(count):
            value = {"n": n, "text": "x" * size}
            file.write(
                json.dumps({"table": "t", "key": str(n - n % 3 % 2), "topic": f"p{n % 2}", "value": value}) + "\n"
            )
    return path


def expected(path: Path) -> dict[tuple[str, str], tuple[str, Any]]:
    """The contents of the store after the whole file."""
    found = {}
    for line in path.read_text().splitlines():
        item = json.loads(line)
        found[item["table"], item["key"]] = (item["topic"], item["value"])
    return found


def ended(process: Running) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=LONG)
    return process.wait(), out, err


@pytest.mark.quick_variants("writer.before_commit")
@pytest.mark.parametrize("place", ["writer.after_lock", "writer.before_commit", "writer.after_commit"])
def test_killed_load_completes_when_run_again(place: str, world: World, tmp_path: Path) -> None:
    path = write(tmp_path / "objects.jsonl", 200)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for number in (1, 4):  # both runs read the stored objects first, and the second gets farther
        code, out, _ = ended(world.process("load", path, "--batch", 20, failpoint=f"{place}=kill@{number}"))
        assert (code, out) == (-signal.SIGKILL, "")
        # Only whole transactions, and all before the one that was killed.
        values = {value["n"] for _, value in world.contents().values()}
        done = max(values, default=-1) + 1
        assert done % 20 == 0
        assert values == {value["n"] for _, value in last(lines[:done]).values()}
    assert 0 < done < 200
    code, out, err = ended(world.process("load", path, "--batch", 20, "-f", "json"))
    assert (code, err) == (0, "")
    assert json.loads(out)["lines"] == 200
    assert world.contents() == expected(path)


def last(lines: Sequence[dict[str, Any]]) -> dict[str, tuple[str, Any]]:
    """The state of each key after these lines."""
    return {line["key"]: (line["topic"], line["value"]) for line in lines}


@pytest.mark.quick_variants("143")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_during_a_transaction_leaves_no_partial_transaction(
    number: signal.Signals, code: int, world: World, tmp_path: Path
) -> None:
    path = write(tmp_path / "objects.jsonl", 100)
    process = world.process("load", path, "--batch", 10, failpoint="writer.before_commit=stop@4")
    assert wait_stopped(process.pid)  # it stopped itself
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    assert ended(process) == (
        code,
        "",
        "pubsub-db: the lines up to 30 are committed; run the command again, or with --from-line 31 to skip them\n",
    )
    assert max(value["n"] for _, value in world.contents().values()) == 29
    assert ended(world.process("load", path))[0] == 0
    assert world.contents() == expected(path)


def test_a_signal_during_an_export_leaves_no_file(sqlite: World, tmp_path: Path) -> None:
    assert ended(sqlite.process("load", write(tmp_path / "objects.jsonl", 30)))[0] == 0
    target = tmp_path / "out"
    target.mkdir()
    process = sqlite.process("export", target / "net.jsonl", failpoint="sync.during_snapshot=stop")
    assert wait_stopped(process.pid)
    assert [each.suffix for each in target.iterdir()] == [".part"]
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    assert ended(process) == (130, "", "")
    assert list(target.iterdir()) == []


def test_an_export_into_a_closed_pipe_ends_quietly(sqlite: World, tmp_path: Path) -> None:
    assert ended(sqlite.process("load", write(tmp_path / "objects.jsonl", 3000, 100)))[0] == 0  # more than a pipe holds
    process = sqlite.process("export", "-")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["table"] == "t"
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(LONG) == 141


def limited(size: int) -> Callable[[], None]:
    """Limit the size of the process's files. For the program, this is like a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_load_on_a_full_disk_reports_the_stored_lines(sqlite: World, tmp_path: Path) -> None:
    path = write(tmp_path / "objects.jsonl", 2000, 300)
    code, out, err = ended(sqlite.process("load", path, "--batch", 100, preexec_fn=limited(600_000)))
    assert (code, out) == (4, "")
    first, second = err.splitlines()
    assert first.startswith("pubsub-db: the lines up to ")
    assert second.startswith("pubsub-db: ")
    done = int(first.split()[5])
    assert 0 < done < 2000
    assert len(sqlite.contents()) >= done * 2 // 3
    assert ended(sqlite.process("load", path))[0] == 0
    assert sqlite.contents() == expected(path)


@pytest.mark.parametrize("name", ["net.jsonl", "net.jsonl.gz"])
def test_export_on_a_full_disk_leaves_no_file(name: str, sqlite: World, tmp_path: Path) -> None:
    path = tmp_path / "objects.jsonl"
    path.write_text("".join(
        json.dumps({"table": "t", "key": str(n), "value": os.urandom(500).hex()}) + "\n" for n in range(1000)
    ))  # fmt: skip
    assert ended(sqlite.process("load", path))[0] == 0
    target = tmp_path / "out"
    target.mkdir()
    code, out, err = ended(sqlite.process("export", target / name, preexec_fn=limited(100_000)))
    assert (code, out, err.count("\n")) == (5, "", 1)
    assert err == f"pubsub-db: the file {target / name} cannot be written (File too large); no partial file is left\n"
    assert list(target.iterdir()) == []


@pytest.mark.long
def test_load_continues_after_a_database_restart(private_postgres: PrivateServer, tmp_path: Path) -> None:
    world = made(private_postgres.url, tmp_path)
    path = write(tmp_path / "objects.jsonl", 100)
    process = world.process("load", path, "--batch", 10, failpoint="writer.before_commit=stop@4")
    assert wait_stopped(process.pid)
    private_postgres.kill()
    process.send_signal(signal.SIGCONT)
    code, out, err = ended(process)
    assert (code, out) == (4, "")
    first, second = err.splitlines()
    assert first.startswith("pubsub-db: the lines up to 30 are committed")
    assert second.startswith("pubsub-db: ")
    private_postgres.restart()
    assert ended(world.process("load", path))[0] == 0
    assert world.contents() == expected(path)


class Terminal:
    """The other side of a terminal of 80 × 24."""

    def __init__(self) -> None:
        self._outside, self.inside = pty.openpty()
        fcntl.ioctl(self.inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.seen = ""

    def until(self, words: str) -> str:
        """Read until these words were shown; with "", until no process has the terminal open."""
        while not words or words not in self.seen:
            assert select.select([self._outside], [], [], LONG)[0], self.seen
            try:
                data = os.read(self._outside, 65536)
            except OSError:
                break  # on Linux: no process has it open
            self.seen += data.decode()
        return self.seen

    def type(self, text: str) -> None:
        os.write(self._outside, text.encode())

    def close(self) -> None:
        os.close(self._outside)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 1, 1), ("y", 0, 0)])
def test_rm_asks_for_confirmation_on_a_terminal(
    answer: str, code: int, left: int, sqlite: World, terminal: Terminal
) -> None:
    with sqlite.open() as store, store.transaction() as tx:
        tx.set("t", "k", 1)
    process = sqlite.process("rm", "t", "k", stdin=terminal.inside, stderr=terminal.inside)
    os.close(terminal.inside)
    terminal.until("Delete 'k' of the table 't'? [y/N] ")
    terminal.type(f"{answer}\n")
    assert process.wait(LONG) == code
    assert ("nothing was changed" in terminal.until("")) is (answer == "n")
    assert process.stdout is not None
    process.stdout.close()
    assert len(sqlite.contents()) == left


@pytest.mark.long
def test_recorded_routes_load_with_a_bar_on_a_terminal(sqlite: World, terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "routes.jsonl.gz"
    with gzip.open(ROUTES) as whole, gzip.open(path, "wb") as some:
        for _ in range(2000):
            some.write(whole.readline())
    process = sqlite.process("load", path, "--batch", 100, "-f", "json", stderr=terminal.inside)
    os.close(terminal.inside)
    shown = terminal.until("")
    assert process.stdout is not None
    out = process.stdout.read()
    process.stdout.close()
    assert process.wait(LONG) == 0
    assert (json.loads(out)["lines"], json.loads(out)["transactions"]) == (2000, 20)  # and no bar in the output
    for words in ("loading", "━", "2,000 lines", "100%"):
        assert words in shown
    assert {topic for topic, _ in sqlite.contents().values()} >= {"as3549", "as3333"}


# A process starts with the peak of its parent. So this small process is between the test and the command.
MEASURE = (
    "import os, subprocess, sys\n"
    "process = subprocess.Popen(sys.argv[1:])\n"
    "_, status, usage = os.wait4(process.pid, 0)\n"
    "process.returncode = os.waitstatus_to_exitcode(status)\n"
    "print(process.returncode, usage.ru_maxrss)\n"
)


def peak(world: World, *arguments: object) -> float:
    """The peak of the command's resident memory, in MiB."""
    command = [sys.executable, "-m", "pubsub_lib.cli", "--config-file", str(world.config), *map(str, arguments)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    code, kilobytes = done.stdout.split()[-2:]
    assert code == "0"
    return int(kilobytes) / 1024


@pytest.mark.long
@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(sqlite: World, tmp_path: Path) -> None:
    """Memory stays below the documented limit, and five times the lines need about the same, in load and export."""
    peaks: dict[tuple[str, int], float] = {}
    for count in (20_000, 100_000):
        path = tmp_path / f"{count}.jsonl"
        with path.open("w") as file:
            file.writelines(f'{{"table":"t","key":"{count} {n}","value":{n}}}\n' for n in range(count))
        for arguments in (("load", path, "--batch", 5000, "-q"), ("export", path, "-y", "-q")):
            peaks[arguments[0], count] = peak(sqlite, *arguments)
    print(peaks)
    assert max(peaks.values()) < 150, peaks
    for command in ("load", "export"):
        assert peaks[command, 100_000] < peaks[command, 20_000] + 15, peaks


def test_service_continues_after_a_forced_dropall_and_init(sqlite_url: str, tmp_path: Path) -> None:
    host = Host(tmp_path, sqlite_url, sync_backoff=0.1, max_sync_backoff=0.5, max_idle_time=1.0, poll_interval=0.2)
    world = World(sqlite_url, host.config, host)
    try:
        world.open().close()
        service = host.service()
        with Replica(host.settings) as replica:
            replica.wait_synced(LONG)
            assert ended(world.process("add", "lport", "p1", "1"))[0] == 0
            replica.wait_for(world.head, LONG)
            assert ended(world.process("dropall", "--yes", "--force"))[0] == 0
            assert ended(world.process("init"))[0] == 0
            assert ended(world.process("add", "lport", "p2", "2"))[0] == 0
            with Store(sqlite_url) as store, store.transaction() as tx:
                tx.set("lport", "p3", 3)
            assert tx.commit is not None
            replica.wait_for(tx.commit, LONG)
            assert {each.key for each in replica.records("lport")} == {"p2", "p3"}
        assert service.poll() is None
    finally:
        host.close()
