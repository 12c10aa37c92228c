"""``tools/simulate`` calls it in the environment that it set up."""

import signal
import sys
from pathlib import Path

from _termination import run

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the simulator is not installed

from simulator.command import main

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # "| head" ends the trace without an error
    sys.exit(run("tools/simulate", lambda: main(sys.argv[1:])))
