"""Common parts of the generators of pages."""

import configparser
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


def our_drivers() -> list[str]:
    """The drivers of this project; others may be installed in the environment."""
    registry = configparser.ConfigParser()
    registry.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = registry["options.entry_points"]["pubsub_lib.drivers"].strip().splitlines()
    return sorted(line.partition("=")[0].strip() for line in lines)


def write_or_check(page: Path, text: str, arguments: Sequence[str]) -> int:
    """Write the page, or with ``--check`` only compare it. Returns the exit status: 1 when the page is stale."""
    if list(arguments) not in ([], ["--check"]):
        print(f"invalid arguments {list(arguments)}; give --check or no argument", file=sys.stderr)
        return 2
    if not arguments:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    tool = Path(sys.argv[0]).name
    print(f"{page.name} is stale; run tools/{tool} and commit the result", file=sys.stderr)
    return 1
