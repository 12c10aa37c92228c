"""``pubsub-db watch``: with the messages of a service, and with polling when there is no service."""

import json
import queue
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pubsub_lib.cli.commands import watch
from pubsub_lib.cli.commands.watch import cells
from pubsub_lib.cli.message_rows import ReceivedMessage
from pubsub_lib.cli.row_printer import RowPrinter
from pubsub_lib.core.envelope import Envelope
from tests.e2e.service_host import LONG
from tests.e2e.warm_start import Running
from tests.unit.cli.test_message_rows import sent
from tests.unit.cli.world import World


def write(world: World, key: str, topic: str) -> int:
    """Write one change. A running service publishes it."""
    with world.open() as store:
        with store.transaction(origin="api-1") as tx:
            tx.set("t", key, store.read_heads([]).store.position, topic=topic)
        assert tx.commit is not None
        return tx.commit.point.position


@contextmanager
def watching(world: World, *arguments: object) -> "Iterator[Running]":
    """A watch of the topic "a", with these arguments. It has received a message when the block begins."""
    process = world.process("watch", "a", *arguments)
    try:
        assert process.stderr is not None
        output = process.stderr.readline()
        by = "zmq_pubsub_driver" if world.host is not None else "db_polling_pubsub_driver"
        assert output.startswith(f"pubsub-db: listening to a by {by}"), output + process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


class LineReader:
    """JSON lines of a process, with a bound on the wait."""

    def __init__(self, process: Running) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        assert process.stdout is not None
        stream = process.stdout

        def read() -> None:
            for line in stream:
                self._lines.put(line)

        threading.Thread(target=read, daemon=True).start()

    def within(self, seconds: float) -> dict[str, Any]:
        """The next line; {} when there is none in time."""
        try:
            found: dict[str, Any] = json.loads(self._lines.get(timeout=seconds))
        except queue.Empty:
            return {}
        return found


def test_messages_of_a_topic_as_json_lines(world: World) -> None:
    with watching(world, "-f", "json") as process:
        assert process.stdout is not None
        found: dict[str, Any] = {}
        written: set[int] = set()
        # Messages that are sent before the connection is established are lost, so write until one is received.
        reader = LineReader(process)
        while not found:
            write(world, "other", "aa")  # a topic that only begins with "a"
            written.add(write(world, "k", "a"))
            found = reader.within(0.5)
        assert found["position"] in written
        assert (found["topic"], found["kind"], found["changes"]) == ("a", "link", 1)
        assert found["service"] == ("api-1" if world.host is not None else "db-polling")
        assert (found["holes"], found["missing"], found["note"]) == (0, "", "")
        assert found["sequence"] >= 1
        assert 0 <= found["latency"] < LONG * 1000
        last = write(world, "k", "a")
        before = found
        while found["position"] < last:
            found = reader.within(LONG)
            assert found["sequence"] == before["sequence"] + 1
            before = found
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG)
        assert (process.returncode, err) == (130, "")
        assert out == ""


def test_watch_prints_a_table_and_ends_by_count(world: World) -> None:
    process = world.process("watch", "--count", 1)
    try:
        while process.poll() is None:
            write(world, "k", "a")
        assert process.stdout is not None
        head, row = process.stdout.read().splitlines()
        assert head.split() == ["time", "topic", "service", "seq", "position", "chg", "latency", "holes"]
        assert row.index("a") < row.index("api-1" if world.host is not None else "db-polling")
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_watch_ends_without_error_when_its_reader_closes_the_pipe(small: World) -> None:
    with watching(small, "-f", "csv") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        while process.poll() is None:
            write(small, "k", "a")
        assert (process.returncode, process.stderr.read()) == (141, "")


def test_watch_ends_after_seconds_without_messages(world: World) -> None:
    output = world.run("watch", "quiet", "--seconds", 0.3, "-f", "json")
    assert (output.code, output.out) == (0, "")
    assert "listening to quiet by" in output.err


def test_watch_reports_that_no_publisher_has_answered(small: World, tmp_path: Path) -> None:
    config = tmp_path / "net.conf"
    config.write_text(f"{small.config.read_text()}enable_pub_sub = true\npublisher_port = 9\n")
    output = small.run("--config-file", config, "watch", "a", "--seconds", 0.2, "-f", "json")
    assert (output.code, output.out) == (0, "")
    assert re.fullmatch(
        r"pubsub-db: no publisher has answered within \d+ ms; listening to a by zmq_pubsub_driver at "
        r"tcp://127\.0\.0\.1:9; Ctrl-C ends it\n",
        output.err,
    )


def test_ctrl_c_does_not_hide_that_messages_were_not_shown(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def listening(_s: object, _store: object, _topics: object, receive: Callable[[Envelope], None]) -> Iterator[Any]:
        for sequence in range(1, 4):
            receive(sent(sequence))
        yield SimpleNamespace(ask=lambda topics: [], addresses=(), source="double")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "MAX_WAITING", 1)
    monkeypatch.setattr(watch, "listening", listening)
    monkeypatch.setattr(RowPrinter, "row", interrupt)
    output = small.run("watch", "a")
    assert (output.code, output.out) == (130, "")
    assert output.err.splitlines() == [
        "pubsub-db: listening to a by double; Ctrl-C ends it",
        "pubsub-db: 2 messages were received but not shown: the output was too slow",
    ]


def test_errors(small: World) -> None:
    small.run("watch", "--count", 0).failed(2, "--count must be a number from 1")
    small.run("watch", "--seconds", "-1").failed(2, "--seconds a number above 0")
    small.run("watch", "").failed(2, "topic")
    small.run("watch", "a", "-c", "nope").failed(2, "no column 'nope'")
    text = small.config.read_text()
    small.config.write_text(text + "enable_pub_sub = true\npub_sub_driver = memory\n")
    try:
        small.run("watch", "a").failed(2, "the driver 'memory' lacks the capability 'cross_process'")
    finally:
        small.config.write_text(text)


def test_table_cell_joins_holes_and_note() -> None:
    row = ReceivedMessage(1.5, "hello", "a", "s", "u", 9, 7, 0, None, 2, "8-9", "last messages lost")
    values, shown = cells(row)
    assert values == (
        "1970-01-01T00:00:01.500Z", "hello", "a", "s", "u", 9, 7, 0, None, 2, "8-9", "last messages lost",
    )  # fmt: skip
    assert shown[9] == "2 missing: 8-9; last messages lost"
    assert (shown[0], shown[8]) == ("00:00:01", "")
    assert cells(ReceivedMessage(1.5, "link", "a", "s", "u", 9, 7, 1, 0.0123, 0, "", ""))[1][8:10] == ["12 ms", ""]


def test_unusable_database_is_an_error(small: World, tmp_path: object) -> None:
    small.run("watch", "a", "--database", f"sqlite:///{tmp_path}/no.db").failed(4, "does not exist")
    small.run("watch", "a", "--database", "nonsense").failed(2, "URL")
