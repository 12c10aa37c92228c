"""One half's connection to the NATS servers, on a thread of its own with an event loop; made again until ``stop``."""

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

from nats import errors

from pubsub_lib.errors import TransportError
from pubsub_lib.logs import logger
from pubsub_lib.reconnect_pause import ReconnectPause
from pubsub_lib.threads.start import ReadyThread
from pubsub_nats.client import Access, NatsClient, NoConnectionError, OnMessage, RefusedError

_log = logger(__name__)

_GRACE: Final = 0.2
"""Maximum seconds until a cancelled task has ended."""
_NO_TIMEOUT: Final = 2**31
_MAX_LOGGED: Final = 20
"""Maximum number of kinds of refused subjects that are logged; there are fewer, unless a server invents them."""

OnClient = Callable[[NatsClient], Awaitable[None]]


class Calls(NamedTuple):
    """What a half does on the connection's thread."""

    opened: OnClient
    """Subscribes on a new connection."""
    on_message: OnMessage
    """Called for each message."""
    connected: Callable[[], None]
    """Called when the subscriptions of ``opened`` are in effect."""
    work: OnClient
    """Runs from then on, until the connection ends."""


class Connection:
    """One half's connection. ``min_payload``: size of messages that the server must accept."""

    def __init__(self, access: Access, name: str, calls: Calls, min_payload: int = 0) -> None:
        self._access = access
        self._options = access.options
        self._name = name
        self._calls = calls
        self._min_payload = min_payload
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._discovered: list[tuple[str, str]] = []
        """Further servers of the cluster, which the last server named, with ``tls_name``."""
        self._logged: set[str] = set()
        """Kinds of refused subjects."""
        self.settled = threading.Event()
        """Set when the first connection was made or refused, and by ``stop``."""
        self.is_connected = False
        self._failures: dict[tuple[str, str], NoConnectionError] = {}
        """The last failure of each server since the last connection."""
        servers = ", ".join(access.options.servers)
        self.reason = f"no NATS server of {servers} has answered; start one, or correct servers in [pubsub_nats]"
        """Why there is no connection: the first of the failures, but a refusal before the others."""
        self.counts = {"connected": 0, "disconnected": 0, "refused": 0}

    # -- any thread ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. Raises TransportError."""
        with self._lock:
            if self._stopped:
                raise TransportError("it was closed; make a new one")
            ready = ReadyThread(self._name)
            try:
                self._loop = asyncio.new_event_loop()
            except OSError as error:
                ready.drop()
                raise TransportError(f"cannot open an event loop: {error}; raise the limit of open files") from error
            self._woken = asyncio.Event()
            self._stopping: asyncio.Future[Any] = self._loop.create_future()
            """Done when the connection must end; its result is the linger of ``stop``."""
            self._thread = ready.thread
            ready.run(self._run)

    def wake(self) -> None:
        """Let ``woken`` return."""
        self._call(lambda: self._woken.set())

    def stop(self, linger: float = 0.0) -> None:
        """End the connection and the thread; ``work`` gets ``linger`` seconds to end by itself. Idempotent."""
        with self._lock:
            self._stopped = True
        self.settled.set()
        self._call(partial(self._stop, linger))

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _call(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(callback)

    # -- the connection's thread ---------------------------------------------------------------------------------

    async def woken(self) -> None:
        """Wait for ``wake``."""
        await self._woken.wait()
        self._woken.clear()

    def _stop(self, linger: float) -> None:
        self._woken.set()
        if not self._stopping.done():
            self._stopping.set_result(linger)

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        try:
            loop.run_until_complete(self._connect_until_stopped())
            for task in (left := asyncio.all_tasks(loop)):
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=5 * _GRACE))
        except Exception:  # noqa: BLE001 - nothing else would show it
            _log.exception("internal error in the thread %s, which has ended; please report this", self._name)
        finally:
            with self._lock:
                self._loop = None
            loop.close()

    async def _connect_until_stopped(self) -> None:
        longest = self._options.max_reconnect_interval
        pause = ReconnectPause(self._options.reconnect_interval, longest)
        while not self._stopping.done():
            given = random.sample(self._options.servers, len(self._options.servers))
            began = time.monotonic()
            await self._one_of([(url, "") for url in given] + self._discovered)
            if time.monotonic() - began > longest:
                pause.reset()
            await asyncio.wait({self._stopping}, timeout=pause.next())

    async def _one_of(self, servers: list[tuple[str, str]]) -> None:
        """One connection to the first of these servers that accepts one, from its begin to its end."""
        for server in servers:
            try:
                await self._one(*server)
                return
            except NoConnectionError as error:
                self._failed(server, error)
        if any(isinstance(each, RefusedError) for each in self._failures.values()):
            self.settled.set()

    def _failed(self, server: tuple[str, str], error: NoConnectionError) -> None:
        if str(error) not in map(str, self._failures.values()):  # a server may be tried with two names
            _log.warning("%s; connecting is retried", error)
        self._failures[server] = error
        self.reason = str(max(self._failures.values(), key=lambda each: isinstance(each, RefusedError)))

    async def _one(self, url: str, tls_name: str) -> None:
        client = NatsClient(self._access, url, self._calls.on_message, self._on_error, tls_name)
        try:
            await self._prepared(client, url)
            if not self._stopping.done():
                self.is_connected = True
                self._failures.clear()
                self.counts["connected"] += 1
                if self.counts["connected"] > 1:
                    _log.info("connected to the NATS server %s again", url)
                self._calls.connected()
                self.settled.set()
                await self._until_lost(client)
        finally:
            if self.is_connected:
                self.is_connected = False
                self.counts["disconnected"] += 1
                self._discovered = [each for each in client.others() if each[0] not in self._options.servers]
                if not self._stopping.done():
                    why = client.last_error or "silence, or an invalid line"
                    lost = NoConnectionError(f"the connection to the NATS server {url} was lost ({why})")
                    self._failed((url, tls_name), lost)
            await client.end()

    async def _prepared(self, client: NatsClient, url: str) -> None:
        """Connect and subscribe, until ``stop``. Raises NoConnectionError."""
        task = asyncio.ensure_future(self._prepare(client, url))
        limit = 2 * self._options.connect_timeout
        await asyncio.wait({task, client.lost, self._stopping}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        done, error = task.done(), await _ended(task)
        if isinstance(error, NoConnectionError):
            raise error
        if (error is not None or not done) and not self._stopping.done():
            why = error or client.last_error or "no answer"
            raise NoConnectionError(f"the NATS server {url} ended the new connection: {why}; look at its log")

    async def _prepare(self, client: NatsClient, url: str) -> None:
        await client.open(self._name)
        if client.max_payload < self._min_payload:
            raise RefusedError(
                f"the NATS server {url} accepts messages of {client.max_payload} bytes, which is less than "
                f"max_frame_bytes ({self._min_payload}); raise max_payload of the server, or lower max_frame_bytes and "
                "max_value_bytes in [pubsub] of all processes"
            )
        await self._calls.opened(client)
        await client.flush(_NO_TIMEOUT)

    async def _until_lost(self, client: NatsClient) -> None:
        work, alive = (asyncio.ensure_future(each) for each in (self._calls.work(client), self._keep_alive(client)))
        await asyncio.wait({work, alive, client.lost, self._stopping}, return_when=asyncio.FIRST_COMPLETED)
        if self._stopping.done():
            linger = self._stopping.result()
            await asyncio.wait({work, alive, client.lost}, timeout=linger, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, alive):
            error = await _ended(task)
            if error is not None and not isinstance(error, OSError | errors.Error):
                _log.error("internal error in the thread %s; please report this", self._name, exc_info=error)

    async def _keep_alive(self, client: NatsClient) -> None:
        """Return when the server neither answers a ping nor sends messages."""
        while True:
            await asyncio.sleep(self._options.keepalive_interval)
            # Without a timeout of the client, whose reading would end when the answer came late.
            ping = asyncio.ensure_future(client.flush(_NO_TIMEOUT))
            while not ping.done():
                before = client.stats["in_bytes"]
                await asyncio.wait({ping}, timeout=self._options.keepalive_timeout)
                if not ping.done() and client.stats["in_bytes"] == before:
                    await _ended(ping)
                    return
            ping.result()

    def _on_error(self, error: Exception) -> None:
        text = str(error)
        if "permissions violation" not in text:
            return
        self.counts["refused"] += 1
        # The text up to the token after the prefix, because each hello reply has its own subject.
        kind = ".".join(text.split(".")[: self._options.prefix.count(".") + 2])
        if kind not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(kind)
            _log.error("the NATS server refuses a subject: %s; grant it to this user; more like it are counted", text)


async def _ended(task: "asyncio.Future[Any]") -> BaseException | None:
    """Cancel a task unless it has ended, and wait for its end; return its error."""
    task.cancel()
    await asyncio.wait({task}, timeout=_GRACE)
    return task.exception() if task.done() and not task.cancelled() else None
