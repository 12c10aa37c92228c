"""Children are ended with their block, import the project, and their errors name them."""

import os
import queue
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import _children
import pytest
from _children import ChildError, Children, Line, attached, environment, python
from _processes import alive, children, poll

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
# A program with a child in another session: the end of a child must reach it.
FAMILY = f"import subprocess; subprocess.run({SLEEPS!r}, start_new_session=True)"


def test_children_end_with_their_block_after_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Children() as family:
        program = family.start("sleeper", SLEEPS)
        forked = family.fork(silent)
        assert alive(program.pid)
        raise ZeroDivisionError
    assert program.process.returncode == -signal.SIGKILL
    with pytest.raises(OSError, match="closed"):
        forked.send()


def test_the_end_of_a_program_ends_its_descendants() -> None:
    with Children() as family:
        program = family.start("family", [sys.executable, "-c", FAMILY])
        assert poll(lambda: len(children(program.pid)) == 1, 30.0)
        below = children(program.pid)
    assert not any(map(alive, below))


def test_a_child_that_was_ended_is_not_ended_again_with_the_block() -> None:
    ends: list[str] = []

    class Child:
        def end(self) -> None:
            ends.append("end")

    with Children() as family:
        child = family.add(Child)
        family.end(child)
        assert ends == ["end"]
    assert ends == ["end"]


@pytest.mark.parametrize("whole", [True, False])
def test_the_end_of_a_whole_session_ends_processes_that_a_program_left(whole: bool) -> None:
    code = f"import subprocess; print(subprocess.Popen({SLEEPS!r}).pid, flush=True)"
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with Children() as family:
        program = family.start("parent", [sys.executable, "-c", code], on_line=lines.put, whole_session=whole)
        left = int(lines.get(timeout=30.0) or 0)
        assert program.process.wait(30.0) == 0
        if not whole:
            assert alive(left)
            os.kill(left, signal.SIGKILL)  # it holds the pipe
    assert poll(lambda: not alive(left), 5.0)


@pytest.mark.usefixtures("signal_handlers")
def test_interrupt_during_a_start_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def interrupted(command: list[str], **given: Any) -> "subprocess.Popen[bytes]":
        started.append(popen(command, **given))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    monkeypatch.setattr("_children.subprocess.Popen", interrupted)
    with pytest.raises(KeyboardInterrupt), Children() as family:
        family.start("sleeper", SLEEPS)
    assert started[0].returncode == -signal.SIGKILL


def test_a_child_that_cannot_be_ended_does_not_keep_others_running() -> None:
    class Stubborn:
        def end(self) -> None:
            raise TimeoutError("it still runs")

    with pytest.raises(TimeoutError), Children() as family:
        program = family.start("sleeper", SLEEPS)
        family.add(Stubborn)
    assert program.process.returncode == -signal.SIGKILL


def test_a_program_reads_orders_and_its_lines_are_received() -> None:
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with Children() as family:
        program = family.start("cat", ["cat"], stdin=subprocess.PIPE, on_line=lines.put)
        program.write(b"one")
        assert lines.get(timeout=30.0) == b"one\n"
        program.kill()
        assert lines.get(timeout=30.0) is None
        program.write(b"two")  # the end of the program is reported by the end of its output


def test_stop_reports_a_status_and_the_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = 'trap "echo sorry >&2; exit 3" TERM; echo ready; while :; do sleep 0.1; done'
    with Children() as family:
        family.start("quiet", ["true"], log=tmp_path / "empty")
        program = family.start("shell", ["sh", "-c", script], log=log)
        assert poll(lambda: "ready" in log.read_text(), 30.0)
        with pytest.raises(ChildError, match="the shell ended with status 3 after SIGTERM: sorry"):
            program.stop(30.0)
        deaf = family.start("deaf", ["sh", "-c", 'trap "" TERM; echo; while :; do sleep 0.1; done'], log=log)
        assert poll(lambda: log.read_text().endswith("\n\n"), 30.0)
        with pytest.raises(ChildError, match="the deaf did not end within 0 s after SIGTERM"):
            deaf.stop(0.2)


def test_last_words_of_an_empty_log(tmp_path: Path) -> None:
    with Children() as family:
        program = family.start("true", ["true"], log=tmp_path / "log")
        program.process.wait(30.0)
        assert program.last_words() == "it wrote no error"
        assert family.start("true", ["true"]).last_words() == "it wrote no error"


def test_output_of_a_failed_program_is_its_last_line() -> None:
    with Children() as family:
        assert family.output("echo", ["echo", "x"]) == b"x\n"
        with pytest.raises(ChildError, match="shell ended with 4: second"):
            family.output("shell", ["sh", "-c", "echo first >&2; echo second >&2; exit 4"])
        with pytest.raises(ChildError, match="shell ended with 5: it wrote no error"):
            family.output("shell", ["sh", "-c", "exit 5"])


def test_children_import_the_project_from_this_tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    given = environment({"X": "1"})
    assert given["X"] == "1"
    assert given["PYTHONPATH"].split(os.pathsep) == [*map(str, _children.FOLDERS), "/elsewhere"]
    with Children() as family:
        code = "import pubsub_lib, pubsub_zmq, _processes; print(_processes.__file__)"
        output = family.output("python", [sys.executable, "-c", code])
    assert Path(output.decode().strip()) == _children.ROOT / "tools" / "_processes.py"


def test_an_attached_program_is_killed_with_its_parent() -> None:
    code = (
        "import subprocess, sys\n"
        "print(subprocess.Popen(sys.argv[1:], start_new_session=True).pid, flush=True)\n"
        "import time; time.sleep(600)"
    )
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with Children() as family:
        # The module "timeit" repeats this statement once.
        below = attached("timeit", "-n", 1, "-r", 1, "import time; time.sleep(600)")
        parent = family.start("parent", [sys.executable, "-c", code, *below], on_line=lines.put)
        pid = int(lines.get(timeout=30.0) or 0)
        assert poll(lambda: b"timeit" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[2:3], 30.0)
        parent.kill()
        assert poll(lambda: not alive(pid), 30.0)


def test_python_runs_a_module_with_arguments_of_any_type() -> None:
    assert python("x", 1, Path("/y")) == [sys.executable, "-m", "x", "1", "/y"]


def failing(line: Line, items: list[int]) -> None:
    line.send(len(items))
    line.wait()
    raise ValueError("on purpose")


def silent(line: Line) -> None:
    line.wait()


def killed(_line: Line) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_sent_waits_for_an_object_or_the_end_of_a_forked_process() -> None:
    with Children() as family:
        child = family.fork(failing, [])
        assert child.sent(30.0)
        assert child.receive() == 0
        assert not child.sent(-1.0)
        child.send()
        assert child.sent(30.0)
        assert family.fork(killed).sent(30.0)


def test_error_names_a_forked_process_that_fails_sends_nothing_or_ends() -> None:
    with Children() as family:
        child = family.fork(failing, [])
        assert child.receive() == 0
        child.send()
        with pytest.raises(ChildError, match=r"'failing' failed: (?s:.)*on purpose"):
            child.receive()
        with pytest.raises(ChildError, match="'silent' sent nothing"):
            family.fork(silent).receive(0.05)
        with pytest.raises(ChildError, match="'killed' ended in the middle of its work"):
            family.fork(killed).receive()
