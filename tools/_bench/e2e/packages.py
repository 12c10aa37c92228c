"""Servers from Debian packages, unpacked in the user's cache folder with the libraries that this system lacks."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from _bench.e2e.downloads import cache, complete, output
from _bench.e2e.side import LeftOutError

DEPTH = 4
"""Maximum depth of the libraries' own dependencies."""


class Unpacked(msgspec.Struct, frozen=True):
    """Programs by name, the variables with which they run, and the package with its version."""

    programs: Mapping[str, Path]
    variables: Mapping[str, str]
    version: str


def server(package: str, programs: Sequence[str], more: Sequence[str] = ()) -> Unpacked:
    """The programs of a package, and of ``more``, which it needs besides libraries; downloaded at the first time.
    Raises LeftOutError.
    """
    folder = cache() / "servers" / package
    if not folder.exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise LeftOutError(f"{package} cannot be downloaded: this system has no apt-get and dpkg-deb")
        with complete(folder) as made:
            unpack([package, *more], made)
            for _ in range(DEPTH):
                if not missing(made, programs):
                    break
                unpack(libraries(made), made)
    lost = missing(folder, programs)
    if lost:
        raise LeftOutError(f"{package} cannot be started: the library {lost[0]} is missing; remove {folder}")
    version = next((folder / "packages").glob(f"{package}_*")).name.split("_")[1].replace("%3a", ":")
    found = {name: program(folder, name) for name in programs}
    return Unpacked(found, {"LD_LIBRARY_PATH": library_path(folder)}, f"{package} {version}")


def unpack(packages: Sequence[str], folder: Path) -> None:
    """Download packages, keep their archives in ``packages``, and unpack them."""
    archives = folder / "packages"
    archives.mkdir(exist_ok=True)
    known = set(archives.glob("*.deb"))
    failure = f"{packages[0]} cannot be downloaded (if apt's lists are old or empty: apt-get update as root)"
    output(["apt-get", "download", *packages], failure, archives)
    for archive in sorted(set(archives.glob("*.deb")) - known):
        output(["dpkg-deb", "-x", str(archive), str(folder)], f"{archive.name} cannot be unpacked")


def libraries(folder: Path) -> Sequence[str]:
    """The libraries on which the unpacked packages depend, without those that are installed or unpacked."""
    archives = list((folder / "packages").glob("*.deb"))
    have = {archive.name.split("_")[0] for archive in archives}
    fields = [output(["dpkg-deb", "-f", str(each), "Depends"], f"{each.name} cannot be read") for each in archives]
    wanted = [name for field in fields for name in depended(field) if name not in have]
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted]
    listed = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
    found = [name for name in dict.fromkeys(wanted) if f"{name} installed" not in listed]
    if not found:
        raise LeftOutError(f"{archives[0].name} needs a library that no package has on which it depends")
    return found


def depended(field: str) -> Sequence[str]:
    """The libraries of a package's field ``Depends``; of alternatives the first."""
    names = [each.strip().split(" ")[0].split(":")[0] for each in field.split(",")]
    return [name for name in names if name.startswith("lib")]


def program(folder: Path, name: str) -> Path:
    """The path of an unpacked program."""
    for place in ("usr/bin", "usr/sbin"):
        if (folder / place / name).exists():
            return folder / place / name
    raise LeftOutError(f"the downloaded packages have no program {name}; remove {folder}")


def missing(folder: Path, programs: Sequence[str]) -> Sequence[str]:
    """The libraries that the programs do not find."""
    variables = {**os.environ, "LD_LIBRARY_PATH": library_path(folder)}
    found = []
    for name in programs:
        command = ["ldd", str(program(folder, name))]
        shown = subprocess.run(command, capture_output=True, text=True, check=False, env=variables).stdout
        found += [line.split()[0] for line in shown.splitlines() if line.endswith("not found")]
    return found


def library_path(folder: Path) -> str:
    """``LD_LIBRARY_PATH`` with the unpacked libraries."""
    unpacked = [str(each) for each in folder.glob("usr/lib/*-linux-gnu*")]
    return os.pathsep.join([*unpacked, *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])])
