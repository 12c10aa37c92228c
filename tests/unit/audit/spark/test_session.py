"""One session for an audit: the caller's, if it has one."""

from typing import TYPE_CHECKING

import pytest

from pubsub_lib.audit.spark import class_archive
from pubsub_lib.audit.spark.session import QUICK_JVM, _with_archive, adapt, compiled, compiling, session, tuning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_running_session_is_reused_and_not_new(spark: "SparkSession") -> None:
    again, ours = session()
    assert again is spark
    assert not ours


@pytest.mark.long
def test_session_runs_without_a_user_interface(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.range(10).selectExpr("sum(id)").collect()[0][0] == 45


def test_names_without_packages_are_those_of_classes(spark: "SparkSession") -> None:
    """The JVM finds these without a look into all jars. It reports no wrong name: an import is a text to it."""
    from pubsub_lib.audit.spark.session import NAMES

    assert spark._jvm is not None
    for name in NAMES:
        assert spark._jvm.java.lang.Class.forName(name).getName() == name


def test_partitions_follow_the_size_and_little_data_gets_the_quick_jvm() -> None:
    partitions = "spark.sql.shuffle.partitions"
    of_sizes = {size: tuning(size << 20) for size in (0, 15, 16, 64, 800)}
    found_in = {size: found[partitions] for size, found in of_sizes.items()}
    assert found_in == {0: "1", 15: "1", 16: "2", 64: "8", 800: "100"}
    assert [size for size, found in of_sizes.items() if "spark.driver.extraJavaOptions" in found] == [0, 15, 16]


def test_quick_jvm_uses_the_archive_of_its_java(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "spark.driver.extraJavaOptions"
    monkeypatch.setattr(class_archive, "options", lambda java: f"-XX:SharedArchiveFile={java}" if java else "")
    assert _with_archive(tuning(0), "17")[name] == f"{QUICK_JVM} -XX:SharedArchiveFile=17"
    assert _with_archive(tuning(0), "") == tuning(0)
    assert _with_archive(tuning(64 << 20), "17") == tuning(64 << 20)


def test_code_is_generated_only_where_it_is_wanted_and_for_the_next_audit(spark: "SparkSession") -> None:
    def generates() -> bool:
        plan = spark.range(9).filter("id > 3")._jdf.queryExecution().executedPlan().toString()
        return "*(1)" in plan and spark.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"

    adapt(spark, 0)
    assert not generates()
    with pytest.raises(ZeroDivisionError), compiling(spark):
        assert generates()
        1 / 0  # noqa: B018
    assert not generates()
    compiled(spark)
    assert generates()
    adapt(spark, 0)
    assert not generates()
    adapt(spark, 16 << 20)
    assert generates()
