"""The logs of the JVM of an audit: only errors, by a file that is read before Spark logs its first line."""

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "SPARK_SUBMIT_OPTS"
"""The environment variable by which Spark's launcher gives options to the JVM."""
FILE: Final = Path(__file__).with_name("log4j2.properties")
_PROPERTY: Final = "log4j2.configurationFile"


def options() -> str:
    """The value of ``VARIABLE`` for an audit: that of this process, and the file unless the user has another one."""
    given = os.environ.get(VARIABLE, "")
    if _PROPERTY in given or any(_configuration().glob("log4j2*")):
        return given
    # A URI has no spaces, at which Spark divides the options. The last of two options of one name applies.
    return f"-D{_PROPERTY}={FILE.as_uri()} {given}".strip()


def _configuration() -> Path:
    """The folder of Spark's configuration, which need not exist."""
    named = os.environ.get("SPARK_CONF_DIR")
    if named:
        return Path(named)
    from pyspark.find_spark_home import _find_spark_home as spark_home

    return Path(spark_home()) / "conf"
