"""Called by ``tools/simulate`` in the environment that it set up."""

import signal
import sys

from pubsub_lib.testing.simulator.command import main

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # "| head" ends the trace without a word
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
