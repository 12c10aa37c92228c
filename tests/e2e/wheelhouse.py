"""A folder of wheels for pip without a registry: the distributions of this environment, packed again.

pip itself chooses and installs from it what the metadata of a wheel requires, so a new environment has these
distributions and no others.
"""

import csv
import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def metadata_name(wheel: zipfile.ZipFile) -> str:
    """The name of the wheel's file of metadata."""
    (name,) = (each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
    return name


def required_by(wheel: Path, extras: Iterable[str]) -> dict[str, Distribution]:
    """The distributions of this environment that the wheel with these extras requires, also indirectly, by name.

    Raises PackageNotFoundError when one is not installed.
    """
    with zipfile.ZipFile(wheel) as opened:
        headers = HeaderParser().parsestr(opened.read(metadata_name(opened)).decode())
    own = canonicalize_name(headers["Name"])
    of_wheel = headers.get_all("Requires-Dist", [])
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(own, extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        if name != own:
            found[name] = distribution(name)
        for each in _needed(of_wheel if name == own else found[name].requires or [], extra):
            waiting += [(canonicalize_name(each.name), one) for one in ("", *each.extras)]
    return found


def _needed(lines: Iterable[str], extra: str) -> Iterator[Requirement]:
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def pack(installed: Distribution, folder: Path) -> None:
    """Write the wheel of an installed distribution: what it has in ``site-packages``. pip makes its commands again."""
    files = [
        each
        for each in installed.files or ()
        if each.parts[0] != ".." and "__pycache__" not in each.parts and each.name not in ("INSTALLER", "REQUESTED")
    ]
    (record,) = (each for each in files if each.name == "RECORD" and each.parts[0].endswith(".dist-info"))
    tags = HeaderParser().parsestr(installed.read_text("WHEEL") or "").get_all("Tag", [])
    tag = "-".join(".".join(dict.fromkeys(part)) for part in zip(*(each.split("-") for each in tags), strict=True))
    name = re.sub(r"[-_.]+", "_", installed.metadata["Name"])
    with zipfile.ZipFile(folder / f"{name}-{installed.version}-{tag}.whl", "w") as wheel:
        for each in files:
            if each != record:
                wheel.write(Path(str(installed.locate_file(each))), str(each))
        kept = {str(each) for each in files}
        rows = csv.reader(io.StringIO(installed.read_text("RECORD") or ""))
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows(row for row in rows if row[0] in kept)
        wheel.writestr(str(record), lines.getvalue())


def without_requirement(wheel: Path, name: str, folder: Path) -> Path:
    """Write the same wheel into another folder, with metadata that do not require the distribution ``name``."""
    written = folder / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(written, "w") as target:
        for each in source.infolist():
            content = source.read(each)
            if each.filename == metadata_name(source):
                line = re.compile(rf"^Requires-Dist: {re.escape(name)}\b.*\n", re.MULTILINE)
                text, removed = line.subn("", content.decode())
                assert removed == 1, f"the wheel does not require {name} once"
                content = text.encode()
            target.writestr(each, content)
    return written
