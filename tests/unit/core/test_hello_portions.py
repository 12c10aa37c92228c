"""How topics are cut into hellos: measured with the codec at the largest numbers and the longest names."""

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib import Settings
from pubsub_lib.core.codec import MAX_NONCE_BYTES, encode
from pubsub_lib.core.envelope import MAX_PORT, Envelope, Hello
from pubsub_lib.core.hello_portions import portions
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, MAX_NAME_BYTES, Head, Point
from pubsub_lib.errors import ConfigError
from tests.unit.core.builders import UUID

MOST = 2**63 - 1
SMALLEST = Limits(max_value_bytes=1, max_frame_bytes=4097)
"""The smallest frame that settings accept."""


def size(topics: tuple[str, ...]) -> int:
    """Bytes of the largest hello about these topics."""
    head = Head(Point(MOST, MOST), MOST, MOST)
    nonce = "n" * MAX_NONCE_BYTES
    hello = Hello(dict.fromkeys(topics, MOST), dict.fromkeys(topics, head), head.point, 1.5, nonce, serves=MAX_PORT)
    return len(encode(Envelope("s" * MAX_NAME_BYTES, UUID, ALL, 0, (), hello), Limits(max_frame_bytes=2**24))[1])


NAMES = st.lists(st.text(st.sampled_from("aä"), min_size=1, max_size=127), max_size=300, unique=True)


@given(NAMES, st.integers(SMALLEST.max_frame_bytes, 40_000))
def test_portions_fit_in_a_frame_and_are_filled(names: list[str], room: int) -> None:
    cut = list(portions(names, 200, Limits(max_frame_bytes=room)))
    assert list(chain.from_iterable(cut)) == names
    assert all(size(portion) <= room and len(portion) <= 200 for portion in cut)
    for portion, following in pairwise(cut):
        fuller = size((*portion, following[0]))
        assert len(portion) == 200 or fuller > 0.85 * room, "room for another topic"


@pytest.mark.parametrize("room", range(4097, 4697, 60))
def test_longest_names_fill_a_frame_and_do_not_exceed_it(room: int) -> None:
    names = [f"{number:0{MAX_NAME_BYTES}}" for number in range(20)]
    cut = list(portions(names, 200, Limits(max_frame_bytes=room)))
    assert list(chain.from_iterable(cut)) == names
    assert max(map(size, cut)) <= room
    assert all(size((*portion, names[0] + "x")) > room - 20 for portion in cut[:-1]), "room for another topic"


def test_one_longest_topic_has_room_in_the_smallest_frame_that_settings_accept() -> None:
    Settings(store_url="sqlite://", limits=SMALLEST)
    with pytest.raises(ConfigError, match="leaves no room"):
        Settings(store_url="sqlite://", limits=Limits(max_value_bytes=1, max_frame_bytes=4096))
    assert size(("t" * MAX_NAME_BYTES,)) <= SMALLEST.max_frame_bytes


def test_no_topics_make_one_empty_portion() -> None:
    assert list(portions((), 200, SMALLEST)) == [()]


def test_too_long_name_is_left_out() -> None:
    assert list(portions(("a", "x" * (MAX_NAME_BYTES + 1), "b"), 200, SMALLEST)) == [("a", "b")]
