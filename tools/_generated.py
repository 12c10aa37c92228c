"""Common parts of the generators of pages."""

import configparser
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

WIDTH: Final = 100
"""Maximum length of a line of prose."""
_ITEM: Final = re.compile(r"\s*([-*]|\d+\.) ")
_KEPT: Final = ("|", "#", "    ", "<")
"""How the lines begin that stay as they are: tables, headings, code, HTML."""


def our_drivers() -> list[str]:
    """The drivers of this project; others may be installed in the environment."""
    registry = configparser.ConfigParser()
    registry.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = registry["options.entry_points"]["pubsub_lib.drivers"].strip().splitlines()
    return sorted(line.partition("=")[0].strip() for line in lines)


def wrapped(page: str) -> str:
    """The page (Markdown) with paragraphs and list items that have too long lines wrapped again."""
    lines: list[str] = []
    block: list[str] = []
    fenced = False
    for line in [*page.split("\n"), "#"]:
        fence = line.startswith("```")
        if fence or fenced or not line.strip() or line.startswith(_KEPT):
            lines += _fitting(block)
            block = []
            lines.append(line)
            fenced ^= fence
            continue
        if _ITEM.match(line):
            lines += _fitting(block)
            block = []
        block.append(line)
    return "\n".join(lines[:-1])


def _fitting(block: Sequence[str]) -> Sequence[str]:
    if all(len(line) <= WIDTH for line in block):
        return block
    item = _ITEM.match(block[0])
    indent = " " * len(item.group()) if item else ""
    text = " ".join([block[0], *(line.strip() for line in block[1:])])
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


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
