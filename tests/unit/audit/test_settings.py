import pytest

from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"), [("window", 0), ("grace", -1), ("bound", -1), ("silence", -5), ("window", 10**21)]
)
def test_time_out_of_range_is_rejected_with_its_name(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is {value} microseconds"):
        AuditSettings(**{name: value})  # type: ignore[arg-type]
