"""The file of tested versions: complete, exact, and made from the environment."""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import lock_app
import pytest
from _bootstrap import CONSTRAINTS, ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FILE = ROOT / CONSTRAINTS
LINES = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]


def test_file_has_one_exact_version_of_each_package_in_order() -> None:
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.+!]+", line) for line in LINES)
    names = [line.partition("==")[0] for line in LINES]
    assert names == sorted(set(names))


@pytest.mark.skipif(
    "CPython {}.{};".format(*sys.version_info) not in FILE.read_text(), reason="another Python may need other packages"
)
def test_file_names_every_package_that_the_environment_needs() -> None:
    """The versions may differ: tools/_bootstrap.py installs others when these are not available."""
    locked = {line.partition("==")[0] for line in LINES}
    missing = set(lock_app.needed(lock_app.ROOTS)) - locked
    assert missing == set(), "run tools/lock"


def test_locked_versions_fit_the_requirements_of_the_project() -> None:
    locked = dict(line.split("==") for line in LINES)
    text = (ROOT / "pyproject.toml").read_text()
    wanted = [Requirement(each) for each in re.findall(r'^    "([^"\[]+>=[^"]+)"', text, re.MULTILINE)]
    assert len(wanted) > 20
    assert [each for each in wanted if not each.specifier.contains(locked[canonicalize_name(each.name)])] == []


def test_needed_follows_extras_and_skips_other_platforms() -> None:
    plain, more = lock_app.needed(["pubsub-lib"]), lock_app.needed(["pubsub-lib[zmq]"])
    assert set(more) - set(plain) == {"pyzmq"}
    assert plain["msgspec"] == version("msgspec")
    with pytest.raises(PackageNotFoundError):
        lock_app.needed(["no-such-package-of-ours"])


def test_command_writes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "etc").mkdir()
    monkeypatch.setattr(lock_app, "ROOT", tmp_path)
    monkeypatch.setattr(lock_app, "ROOTS", ("xxhash",))
    assert lock_app.main([]) == 0
    written = (tmp_path / CONSTRAINTS).read_text().splitlines()
    assert written[-1] == f"xxhash=={version('xxhash')}"
    assert written[0].startswith("# The versions with which this project was tested, by tools/lock on CPython 3.")
    assert "wrote 1 versions" in capsys.readouterr().out


def test_commands_that_use_the_file_are_valid_scripts() -> None:
    for name in ("lock", "check-dependencies"):
        script = ROOT / "tools" / name
        assert script.stat().st_mode & 0o111
        subprocess.run(["bash", "-n", str(script)], check=True)
    assert f"/{CONSTRAINTS}" in (ROOT / "tools" / "check-dependencies").read_text()
