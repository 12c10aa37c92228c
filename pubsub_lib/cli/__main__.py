"""``python -m pubsub_lib.cli``: the command ``pubsub-db`` without its script, and as quiet at Ctrl-C.

But for the moment in which Python imports ``pubsub_lib`` itself: that comes before this line, and only the script
stands outside of it.
"""

import sys

from pubsub_db import main

if __name__ == "__main__":
    sys.exit(main())
