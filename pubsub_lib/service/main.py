"""The command ``publisher-service``.

Exit codes (:mod:`pubsub_lib.command.exit_codes`): 0 stopped by a signal, or the output is complete; 2 the
command line or the configuration is wrong, or contradicts itself; 3 an address, port, socket, folder or thread is
unavailable; 4 the database cannot be used; 5 the output cannot be written; 70 an internal error; 130 Ctrl-C before the
service ran. Several failures of ``--check --connect`` give the first one's code.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from pubsub_lib.command import entry, streams
from pubsub_lib.command.exit_codes import OK, USAGE, FileError, code_of
from pubsub_lib.config.reading import Configuration
from pubsub_lib.config.service import STANDBY, ServiceSettings
from pubsub_lib.core.leased_publishers import ORIGIN, RELAY
from pubsub_lib.errors import ConfigError, PubSubError
from pubsub_lib.free_port import with_bound_port
from pubsub_lib.logs import logger
from pubsub_lib.publisher.opening import is_bound
from pubsub_lib.service import open_files, probing, roles, samples, status_page
from pubsub_lib.service import settings as service_settings
from pubsub_lib.service.contradictions import find
from pubsub_lib.service.notify import notify, watchdog_seconds
from pubsub_lib.service.relay_service import RelayService, relay_drivers
from pubsub_lib.service.service import PublisherService, drivers
from pubsub_lib.service.shutdown import ShutdownSignal
from pubsub_lib.service.standby_service import StandbyService
from pubsub_lib.service.syncs import syncs_of
from pubsub_lib.settings import Settings
from pubsub_lib.store import url
from pubsub_lib.sync.urls import channel_urls
from pubsub_lib.version import __version__

if TYPE_CHECKING:
    from pubsub_lib.http_endpoint import Endpoint

_log = logger(__name__)

Serving = PublisherService | RelayService | StandbyService
"""What runs, by the option ``role``."""
Reloading = Callable[[Callable[[ServiceSettings], None]], None]
"""Reads the configuration again, and calls its argument with the new settings (:mod:`pubsub_lib.service.reload`)."""

PROGRAM: Final = "publisher-service"
_KINDS: Final[Mapping[str, type[Serving]]] = {
    ORIGIN: PublisherService, RELAY: RelayService, STANDBY: StandbyService
}  # fmt: skip
_AT_THE_STOP: Final = {
    ORIGIN: "it first sends the links that workers have handed over", RELAY: "it first sends a goodbye",
    STANDBY: "it answers no more syncs",
}  # fmt: skip
DEFAULT_FILE: Final = "/etc/pubsub_lib/pubsub_lib.conf"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. Prints each error as one sentence, without a traceback."""
    return entry.run(PROGRAM, lambda: _command(arguments), "please report it with the output of --log-level debug")


