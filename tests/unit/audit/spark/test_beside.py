"""A part of an audit of little data runs in a thread of its own."""

import threading
from typing import TYPE_CHECKING

import pytest

from pubsub_lib.audit.spark.beside import beside
from pubsub_lib.audit.spark.session import adapt
from tests.unit.audit.conftest import MUCH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_part_of_little_data_runs_while_the_block_runs(little: "SparkSession") -> None:
    started = threading.Event()

    def work() -> tuple[bool, int]:
        started.set()
        return threading.current_thread() is threading.main_thread(), little.range(9).filter("id > 3").count()

    with beside(little, work) as result:
        assert started.wait(30)
        assert little.range(5).count() == 5
        assert result() == (False, 5)


def test_error_of_the_part_is_raised_with_its_result(little: "SparkSession") -> None:
    def fails() -> None:
        raise ValueError("a fault")

    with beside(little, fails) as result, pytest.raises(ValueError, match="a fault"):
        result()


def test_part_of_much_data_runs_when_its_result_is_requested(spark: "SparkSession") -> None:
    adapt(spark, MUCH)
    threads: list[threading.Thread] = []
    with beside(spark, lambda: threads.append(threading.current_thread())) as result:
        assert threads == []
        result()
    assert threads == [threading.main_thread()]
