"""``top`` and ``watch`` in real terminals, small and large, with a running service and one that is killed."""

import math
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from pubsub_lib import Store
from pubsub_lib.errors import ConfigError
from tests.conftest import IN_CI
from tests.e2e.service_host import Host
from tests.e2e.terminal import PROMPT, Terminal, terminal, tmux

SIZES = {"80x24": (80, 24), "200x60": (200, 60)}


@pytest.fixture(autouse=True)
def need_tmux() -> None:
    try:
        tmux()
    except ConfigError as error:
        if IN_CI:
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    host = Host(tmp_path, sqlite_url)
    with Store(sqlite_url):
        pass  # creates the tables
    yield host
    host.close()


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    return SIZES[request.param]


def write(host: Host, *topics: str) -> int:
    """Commit a change on each topic; the service reads them from the changelog and publishes them."""
    with Store(host.database) as store:
        with store.transaction(origin=host.name) as tx:
            for topic in topics:
                tx.set("t", topic, store.read_heads([]).store.position, topic=topic)
        assert tx.commit is not None
        return tx.commit.point.position


def column_of(lines: list[str], at: int, name: str) -> list[str]:
    """The values below a name in the line ``at``; their column ends where the name ends."""
    end = lines[at].index(name) + len(name)
    found = []
    for line in lines[at + 1 :]:
        if not line.strip():
            break
        assert line[end : end + 1].strip() == "", f"{name!r} and {line!r} are not aligned"
        found.append(line[:end].split()[-1])
    return found


def assert_restored(shell: Terminal, code: int) -> None:
    """Check that the shell is back on its own screen, with cursor and echo, and the command's exit code; no output."""
    lines = shell.until(lambda lines: f"ended with {code}" in lines)
    assert not any("Traceback" in line for line in lines)
    assert (shell.state("alternate_on"), shell.state("cursor_flag")) == ("0", "1")
    shell.type("clear; stty -a | tr ' ' '\\n' | grep -x -e -*echo -e -*icanon")
    # The typed line contains the words, too, until it is cleared.
    shell.until(lambda lines: {"echo", "icanon", PROMPT.strip()} <= set(lines))
    shell.clear()


@pytest.mark.quick_variants(1)
@pytest.mark.slow
def test_top_fits_the_terminal_and_restores_it(host: Host, size: tuple[int, int]) -> None:
    width, height = size
    topics = [f"tenant-{number}" for number in range(70)]
    write(host, *topics)
    service = host.service()
    with terminal(width, height) as shell:
        shell.type(f"pubsub-db top --interval 0.2 --config-file {host.config}; echo ended with $?")

        def full(lines: list[str]) -> bool:
            # The last line is drawn last. So it belongs to a whole frame, and the frame before it showed no topics.
            foot = lines[-1].startswith("q ends") and "more topics" in lines[-1]
            return foot and "topics 70" in lines[1] and "tcp://" in "".join(lines)

        lines = shell.until(full)
        assert len(lines) == height
        assert all(len(line) <= width for line in lines)
        assert lines[0].startswith("pubsub-db top  sqlite:///")
        assert re.search(r"\d\d:\d\d:\d\d UTC$", lines[0])
        at = next(number for number, line in enumerate(lines) if line.startswith("topic "))
        shown = len(column_of(lines[:-1], at, "objects"))
        assert f"{70 - shown} more topics" in lines[-1]
        assert column_of(lines[:-1], at, "objects") == ["1"] * shown
        assert len(column_of(lines[:-1], at, "holes")) == shown

        # A message is received: its topic comes first, with its rate.
        def received(lines: list[str]) -> bool:
            write(host, "tenant-69")
            rows = [line.split() for line in lines if line.startswith("tenant-69 ")]
            return bool(rows) and float(rows[0][3]) > 0

        shell.until(received)

        # No service publishes any more: the topic lags, and the lease expires.
        service.kill()
        service.wait()
        write(host, "tenant-42")

        def late(lines: list[str]) -> bool:
            row = next((line.split() for line in lines if line.startswith("tenant-42 ")), [])
            ended = any("api-1" in line and "ended" in line for line in lines)
            return len(row) > 5 and row[5] == "s" and ended

        shell.until(late)

        other = SIZES["200x60"] if size == SIZES["80x24"] else SIZES["80x24"]
        shell.resize(*other)
        lines = shell.until(
            lambda lines: (
                len(lines) == other[1]
                and lines[0].startswith("pubsub-db top")
                and lines[-1].startswith("q ends")
                and any(line.startswith("topic ") for line in lines)
            )
        )
        assert all(len(line) <= other[0] for line in lines)
        assert sum(line.startswith("q ends") for line in lines) == 1
        column_of(lines[:-1], next(n for n, line in enumerate(lines) if line.startswith("topic ")), "holes")

        shell.press("q")
        assert_restored(shell, 0)
        shell.type(f"pubsub-db top --config-file {host.config}; echo ended with $?")
        shell.until(lambda lines: lines[-1].startswith("q ends"))
        shell.press("C-c")
        assert_restored(shell, 130)


def test_watch_fits_and_ends_quietly(host: Host, size: tuple[int, int]) -> None:
    width, height = size
    long = "a-topic-with-a-rather-long-name"
    write(host, long, "short")
    host.service()
    with terminal(width, height) as shell:
        shell.type(f"clear; pubsub-db watch --config-file {host.config}; code=$?; echo; echo ended with $code")

        def rows(lines: list[str]) -> list[str]:
            return [line for line in lines if re.match(r"\d\d:\d\d:\d\d  ", line)]

        last = -math.inf

        def received(lines: list[str]) -> bool:
            nonlocal last
            if time.monotonic() - last >= 1.0:  # more at once after a stall would move the header off the screen
                write(host, long, "short")
                last = time.monotonic()
            return len(rows(lines)) >= 4

        lines = shell.until(received)
        at = next(number for number, line in enumerate(lines) if line.startswith("time "))
        names = lines[at]
        assert names.split() == ["time", "topic", "service", "seq", "position", "chg", "latency", "holes"]
        below = rows(lines)
        assert all(len(line) <= width for line in below)
        place = names.index("topic")
        topics = {line[place : names.index("service")].strip() for line in below}
        assert topics == {"short", long if width > 100 else long[: len(max(topics, key=len)) - 1] + "…"}
        for row in below:
            assert row[names.index("service") :].startswith("api-1 ")
            assert row[: names.index("position") + len("position")].split()[-1].isdigit()
        shell.press("C-c")
        assert_restored(shell, 130)


@pytest.mark.parametrize("option", ["", "--values"])
def test_a_followed_log_fits_80_columns_with_wide_names(option: str, host: Host) -> None:
    topics = ("東京都港区虎ノ門一丁目十七番", "short")
    write(host, *topics)
    with terminal(80, 24) as shell:
        shell.type(f"clear; pubsub-db log --follow --since 0 {option} --config-file {host.config}")
        lines = shell.until(lambda lines: sum(bool(re.match(r" {7}\d  create  ", line)) for line in lines) == 2)
        names, *rows = [line for line in lines if line.strip()]
        wanted = ["position", "action", "topic", "table", "key", "value" if option else "written"]
        assert names.split() == wanted
        assert len(rows) == 2, "a line was broken"
        assert "東京" in rows[0] + rows[1]
        ends = {cell_len(row[: re.search(r"\bt\b", row).start()]) for row in rows}  # type: ignore[union-attr]
        assert ends == {names.index("table")}
        shell.press("C-c")
