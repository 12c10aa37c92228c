"""Rule 6: a hello request names a bounded number of topics."""

from pubsub_lib.core.codec import hello_request_frame
from pubsub_lib.core.request_portions import REQUEST_BYTES
from pubsub_lib.core.sequencer import HELLO_TOPICS
from tests.unit.core.builders import Bench, History


def test_rule_06_request_for_many_topics_is_cut() -> None:
    topics = tuple(f"{number:04}" + "t" * 251 for number in range(700)) + tuple(map(str, range(1000)))
    bench = Bench(History(), topics)
    for request in bench.requests:
        assert len(request.topics) <= HELLO_TOPICS
        assert len(hello_request_frame(request.nonce, request.topics)) <= REQUEST_BYTES + 64
    assert [topic for request in bench.requests for topic in request.topics] == list(topics)
    assert len({request.nonce for request in bench.requests}) == len(bench.requests)
