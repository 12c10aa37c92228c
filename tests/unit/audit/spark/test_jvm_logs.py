"""Which configuration of logs the JVM of an audit gets, and what it then prints."""

import subprocess
import sys
from pathlib import Path

import pytest

from pubsub_lib.audit.spark import jvm_logs
from pubsub_lib.audit.spark.java import found_java
from pubsub_lib.errors import ConfigError
from tests.conftest import IN_CI

OURS = f"-Dlog4j2.configurationFile={jvm_logs.FILE.as_uri()}"
LOG = """
from pubsub_lib.audit.spark.session import session, tuning
spark, _ = session(options=tuning(0))
assert spark.range(30).selectExpr("sum(id)").collect()[0][0] == 435
logger = spark._jvm.org.apache.logging.log4j.LogManager.getLogger("some.part")
logger.warn("a warning")
logger.error("a real error")
spark.stop()
"""


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


def test_our_file_is_used_and_further_options_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert jvm_logs.options() == OURS
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=b")
    assert jvm_logs.options() == f"{OURS} -Da=b"
    monkeypatch.delenv("SPARK_CONF_DIR")
    assert jvm_logs.options() == f"{OURS} -Da=b", "a pyspark has no folder of configuration"


def test_file_of_the_user_takes_precedence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dlog4j2.configurationFile=/etc/mine.xml")
    assert jvm_logs.options() == "-Dlog4j2.configurationFile=/etc/mine.xml"
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    (tmp_path / "log4j2.properties").write_text("rootLogger.level = info\n")
    assert jvm_logs.options() == ""


def test_only_errors_are_printed() -> None:
    try:
        found_java()
    except ConfigError as error:
        (pytest.fail if IN_CI else pytest.skip)(str(error))
    done = subprocess.run([sys.executable, "-c", LOG], capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.endswith(" ERROR part: a real error")
