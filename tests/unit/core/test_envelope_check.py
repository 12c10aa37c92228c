"""The check of an envelope's contents. ``test_codec`` shows that both ends apply it."""

import msgspec
import pytest

from pubsub_lib.core.envelope import Hello, Message
from pubsub_lib.core.envelope_check import complaint
from pubsub_lib.core.model import MAX_SECONDS
from tests.unit.core.builders import History

LINK = History().one()
HELLO = Hello({}, {}, None, 0.0)


def test_correct_contents_have_no_complaint() -> None:
    assert complaint("t", 1, [Message(LINK)], None) is None
    assert complaint("", 0, [], HELLO) is None


@pytest.mark.parametrize(
    ("topic", "sequence", "messages", "hello", "words"),
    [
        ("t\0", 1, [Message(LINK)], None, "NUL"),
        ("t", 1, [Message(LINK)], HELLO, "both messages and a hello"),
        ("t", 0, [Message(LINK)], None, "sequences count from 1"),
        ("u", 1, [Message(LINK)], None, "a link of topic 't'"),
        ("t", 1, [Message(LINK, 3, 2)], None, "part 3 of 2"),
        ("t", 1, [Message(msgspec.structs.replace(LINK, written_at=2.0 * MAX_SECONDS))], None, "written at"),
        ("t", 1, [Message(msgspec.structs.replace(LINK, prev=LINK.point))], None, "from position 1 to 1"),
        ("t", 0, [], None, "neither messages nor a hello"),
        ("", 1, [], HELLO, "a hello with the sequence 1"),
        ("", 0, [], msgspec.structs.replace(HELLO, age=-1.0), "-1.0 s old"),
        ("", 0, [], msgspec.structs.replace(HELLO, sequences={"t": -1}), "below 0"),
        ("", 0, [], msgspec.structs.replace(HELLO, sequences=dict.fromkeys(map(str, range(201)), 0)), "more than 200"),
    ],
)
def test_complaint_names_the_inconsistency(
    topic: str, sequence: int, messages: list[Message], hello: Hello | None, words: str
) -> None:
    assert words in (complaint(topic, sequence, messages, hello) or "")
