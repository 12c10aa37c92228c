"""Called by ``tools/simulate`` in the environment that it set up."""

import sys

from pubsub_lib.testing.simulator.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
