"""The wait before a lost connection is retried doubles up to its maximum."""

import pytest

from pubsub_lib.reconnect_pause import ReconnectPause


@pytest.mark.parametrize(("first", "longest", "waits"), [(0.1, 0.5, [0.1, 0.2, 0.4, 0.5, 0.5]), (3.0, 2.0, [2.0, 2.0])])
def test_the_pause_doubles_up_to_its_maximum_and_begins_again(first: float, longest: float, waits: list[float]) -> None:
    pause = ReconnectPause(first, longest)
    for _ in range(2):
        for wait in waits:
            assert wait / 2 <= pause.next() <= wait
        pause.reset()


def test_processes_that_lost_a_connection_together_retry_at_different_times() -> None:
    assert len({ReconnectPause(1.0, 1.0).next() for _ in range(10)}) > 1
