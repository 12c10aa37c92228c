"""``python -m pubsub_lib.cli``: the command ``pubsub-db`` without its script."""

import sys

from pubsub_lib.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
