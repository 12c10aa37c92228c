"""Who judges the journals of real processes: the oracle alone, or also Spark, which takes as long as the rest."""

from typing import Final

import pytest

ORACLE: Final = "oracle"
JUDGES: Final = (ORACLE, pytest.param("oracle and spark", marks=pytest.mark.long))