def _command(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.connect and not options.check:
        parser.error("--connect needs --check")
    try:
        if options.version:
            return _answer(f"{PROGRAM} {__version__}")
        if options.sample_config or options.sample_unit:
            return _answer((samples.config() if options.sample_config else samples.unit()).removesuffix("\n"))
        logging = _set_up_logging(options.config_file, options.log_level)
        configuration = Configuration.read(options.config_file)
        if options.check and (misspelt := configuration.misspelt_variables()):
            raise ConfigError("; ".join(misspelt))
        settings, service = service_settings.load(configuration)
        replaced = _from_environment(configuration, settings)
        if options.check:
            if replaced:
                entry.report_error(PROGRAM, replaced)
            return _check(configuration, settings, service, options.connect)
        if replaced:
            _log.info("%s", replaced)
        return run(settings, service, _reload(options, configuration, settings, logging))
    except PubSubError as error:
        entry.report_error(PROGRAM, error)
        return code_of(error)
    except Exception:
        _log.debug("internal error", exc_info=True)
        raise


def _from_environment(configuration: Configuration, settings: Settings) -> str:
    """A sentence that names the variables that take precedence over the file, without their values; "" for none."""
    found = ", ".join(configuration.from_environment(_drivers_of(settings)))
    if not found:
        return ""
    return f"these environment variables take precedence over the file: {found}; unset those that are wrong"


def _drivers_of(settings: Settings) -> list[str]:
    return [each for each in (settings.driver, settings.multiproc_driver) if each]


def _check(configuration: Configuration, settings: Settings, service: ServiceSettings, connect: bool) -> int:
    """Print the errors, one sentence a line, or one line about the service that would run; returns the exit code."""
    good = check(settings, service)
    contradictions = find(configuration, settings, service)
    for sentence in contradictions:
        entry.report_error(PROGRAM, sentence)
    if contradictions:
        return USAGE
    if connect:
        failures = list(probing.failures(settings, service))
        for error in failures:
            entry.report_error(PROGRAM, error)
        if failures:
            return code_of(failures[0])
        good += f"; {probing.tested(settings, service)} are available"
    return _answer(good, "the configuration is good, but ")


def _answer(text: str, but: str = "") -> int:
    """Print the text; the exit code. Raises FileError when standard output cannot be written: a lost result is not a
    success. ``but``: the result in few words, for the error.
    """
    try:
        print(text, flush=True)  # noqa: T201 - the result of the command
    except OSError as error:
        streams.discard_unwritable()
        raise FileError(
            f"{but}the result cannot be written to standard output ({error.strerror}); check its redirection"
        ) from error
    return OK


def check(settings: Settings, service: ServiceSettings) -> str:
    """One line about the service that would run. Loads the drivers and lets them check their options; opens nothing.

    Raises ConfigError or DriverError for invalid settings.
    """
    is_relay = service.role == RELAY
    if settings.store_url or not is_relay:
        url.parse(settings.store_url)
    if service.metrics_port:
        _import_metrics()
    if service.role == STANDBY:
        where = f"at {service.metrics_address}:{max(service.metrics_port, 0)}"
        return f"the configuration is good: standby {settings.service_name!r} answers first syncs {where}"
    if is_relay:
        relay_drivers(settings)
    else:
        drivers(settings)
    workers = f"workers at {settings.multiproc_socket}" if settings.multiproc_driver else "no workers"
    if is_relay:
        workers = f"topics {', '.join(settings.topics)}, from {_above(settings)}"
    where = f" at {settings.bind_address}" if is_bound(settings) else ""
    known = f", known to replicas as {service.address}" if service.address else ""
    kind = "relay" if is_relay else "service"
    sender = f"{kind} {settings.service_name!r} sends by {settings.driver}"
    return f"the configuration is good: {sender}{where}{known}, {workers}"


def _above(settings: Settings) -> str:
    above = ", ".join(settings.parents or roles.listening(settings).addresses)
    if settings.store_url:
        return above or "the origin services in the directory"
    syncs = ", ".join(map(str, channel_urls(settings.sync_url))) if settings.sync_url else "the current parent"
    return f"{above}, syncs from {syncs}, no database"


def run(settings: Settings, service: ServiceSettings, reload: Reloading) -> int:
    """Serve until a signal stops the service. Call it in the main thread. Raises PubSubError when the service cannot
    start, or must stop because another live service has its name. ``reload`` is called at each SIGHUP.
    """
    open_files.raise_limit()
    with ShutdownSignal() as stop:
        serving = _KINDS[service.role](settings, service, stop.ask)
        _serve(serving, settings, service, stop, reload)
    if serving.failure is not None:
        raise serving.failure
    return OK


def _serve(
    serving: Serving, settings: Settings, service: ServiceSettings, stop: ShutdownSignal, reload: Reloading
) -> None:
    with ExitStack() as last, serving:
        endpoint = _endpoint(serving, settings, service) if service.metrics_port else None
        if endpoint is not None:  # closed after the goodbye: until then the replicas below read their syncs there
            last.callback(endpoint.close)
        named = service_settings.names_channel(settings, service)
        if endpoint is not None and named and not isinstance(serving, StandbyService):
            serving.serve_syncs_at(endpoint.port)
        where = f" at {with_bound_port(settings.bind_address, serving.address)}" if is_bound(settings) else ""
        web = "" if endpoint is None else f", its HTTP endpoint at {service.metrics_address}:{endpoint.port}"
        _log.info("%s runs as %s%s%s", settings.service_name, serving.uuid, where, web)
        notify("READY=1")
        _wait(stop, serving, reload)
        notify("STOPPING=1")
        _log.info("%s stops: %s", settings.service_name, _AT_THE_STOP[service.role])


def _wait(stop: ShutdownSignal, serving: Serving, reload: Reloading) -> None:
    """Wait for the shutdown signal. Pings systemd's watchdog while no thread hangs. An unreachable database withholds
    no ping: a restart would not bring it back sooner, and links of workers are sent without the database.
    """
    every = watchdog_seconds()
    while not stop.wait(every):
        if stop.take_reload():
            notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            reload(serving.adjust)
            notify("READY=1")
        stuck = serving.stuck()
        for each in stuck:
            _log.error("%s; the watchdog ping is withheld", each)
        notify(state_of(stuck, serving.problems()))


def state_of(stuck: Sequence[str], problems: Sequence[str]) -> str:
    """The notification for systemd: a watchdog ping, unless a thread hangs, and the status."""
    status = f"STATUS={[*stuck, *problems, 'ready'][0]}"
    return status if stuck else f"WATCHDOG=1\n{status}"


def _endpoint(serving: Serving, settings: Settings, service: ServiceSettings) -> "Endpoint":
    make = _import_metrics().endpoint_of
    syncs = syncs_of(serving.answer_sync, serving.agents_route(serving.address), settings, service)
    status = serving.status_reader(settings.driver, serving.address, syncs.known)
    routes = status_page.routes(status) if service.status_page else {}
    made: Endpoint = make(
        service, syncs.counters_with(serving.counters), syncs.gauges_with(serving.gauges), serving.latencies,
        lambda: [*serving.problems(), *serving.stuck()], settings.insecure, {**routes, **syncs.routes}, syncs.streams,
    )  # fmt: skip
    made.start()
    return made


def _set_up_logging(config_file: str, level: str) -> Mapping[str, Any]:
    """Returns the logging options. oslo.log is imported only here: the library logs by the standard library."""
    try:
        from pubsub_lib.service import log
    except ImportError as error:
        raise ConfigError(
            f"publisher-service cannot import its logging library ({error}); run: pip install pubsub-lib[service]"
        ) from error
    return log.set_up(config_file, level)


def _reload(
    options: argparse.Namespace, configuration: Configuration, settings: Settings, logging: Mapping[str, Any]
) -> Reloading:
    from pubsub_lib.service.reload import Reload  # it needs the logging library

    return Reload(options.config_file, options.log_level, configuration, _drivers_of(settings), logging)


def _import_metrics() -> ModuleType:
    """Imported only here, so that a service without the endpoint runs without the endpoint's dependencies."""
    try:
        from pubsub_lib.service import metrics
    except ImportError as error:
        raise ConfigError(
            f"the metrics endpoint cannot import its library ({error}); run: pip install pubsub-lib[service], "
            "or set metrics_port = 0 in [publisher_service]"
        ) from error
    return metrics


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Send the changes that this host's workers commit to the replicas.",
        epilog="Exit codes: 0 stopped by a signal, or the output is complete; 2 the configuration is wrong, or "
        "contradicts itself; 3 an address, port, socket or folder is unavailable; 4 the database cannot be used; "
        "5 the output cannot be written; 70 an internal error; 130 Ctrl-C.",
    )
    parser.add_argument("--config-file", default=DEFAULT_FILE, metavar="FILE", help=f"the INI file ({DEFAULT_FILE})")
    printed = parser.add_mutually_exclusive_group()
    printed.add_argument("--check", action="store_true", help="check the configuration, print the result, and exit")
    printed.add_argument("--sample-config", action="store_true", help="print an INI file with every option, and exit")
    printed.add_argument("--sample-unit", action="store_true", help="print a unit file for systemd, and exit")
    printed.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument(
        "--connect",
        action="store_true",
        help="with --check: also try the database, the driver, folders, sockets and ports; run it while the service is "
        "stopped",
    )
    parser.add_argument(
        "--log-level",
        default="",
        choices=("debug", "info", "warning", "error"),
        help="the log level (default: info, or debug if the INI file sets debug in [DEFAULT])",
    )
    return parser
