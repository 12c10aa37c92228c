"""A link is sent when its last part is sent."""

import pytest

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.sequencer import Sequencer
from pubsub_lib.publisher.unsent import unsent
from tests.unit.core.builders import CALM, UUID, History


@pytest.mark.parametrize(("sent", "left"), [(0, 2), (1, 2), (-2, 2), (-1, 1), (None, 0)])
def test_link_without_its_last_part_is_unsent(sent: int | None, left: int) -> None:
    limits = Limits(max_frame_bytes=900)
    history = History()
    large = history.commit(*[("t", f"k{index}", '"' + "x" * 90 + '"') for index in range(30)])
    links = [*large, history.one("other")]
    envelopes = Sequencer("api-1", UUID, CALM, limits, 0.0).publish(links, 0.0)
    assert len(envelopes) > 3
    assert unsent(links, envelopes[:sent]) == links[len(links) - left :]
