"""A writer's trace context on the links that it sends (wire 1.1). Nothing here knows OpenTelemetry:
:mod:`pubsub_lib.tracing` does.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pubsub_lib.core.model import MAX_TRACE_CHARACTERS, Link
from pubsub_lib.logs import logger

_log = logger(__name__)

TraceSource = Callable[[], str]
"""Gives the calling thread's trace context as a link carries it, "" when there is none. Must not block."""


def with_trace(links: Sequence[Link], source: TraceSource) -> Sequence[Link]:
    """The links with the trace context that ``source`` gives now; the same ones when it gives none.

    A source that raises, or gives more than a link may carry, costs the trace and never the link: that is committed,
    and replicas wait for it. Any thread, does not block.
    """
    try:
        trace = source()
    except Exception:  # noqa: BLE001 - a user's code; what it was asked for is a decoration
        _log.exception("the trace source raised; the transaction is sent without a trace context")
        return links
    if not trace:
        return links
    if len(trace) > MAX_TRACE_CHARACTERS or not trace.isascii():
        _log.warning(
            "a trace context of %d characters is left out; at most %d of ASCII can be sent",
            len(trace),
            MAX_TRACE_CHARACTERS,
        )
        return links
    return [replace(link, trace=trace) for link in links]
