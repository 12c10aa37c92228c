"""What the sending thread has read of each connection, and whether anything waits."""

from pubsub_zmq.reading_progress import FRAMING, KEYED_FRAMING, LEAST_FRAMING, ReadingProgress


def test_progress_counts_messages_of_connections_with_their_framing() -> None:
    made = ReadingProgress()
    made.read(7, 100)
    made.read(7, 0)
    made.read(8, 1)
    assert (made.bytes_of(7), made.bytes_of(8), made.bytes_of(9)) == (100 + 2 * FRAMING, 1 + FRAMING, 0)
    assert made.total == 101 + 3 * LEAST_FRAMING


def test_progress_does_not_count_what_zeromq_made_for_an_ended_connection() -> None:
    made = ReadingProgress()
    made.read(None, 100)
    assert made.total == 0


def test_progress_knows_how_often_nothing_waited_before_the_last_message_of_a_connection() -> None:
    made = ReadingProgress(KEYED_FRAMING)
    assert made.last_of(7) == -1
    made.read(7, 1)
    assert made.last_of(7) == made.emptied == 0
    made.found_empty()
    made.found_empty()
    assert made.last_of(7) == 0
    made.read(7, 1)
    assert made.last_of(7) == made.emptied == 2
