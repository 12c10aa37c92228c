"""A process that has imported pytest and the libraries, and forks a copy of itself for each run of pytest.

``tools/mutate`` runs pytest once for each mutant. The imports take longer than most of the tests, and a copy has them
already. Nothing of the project is imported here: each copy imports it from the folder with the mutant.

stdin: one JSON object for each run, a :class:`Request` with its fields. stdout: the process id of the run in one line,
then its exit status in another line, negative for a signal. The end of stdin ends this process.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn, TypedDict

LIBRARIES = (
    "alembic", "execnet", "hypothesis", "hypothesis.strategies", "msgspec", "oslo_config.cfg", "psycopg", "pymysql",
    "pytest", "redis.asyncio", "sqlalchemy.dialects.mysql", "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite", "stevedore", "tenacity", "xdist.workermanage", "xxhash", "zmq",
)  # fmt: skip
"""Only modules that start no thread, because a forked copy has no other thread than the one that forked."""
ALREADY_IMPORTED = "ignore::pytest.PytestAssertRewriteWarning"
"""pytest warns that it cannot rewrite the assertions of plugins that are imported here."""


class Request(TypedDict):
    """A run of pytest."""

    arguments: list[str]
    output: str
    """The file for its stdout and stderr."""
    variables: dict[str, str]
    """Added to the environment, ``PYTHONDONTWRITEBYTECODE`` among them."""


def main() -> None:
    """Serve the requests. It ends in a copy with the exit status of pytest."""
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):  # an extra that is not installed; the tests report this
            importlib.import_module(library)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        sys.exit(f"{threads} threads run after the imports, but a forked copy would have one; shorten LIBRARIES")
    # The collections of garbage in a copy then leave out the libraries, and do not copy their memory.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        request: Request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _run(request)
        _answer(pid)
        # The session of a run is ended with it, before its process id may be used again.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _answer(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _answer(number: int) -> None:
    os.write(1, b"%d\n" % number)


def _run(request: Request) -> NoReturn:
    os.setsid()
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for given, standard in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(given, standard)
    os.close(output)
    os.close(nothing)
    os.environ.update(request["variables"])  # also for the run's own children
    sys.dont_write_bytecode = bool(os.environ["PYTHONDONTWRITEBYTECODE"])
    import pytest

    sys.exit(pytest.main(["-W", ALREADY_IMPORTED, *request["arguments"]]))


if __name__ == "__main__":
    main()
