"""The publisher service of a test that measures its sending thread.

``service_noting.py FILE GUARD ARGUMENTS`` writes the system's number of that thread to FILE and is the service then.
GUARD "unguarded": no connection is paused, and none is dropped, whatever clients send.
"""

import sys
import threading
import time
from pathlib import Path
from unittest.mock import patch

from pubsub_lib.service.main import main
from pubsub_zmq import publisher


def note(file: Path) -> None:
    """Write the number of the sending thread as soon as there is one."""
    while True:
        for each in threading.enumerate():
            if each.name == "pubsub-zmq-send" and each.native_id is not None:
                file.write_text(str(each.native_id))
                return
        time.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[2] == "unguarded":
        patch.object(publisher, "guard_of", return_value=None).start()
    threading.Thread(target=note, args=(Path(sys.argv[1]),), daemon=True).start()
    sys.exit(main(sys.argv[3:]))
