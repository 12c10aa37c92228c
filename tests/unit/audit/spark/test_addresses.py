"""Addresses for Spark, and paths from Spark's addresses; test_input.py uses a real Spark."""

from pathlib import Path

from pubsub_lib.audit.spark.addresses import path_of, to_read, to_write


def test_wildcards_are_escaped_for_reading_only(tmp_path: Path) -> None:
    assert to_write(tmp_path / "a[1]*") == f"file://{tmp_path.resolve()}/a[1]*"
    assert to_read(tmp_path / "a[1]*?{b}\\") == f"file://{tmp_path.resolve()}/a\\[1\\]\\*\\?\\{{b\\}}\\\\"


def test_path_of_decodes_an_address_of_spark() -> None:
    assert path_of("file:///a%20b/%2541+%23%C3%A4.parquet") == Path("/a b/%41+#ä.parquet")
