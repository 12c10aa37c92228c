"""The environment of the tests of ``pubsub-db``: a database with or without a publisher service, and the command."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _children import environment

from pubsub_lib import Settings, Store
from pubsub_lib.cli.main import main
from tests.e2e.service_host import Host
from tests.e2e.warm_start import Running, WarmProcess

ROOT = Path(__file__).resolve().parents[3]


class CommandResult(msgspec.Struct, frozen=True):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output as JSON. The exit code must be 0."""
        assert self.code == 0, self
        return json.loads(self.out)

    def failed(self, code: int, *words: str) -> None:
        """Assert this exit code, no output, and one error sentence that contains these words."""
        assert (self.code, self.out) == (code, ""), self
        assert self.err.startswith("pubsub-db: ")
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        for each in words:
            assert each in self.err


class World:
    """One database with its INI file. ``run`` calls the command in this process, ``process`` in a separate process."""

    def __init__(self, url: str, config: Path, host: Host | None = None) -> None:
        self.url = url
        self.config = config
        self.host = host
        """The host whose publisher service gets the commits of commands; None without a service."""
        self.capture: pytest.CaptureFixture[str] | None = None

    @property
    def settings(self) -> Settings:
        """The settings of a replica."""
        return Settings.from_file(self.config)

    @property
    def head(self) -> int:
        """The store's newest position."""
        with self.open() as store:
            return store.read_heads([]).store.position

    def value(self, table: str, key: str) -> Any:
        """An object's value, or None."""
        with self.open() as store:
            return store.get(table, key)

    def contents(self) -> dict[tuple[str, str], tuple[str, Any]]:
        """Every object: (table, key) -> (topic, value)."""
        with self.open() as store:
            return {(each.table, each.key): (each.topic, json.loads(each.value)) for each in store.objects()}

    def open(self) -> Store:
        """The store, for preparations and checks."""
        return Store(self.url)

    def run(self, *arguments: object) -> CommandResult:
        """The command with these arguments and ``--config-file``."""
        assert self.capture is not None
        self.capture.readouterr()
        code = main(["--config-file", str(self.config), *map(str, arguments)])
        out, err = self.capture.readouterr()
        return CommandResult(code, out, err)

    def process(self, *arguments: object, **options: Any) -> Running:
        """The same in a separate process; its streams are pipes unless ``options`` name others."""
        return start("--config-file", self.config, *arguments, **options)


def start(*arguments: object, failpoint: str = "", **options: Any) -> Running:
    """``pubsub-db`` in a separate process. ``failpoint``: see :mod:`pubsub_lib.failpoints`. ``options`` are those of
    Popen: with some, the process is a new Python.
    """
    command = ["-m", "pubsub_lib.cli", *map(str, arguments)]
    variables = {"PUBSUB_LIB_FAILPOINT": failpoint}
    if not options:
        process = WarmProcess(command, variables)
        assert process.stdin is not None
        process.stdin.close()
        return process
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, *command], env=environment(variables), text=True, **{**streams, **options})


def imported(*arguments: object) -> tuple[str, set[str]]:
    """What ``pubsub-db`` printed in a new process, and the modules that the process has imported."""
    code = (
        "import sys; from pubsub_lib.scripts import pubsub_db; sys.argv[0] = 'pubsub-db'; code = pubsub_db(); "
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, set(done.stderr.split())


def fill(store: Store) -> None:
    """Three objects in two tables on two topics."""
    with store.transaction() as tx:
        tx.set("lport", "p1", {"switch": "s1", "chassis": "host-7"}, topic="tenant-1")
        tx.set("lport", "p2", {"switch": "s1", "chassis": "höst-8"}, topic="tenant-2")
        tx.set("switch", "s1", {"name": "edge 1"}, topic="tenant-1")


def empty(store: Store) -> None:
    """Delete all objects."""
    with store.transaction() as tx:
        for each in store.objects():
            tx.delete(each.table, each.key)
