"""Reads everything, by a full and a delta sync in one snapshot: ``store_reader.py URL``."""

import sys

from pubsub_lib.core.model import ALL, ZERO, Want
from pubsub_lib.store import Store

if __name__ == "__main__":
    with Store(sys.argv[1]) as store:
        store.read_sync({ALL: Want(), "default": Want(after=ZERO)})
