"""``python -m pubsub_lib.service`` is ``publisher-service``."""

import sys

from pubsub_lib.service.main import main

if __name__ == "__main__":
    sys.exit(main())
