"""The places of the sync channel are bounded, and free again after an error."""

import contextlib

import pytest

from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.model import Point, Want
from pubsub_lib.http_limits import KEPT_FOR_READY, MAX_CONNECTIONS
from pubsub_lib.sync.places import MAX_REQUESTS, RECEIVED, Places

OBJECTS = {"t": Want()}
LINKS = {"t": Want(after=Point(1, 1))}


@pytest.mark.parametrize("places", [1, ServiceSettings().max_syncs, 24])
def test_requests_are_bounded_and_leave_connections_for_others(places: int) -> None:
    made = Places(places)
    with contextlib.ExitStack() as held:
        admitted = [held.enter_context(made.request()) for _ in range(MAX_CONNECTIONS)]
    assert admitted.count(True) == min(2 * places + RECEIVED, MAX_REQUESTS) < MAX_CONNECTIONS - KEPT_FOR_READY
    with made.request() as free:
        assert free


@pytest.mark.parametrize("wants", [OBJECTS, LINKS, {**LINKS, "u": Want(buckets={1: 2}, known=Point(1, 1))}])
def test_place_is_free_after_an_error(wants: dict[str, Want]) -> None:
    made = Places(1)
    for _ in range(2):
        with contextlib.suppress(TimeoutError), made.answer(wants) as free:
            assert (free, made.running) == (True, 1)
            with made.answer(wants) as second:
                assert not second
            raise TimeoutError
    assert made.running == 0
