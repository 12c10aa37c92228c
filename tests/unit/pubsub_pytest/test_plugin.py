"""The pytest plugin in runs of its own: its fixtures work where it is installed, and cost nothing where they are not
used.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
USING = """
def test_a_controller(pubsub_local, pubsub_store, pubsub_seed):
    ports = set()
    replica = pubsub_local.replica(["tenant-1"])
    replica.on("lport", lambda change: ports.add(change.key))
    with pubsub_store.transaction() as tx:
        tx.set("lport", "p1", {"switch": "s1"}, topic="tenant-1")
    assert ports == set()
    pubsub_local.flush()
    assert ports == {"p1"}
    assert pubsub_seed == WANTED, "shown"
"""
NOT_USING = """
import sys

def test_nothing_was_loaded(request):
    assert request.config.pluginmanager.has_plugin("pubsub_lib"), "the plugin is there"
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert not loaded & {"pubsub_lib", "sqlalchemy", "msgspec", "oslo_config"}
"""


def run(tmp_path: Path, test: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """pytest in a process, a folder and a configuration of its own, with the plugin as its entry point loads it."""
    (tmp_path / "test_it.py").write_text(test)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(tmp_path)]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)


def test_the_fixtures_are_there_and_the_seed_can_be_given(tmp_path: Path) -> None:
    done = run(tmp_path, USING.replace("WANTED", "7"), "--pubsub-seed=7")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_a_failing_test_shows_its_seed_which_is_the_same_in_each_run(tmp_path: Path) -> None:
    shown = []
    for _ in range(2):
        done = run(tmp_path, USING.replace("WANTED", "None"))
        assert done.returncode == 1, done.stdout + done.stderr
        shown.append([line for line in done.stdout.splitlines() if line.startswith("--pubsub-seed=")])
    assert shown[0] == shown[1] != []


def test_who_does_not_use_it_does_not_pay_for_it(tmp_path: Path) -> None:
    done = run(tmp_path, NOT_USING)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", ["pubsub_lib", "msgspec", "sqlalchemy"])
def test_the_import_needs_nothing_but_pytest(module: str) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; import pubsub_pytest"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0
