"""``tools/lock``: writes ``etc/constraints.txt``, the versions of all packages with which the project was tested.

The file has the packages of this environment that the extra ``test`` needs, directly or not. Set-ups of development
environments install these versions; users of the library are not bound by them.
"""

import argparse
import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence

from _bootstrap import CONSTRAINTS, ROOT
from _command_line import Parser
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "pubsub-lib"
ROOTS = (f"{PROJECT}[test]",)
HEADER = f"""\
# The versions with which this project was tested, by tools/lock on CPython {{version}}; do not edit.
# {CONSTRAINTS.as_posix()} is used by tools/_bootstrap.py. See "Dependencies" in CONTRIBUTING.md.
"""


def needed(roots: Sequence[str]) -> dict[str, str]:
    """Name -> version of all installed packages that these requirements need. Raises PackageNotFoundError."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    left = [(Requirement(each), True) for each in roots]
    while left:
        requirement, is_root = left.pop()
        for extra in ("", *requirement.extras):
            name = canonicalize_name(requirement.name)
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                package = importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:
                if is_root:
                    raise
                continue  # needed on another platform only, or by an extra that was not installed
            if name != PROJECT:
                found[name] = package.version
            left += [(each, False) for each in _requirements(package, extra)]
    return found


def _requirements(package: importlib.metadata.Distribution, extra: str) -> Iterator[Requirement]:
    for line in package.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def text(versions: dict[str, str]) -> str:
    """The contents of the file."""
    lines = (f"{name}=={version}\n" for name, version in sorted(versions.items()))
    return HEADER.format(version=".".join(platform.python_version_tuple()[:2])) + "".join(lines)


def upgrade() -> None:
    """Install the newest versions that the project allows, without the constraints. Needs a network."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--upgrade-strategy", "eager"]
    subprocess.run([*pip, "-e", f"{ROOT}[test]"], check=True)


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    options = parse(arguments)
    if options.upgrade:
        upgrade()
    path = ROOT / CONSTRAINTS
    versions = needed(ROOTS)
    path.write_text(text(versions))
    print(f"wrote {len(versions)} versions to {CONSTRAINTS}; run tools/test before you commit it")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="tools/lock", description="Writes etc/constraints.txt from the versions in .venv.")
    parser.add_argument("--upgrade", action="store_true", help="install the newest allowed versions before")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
