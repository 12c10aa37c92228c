"""Files that survive a power loss: content and name are on the disk before the next step begins."""

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees it complete or not at all, also after a power loss."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content)
    rename(beside, path)


def rename(source: Path, target: Path) -> None:
    """Rename a file, or a folder with all that is in it, in its parent's file system; replaces a file."""
    if not source.is_dir():
        sync(source)
    for folder, _, names in os.walk(source):
        for name in (*names, "."):
            sync(Path(folder, name))
    source.replace(target)
    sync(target.parent)


def make(folder: Path) -> None:
    """Create a folder, and the folders above it, if they do not exist."""
    if not folder.is_dir():
        make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
