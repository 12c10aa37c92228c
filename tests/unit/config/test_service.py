"""The options of the publisher service: bounds that a file cannot exceed."""

from pathlib import Path

import pytest

from pubsub_lib.config import options
from pubsub_lib.config.reading import Configuration
from pubsub_lib.config.service import DAY, ServiceSettings
from pubsub_lib.core.limits import MAX_LINKS
from pubsub_lib.errors import ConfigError


def test_defaults_are_within_the_bounds() -> None:
    for option in options.SERVICE:
        value = getattr(ServiceSettings(), option.dest)
        assert option.type(value) == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("lease", "0.4", False),
        ("lease", "0.5", True),
        ("grace", str(DAY), True),
        ("grace", str(DAY + 1), False),
        ("keep_links", "0", True),
        ("keep_links", str(MAX_LINKS + 1), False),
        ("metrics_port", "65536", False),
    ],
)
def test_ends_of_a_range(name: str, value: str, allowed: bool, tmp_path: Path) -> None:
    path = tmp_path / "net.conf"
    path.write_text(f"[publisher_service]\n{name} = {value}\n")
    configuration = Configuration.read(path)
    if allowed:
        assert str(configuration.values(options.SERVICE_GROUP, options.SERVICE)[name]).startswith(value[:3])
        return
    with pytest.raises(ConfigError, match=rf"'{name}' in group \[publisher_service\] cannot be used"):
        configuration.values(options.SERVICE_GROUP, options.SERVICE)
