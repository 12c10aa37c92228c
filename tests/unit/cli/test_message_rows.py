"""The rows of received messages that ``watch`` and ``top`` show."""

from pubsub_lib.cli.message_rows import MessageRows, ReceivedMessage
from pubsub_lib.core.envelope import Envelope, Hello, Message
from pubsub_lib.core.model import Change, Head, Link, Point

WALL = 1000.0


def link(position: int, written_at: float = 999.5) -> Link:
    change = Change("t", "k", "set", position, b"1")
    point = Point(position, position)
    return Link("a", Point(position - 1, 1), point, [change], 1, 1, Point(position - 1, 1), 1, "api", written_at)


def sent(sequence: int, count: int = 1, *, uuid: str = "u1", topic: str = "a") -> Envelope:
    messages = [Message(link(sequence + each)) for each in range(count)]
    return Envelope("api", uuid, topic, sequence, messages)


def greeting(last: int, *, uuid: str = "u1", goodbye: bool = False) -> Envelope:
    hello = Hello({"a": last}, {"a": Head(Point(last, last), 1, 1)}, Point(9, 9), 0.0, goodbye=goodbye)
    return Envelope("api", uuid, "a", 0, (), hello)


def short(rows: list[ReceivedMessage]) -> list[tuple[str, int, int, str, str]]:
    return [(row.kind, row.sequence, row.holes, row.missing, row.note) for row in rows]


def test_each_message_of_a_frame_is_a_row() -> None:
    (one, two) = MessageRows().feed(sent(3, 2), WALL)
    assert one == ReceivedMessage(WALL, "link", "a", "api", "u1", 3, 3, 1, 0.5, 0, "", "")
    assert (two.sequence, two.position) == (4, 4)


def test_row_names_the_missing_messages_before_it() -> None:
    rows = MessageRows()
    rows.feed(sent(1), WALL)
    assert short(rows.feed(sent(3), WALL)) == [("link", 3, 1, "2", "")]
    assert short(rows.feed(sent(7), WALL)) == [("link", 7, 3, "4-6", "")]
    assert short(rows.feed(sent(5), WALL)) == [("link", 5, 0, "", "late, fills a hole")]
    assert short(rows.feed(sent(7), WALL)) == [("link", 7, 0, "", "repeated")]


def test_hello_names_messages_lost_at_the_end() -> None:
    rows = MessageRows()
    rows.feed(sent(1), WALL)
    assert rows.feed(greeting(1), WALL) == []
    assert short(rows.feed(greeting(4), WALL)) == [("hello", 4, 3, "2-4", "last messages lost")]
    assert rows.feed(greeting(4), WALL) == []


def test_restart_and_stop_of_a_publisher_are_noted_once() -> None:
    rows = MessageRows()
    rows.feed(sent(5), WALL)
    assert short(rows.feed(sent(1, 2, uuid="u2"), WALL)) == [
        ("link", 1, 0, "", "started again"),
        ("link", 2, 0, "", ""),
    ]
    assert short(rows.feed(greeting(2, uuid="u2", goodbye=True), WALL)) == [("hello", 0, 0, "", "stopped")]
    assert short(rows.feed(greeting(0, uuid="u3"), WALL)) == [("hello", 0, 0, "", "started again")]


def test_parts_are_noted_and_a_link_without_write_time_has_no_latency() -> None:
    message = Message(link(9, written_at=0.0), 2, 3)
    (row,) = MessageRows().feed(Envelope("api", "u1", "a", 1, [message]), WALL)
    assert (row.note, row.latency) == ("part 2 of 3", None)


def test_topics_have_separate_streams() -> None:
    rows = MessageRows()
    rows.feed(sent(1), WALL)
    assert short(rows.feed(sent(9, topic="b"), WALL)) == [("link", 9, 0, "", "")]
    assert set(rows.last) == {("api", "a"), ("api", "b")}
