"""What a session needs is looked for before anything is started."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pubsub_lib.audit.session import java_home, session
from pubsub_lib.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_without_a_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="needs a Java of version 17 or newer; install one"):
        java_home()


def test_a_wrong_java_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no bin/java is there; correct it or unset it"):
        java_home()


def test_a_session_that_runs_already_is_used_and_not_ours(spark: "SparkSession") -> None:
    again, ours = session()
    assert again is spark
    assert not ours


def test_it_runs_without_a_user_interface(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.range(10).selectExpr("sum(id)").collect()[0][0] == 45
