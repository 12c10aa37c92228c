"""Files for operators that are installed with the package: the INI sample and the systemd unit (links in ``etc``)."""

from importlib.resources import files
from typing import Final

CONFIG: Final = "pubsub_lib.conf.sample"
UNIT: Final = "publisher-service.service"


def config() -> str:
    """An INI file with every option, each in a comment with its help and default. Blocks while it reads the file."""
    return _read(CONFIG)


def unit() -> str:
    """The unit of ``publisher-service`` for systemd. Blocks while it reads the file."""
    return _read(UNIT)


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
