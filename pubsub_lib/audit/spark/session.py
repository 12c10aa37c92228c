"""The Spark session of an audit."""

import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pubsub_lib.audit.spark import class_archive
from pubsub_lib.audit.spark.java import java
from pubsub_lib.command.signals import handler_kept
from pubsub_lib.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LISTERS: Final = 8
"""Tasks that list journals' files."""
_PARTITION: Final = 8 << 20
"""Bytes of journals (they are compressed) for one partition of a shuffle."""
_FEW: Final = 16 << 20
"""Below this number of bytes of journals there is one partition: planning several takes longer than the data."""
SMALL: Final = 64 << 20
"""Below this number of bytes of journals the JVM starts quickly and optimizes less."""
_COMPILED: Final = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
PARTITIONS: Final = "spark.sql.shuffle.partitions"
"""With 1 partition the audit is planned for little data (:mod:`pubsub_lib.audit.spark.settled`)."""
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -XX:MetaspaceSize=256m"
"""JVM options for a fast start. The JVM then also uses the archive of classes, if there is one.

The default code cache is too small for Spark's plans with these options: a full cache stops compilation. With less
memory for classes at the begin, the JVM collects garbage whenever it needs more.
"""
NAMES: Final = (
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
)
"""The classes that pyspark names without their packages, and imports by their packages."""
_JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"


def session(
    master: str = "local[*]", *, memory: str = "2g", quiet: bool = True, options: Mapping[str, str] | None = None
) -> "tuple[SparkSession, bool]":
    """A session for one audit, and whether it is new. The caller must stop a new session. Blocks for some seconds.

    Raises ConfigError when Java or pyspark is not installed, and when Spark does not start. ``quiet``: no progress bar;
    ``options``: further settings of Spark.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError("the audit needs pyspark; install the extra: pip install 'pubsub-lib[audit]'") from error
    running = SparkSession.getActiveSession()
    if running is not None:
        return running, False
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with java() as found, handler_kept():
            chosen = _with_archive(options or {}, found.text)
            made = _builder(master, memory, quiet=quiet, options=chosen).getOrCreate()
            _import_names(made)
    except (PySparkException, Py4JError, OSError) as error:
        raise ConfigError(
            f"Spark does not start with the master {master!r} and {memory!r} of memory: {first_line(error)}; "
            "correct --master or --memory"
        ) from error
    return made, True


def _builder(master: str, memory: str, *, quiet: bool, options: Mapping[str, str]) -> "SparkSession.Builder":
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(master)
        .appName("pubsub-audit")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false" if quiet else "true")
        .config("spark.driver.memory", memory)
        .config("spark.sql.session.timeZone", "UTC")
        # For errors, each operation on a column records its line of Python: half of all calls from Python to the JVM.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        # Groupings by a subset of the keys of a join need no further exchange.
        .config("spark.sql.requireAllClusterKeysForCoPartition", "false")
        # Spark lists 33 paths or more by a job, by default with one task for each path: a thousand tasks cost ten times
        # as much as listing a thousand files.
        .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", _LISTERS)
        # The audit groups by strings; the first of the two maps would hash them byte by byte.
        .config("spark.sql.codegen.aggregate.map.twolevel.enabled", "false")
    )
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder


def _import_names(spark: "SparkSession") -> None:
    """Import ``NAMES``: for each use of such a name the JVM would otherwise look for a class of that name in each
    imported package, and in all jars.
    """
    from py4j.java_gateway import java_import

    for name in NAMES:
        java_import(spark._jvm, name)


def _with_archive(options: Mapping[str, str], java_version: str) -> Mapping[str, str]:
    """The options; the quick JVM uses the archive of classes, if there is one."""
    if options.get(_JVM_OPTIONS) != QUICK_JVM:
        return options
    return {**options, _JVM_OPTIONS: f"{QUICK_JVM} {class_archive.options(java_version)}".strip()}


def first_line(error: Exception) -> str:
    """The first line of a Spark error, without the lines of Java's stack trace; its type when it has no text."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def root_cause(error: Exception) -> str:
    """The root cause, out of the many lines of a Java error."""
    lines = (line.strip() for line in str(error).splitlines())
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else first_line(error)


def partitions_for(size: int) -> int:
    """Partitions of a shuffle for journals of ``size`` bytes of Parquet."""
    return 1 if size < _FEW else math.ceil(size / _PARTITION)


def settings_for(size: int) -> dict[str, str]:
    """Settings of Spark for one audit of journals of ``size`` bytes of Parquet. A session may change them.

    With one partition few rows are shuffled, so adaptive execution, which runs a job for each shuffle, has no use. Nor
    has a broadcast, which is a job: joins look up the other table in the same task. Plans for few rows are interpreted,
    which takes half as long as generating and compiling code.
    """
    partitions = partitions_for(size)
    one = partitions == 1
    return {
        PARTITIONS: str(partitions),
        "spark.sql.adaptive.enabled": "false" if one else "true",
        "spark.sql.autoBroadcastJoinThreshold": "-1" if one else "10MB",
        # The sizes that Spark estimates for computed tables grow with each join, beyond all numbers. A single partition
        # of more bytes than these would be shuffled for the next join; the factor of the files keeps the sizes low.
        "spark.sql.maxSinglePartitionBytes": f"{(1 << 63) - 1}b" if one else "128MB",
        "spark.sql.sources.fileCompressionFactor": "1e-12" if one else "1.0",
        # For the same reason Spark would read all journals once more for a filter of the points that it looks up.
        "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
        **(_INTERPRETED if one else _COMPILED),
    }


def adapt(spark: "SparkSession", size: int) -> None:
    """Apply ``settings_for`` to a session before its next audit."""
    _set(spark, settings_for(size))


def compiled(spark: "SparkSession") -> None:
    """Let Spark generate code for all next steps of this audit, as it does with several partitions."""
    _set(spark, _COMPILED)


@contextmanager
def compiling(spark: "SparkSession") -> Iterator[None]:
    """Inside the block Spark generates code: for steps that read all objects."""
    before = {name: spark.conf.get(name) for name in _COMPILED}
    _set(spark, _COMPILED)
    try:
        yield
    finally:
        _set(spark, before)


def _set(spark: "SparkSession", settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        assert value is not None
        spark.conf.set(name, value)


def tuning(size: int) -> dict[str, str]:
    """Settings of Spark that suit journals of ``size`` bytes of Parquet (compressed).

    The number of shuffle partitions is the smallest with which each partition fits in memory, because each has a cost.
    For little data most of the time would be spent on optimizing machine code, so the JVM optimizes less.
    """
    settings = settings_for(size)
    if size >= SMALL:
        return settings
    return {**settings, _JVM_OPTIONS: QUICK_JVM}
