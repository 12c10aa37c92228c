"""One session for an audit, the caller's own where it has one."""

from typing import TYPE_CHECKING

from pubsub_lib.audit.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_that_runs_already_is_used_and_not_ours(spark: "SparkSession") -> None:
    again, ours = session()
    assert again is spark
    assert not ours


def test_it_runs_without_a_user_interface(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.range(10).selectExpr("sum(id)").collect()[0][0] == 45
