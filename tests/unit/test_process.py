"""The id of this process, in a parent and in a forked child."""

import os

from pubsub_lib.process import this_process


def test_child_has_an_id_of_its_own() -> None:
    assert this_process.pid == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if this_process.pid == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert this_process.pid == os.getpid()
