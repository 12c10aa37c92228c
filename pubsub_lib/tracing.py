"""OpenTelemetry at both ends: a writer's span becomes the remote parent of the spans that handle its changes.

::

    from pubsub_lib.tracing import current_trace, traced

    with Publisher(settings, store, trace=current_trace): ...     # or Worker(settings, store, trace=current_trace)
    replica.on("lport", traced(program_the_switch))

No other module of the library imports this one, so programs without tracing have no cost. The trace context is sent
with the messages (:attr:`pubsub_lib.core.model.Link.trace`) and is not stored. A change that a replica reads from the
database, by polling or in a sync, has no trace context.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

from pubsub_lib.arguments import is_coroutine_function
from pubsub_lib.core.events import Event
from pubsub_lib.errors import ConfigError

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as missing:
    raise ConfigError(f"tracing needs OpenTelemetry's API ({missing}); run: pip install pubsub-lib[otel]") from missing

MAX_TRACESTATE: Final = 512
"""Maximum number of characters; a longer tracestate is left out, as W3C Trace Context allows."""

_propagator: Final = TraceContextTextMapPropagator()


def current_trace() -> str:
    """The current span's context as a link carries it: a traceparent, and after a space the tracestate, if any.

    "" when there is no span. Any thread, does not block; give it to a Publisher or a Worker as ``trace``.
    """
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    parent, state = carrier.get("traceparent", ""), carrier.get("tracestate", "")
    return f"{parent} {state}" if parent and 0 < len(state) <= MAX_TRACESTATE else parent


def remote_parent(event: Event) -> Context | None:
    """The writer's span as a context to start spans in, or None when the change has no valid trace."""
    parent, _, state = event.trace.partition(" ")
    if not parent:
        return None
    found = _propagator.extract({"traceparent": parent, "tracestate": state}, Context())
    return found if trace.get_current_span(found).get_span_context().is_valid else None


def traced(handler: Callable[[Event], Any], tracer: trace.Tracer | None = None) -> Callable[[Event], Any]:
    """Wrap a handler: it runs in a span whose remote parent is the span that wrote the change. Also for coroutines.

    A change without a trace is handled without a span, because an initial sync would make one for each object. The span
    is of kind CONSUMER, named ``handle TABLE``. It has the attributes ``messaging.system`` ("pubsub_lib"),
    ``messaging.destination.name`` (the topic) and ``pubsub.table``, ``.key``, ``.action`` and ``.version``, and records
    an exception of the handler. ``tracer``: by default the tracer ``pubsub_lib`` of the global provider.
    """
    chosen = tracer if tracer is not None else trace.get_tracer("pubsub_lib")

    def span(event: Event, parent: Context) -> Any:
        attributes: dict[str, str | int] = {
            "messaging.system": "pubsub_lib",
            "messaging.operation.type": "process",
            "messaging.destination.name": event.topic,
            "pubsub.table": event.table,
            "pubsub.key": event.key,
            "pubsub.action": event.action,
        }
        if event.version is not None:
            attributes["pubsub.version"] = event.version
        return chosen.start_as_current_span(
            f"handle {event.table}", context=parent, kind=trace.SpanKind.CONSUMER, attributes=attributes
        )

    if is_coroutine_function(handler):

        @functools.wraps(handler)
        async def waits(event: Event) -> Any:
            parent = remote_parent(event)
            if parent is None:
                return await handler(event)
            with span(event, parent):
                return await handler(event)

        return waits

    @functools.wraps(handler)
    def calls(event: Event) -> Any:
        parent = remote_parent(event)
        if parent is None:
            return handler(event)
        with span(event, parent):
            return handler(event)

    return calls
