"""A writer's trace context on the links that it sends (wire 1.1). This module does not depend on OpenTelemetry, only
:mod:`pubsub_lib.tracing` does.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pubsub_lib.arguments import check_function
from pubsub_lib.core.model import MAX_TRACE_CHARACTERS, Link
from pubsub_lib.logs import logger

_log = logger(__name__)

TraceSource = Callable[[], str]
"""Returns the calling thread's trace context in the format of a link, "" when there is none. Must not block."""


def check_source(trace: TraceSource | None) -> None:
    """Raises UsageError for a source that is not callable; None is a program without traces."""
    if trace is not None:
        check_function("trace", trace, "no argument")


def with_trace(links: Sequence[Link], source: TraceSource) -> Sequence[Link]:
    """The links with the current trace context of ``source``; the unchanged links when there is none.

    When the source raises, or returns an invalid or too long text, the links are sent without a trace: they are
    committed, and replicas wait for them. Any thread, does not block.
    """
    try:
        trace = source()
    except Exception:  # noqa: BLE001 - a user's code, and a trace is optional
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
