"""``python -m pubsub_lib.cli`` is ``pubsub-db``."""

import sys

from pubsub_lib.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
