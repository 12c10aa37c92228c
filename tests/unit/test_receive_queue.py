"""The queue from a connection to the receiving thread."""

import threading

from pubsub_lib.receive_queue import ReceiveQueue


def test_queue_is_bounded_by_number_and_size_and_takes_one_item_of_any_size() -> None:
    queue = ReceiveQueue[str](3, 100)
    assert queue.put("a", 1000)
    assert not queue.put("b", 1)
    assert queue.wait() == ["a"]
    assert [queue.put("c", 50) for _ in range(4)] == [True, True, False, False]
    assert len(queue.wait()) == 2
    assert [queue.put("c", 1) for _ in range(4)] == [True, True, True, False]


def test_queue_takes_a_mark_when_full_and_once_in_a_row() -> None:
    queue, mark = ReceiveQueue[tuple[str, bytes]](1, 100), ("", b"")
    queue.put(("a", b""), 1)
    queue.mark(mark)
    queue.mark(mark)
    assert queue.wait() == [("a", b""), mark]


def test_close_ends_the_wait() -> None:
    queue = ReceiveQueue[str](1, 100)
    taken: list[list[str]] = []
    waiting = threading.Thread(target=lambda: taken.append(queue.wait()))
    waiting.start()
    queue.close()
    waiting.join(10)
    assert taken == [[]]
