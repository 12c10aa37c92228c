"""A writer's span is the remote parent of the span in which its change is handled."""

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link as SpanLink
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, Tracer, TraceState

from pubsub_lib import Publisher, Replica, Store, Timing
from pubsub_lib.core.events import Event
from pubsub_lib.core.model import MAX_TRACE_CHARACTERS
from pubsub_lib.tracing import current_trace, remote_parent, traced
from tests.unit.world import Recorder, settings

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
EVENT = Event("lport", "p1", "tenant-1", "set", 7, 6, b"1", b"2", 7, trace=TRACE)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> Iterator[Tracer]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("test")
    provider.shutdown()


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def context(state: TraceState | None = None) -> trace.Span:
    return NonRecordingSpan(
        SpanContext(0xAF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, False, TraceFlags(1), state)
    )


def test_the_writers_span_is_the_parent_of_the_handlers_span(
    sqlite_url: str, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    # The change must come by the message, because a change from a sync has no trace.
    config = settings(sqlite_url, timing=Timing(max_idle_time=60, message_delay_window=60))
    recorder = Recorder()
    with (
        Store(sqlite_url) as store,
        Publisher(config, store, trace=current_trace),
        Replica(config, ["tenant-1"]) as replica,
    ):
        replica.on("lport", traced(recorder, tracer))
        replica.wait_synced(30)
        with tracer.start_as_current_span("request") as request, store.transaction() as tx:
            tx.set("lport", "p1", {"switch": "s1"}, topic="tenant-1")
        assert tx.commit is not None
        replica.wait_handled(tx.commit, 30)
        with store.transaction() as tx:
            tx.set("lport", "p2", {"switch": "s1"}, topic="tenant-1")
        assert tx.commit is not None
        replica.wait_handled(tx.commit, 30)
    wrote, handled = sorted(exporter.get_finished_spans(), key=lambda span: span.name, reverse=True)
    assert wrote.name == "request"
    assert handled.name == "handle lport"
    assert handled.kind is SpanKind.CONSUMER
    assert handled.parent is not None
    assert handled.parent.is_remote
    assert handled.parent.span_id == request.get_span_context().span_id
    assert handled.attributes is not None
    assert dict(handled.attributes) == {
        "messaging.system": "pubsub_lib",
        "messaging.operation.type": "process",
        "messaging.destination.name": "tenant-1",
        "pubsub.table": "lport",
        "pubsub.key": "p1",
        "pubsub.action": "create",
        "pubsub.version": 1,
    }
    assert [change.key for change in recorder.changes] == ["p1", "p2"], "without a span, but handled"


def test_an_exception_of_the_handler_is_recorded_and_raised(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    def broken(change: Event) -> None:
        raise RuntimeError("no such switch")

    with pytest.raises(RuntimeError, match="no such switch"):
        traced(broken, tracer)(EVENT)
    assert not only(exporter).status.is_ok
    assert [event.name for event in only(exporter).events] == ["exception"]


def test_a_coroutine_handler_is_traced_until_it_ends(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    seen: list[SpanContext] = []

    async def handler(change: Event) -> str:
        await asyncio.sleep(0)
        seen.append(trace.get_current_span().get_span_context())
        return change.key

    assert asyncio.run(traced(handler, tracer)(EVENT)) == "p1"
    assert asyncio.run(traced(handler, tracer)(msgspec.structs.replace(EVENT, trace=""))) == "p1"
    assert seen[0] == only(exporter).context
    assert not seen[1].is_valid


def test_an_object_with_an_async_call_is_traced_as_a_coroutine(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    class Handler:
        async def __call__(self, change: Event) -> str:
            await asyncio.sleep(0)
            return change.key

    chosen = traced(Handler(), tracer)
    assert inspect.iscoroutinefunction(chosen), "otherwise an AsyncReplica would not await it"
    assert asyncio.run(chosen(EVENT)) == "p1"
    assert only(exporter).name == f"handle {EVENT.table}"


def test_the_context_is_a_traceparent_and_its_tracestate() -> None:
    assert current_trace() == ""
    with trace.use_span(context()):
        assert current_trace() == TRACE
    with trace.use_span(context(TraceState([("vendor", "1"), ("other", "2")]))):
        assert current_trace() == f"{TRACE} vendor=1,other=2"
    with trace.use_span(context(TraceState([(f"v{number}", "x" * 200) for number in range(9)]))):
        assert current_trace() == TRACE, "a tracestate that is too long is left out"
    assert len(TRACE) + 1 + 512 <= MAX_TRACE_CHARACTERS


def test_remote_parent_reads_a_links_trace() -> None:
    found = remote_parent(msgspec.structs.replace(EVENT, trace=f"{TRACE} vendor=1"))
    assert found is not None
    span = trace.get_current_span(found).get_span_context()
    assert (span.is_remote, span.trace_state.get("vendor")) == (True, "1")
    assert SpanLink(span).context.span_id == 0xB7AD6B7169203331


@pytest.mark.parametrize("bad", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", TRACE[:-4]])
def test_an_invalid_trace_is_ignored(bad: str, tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    event = msgspec.structs.replace(EVENT, trace=bad)
    assert remote_parent(event) is None
    assert traced(lambda change: change.key, tracer)(event) == "p1"
    assert exporter.get_finished_spans() == ()


def test_without_opentelemetry_the_extra_is_named() -> None:
    program = "import sys; sys.modules['opentelemetry'] = None; import pubsub_lib.tracing"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ConfigError: tracing needs OpenTelemetry's API" in done.stderr
    assert "pip install pubsub-lib[otel]" in done.stderr


def test_the_library_does_not_import_opentelemetry() -> None:
    program = "import sys, pubsub_lib, pubsub_lib.service.service; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
