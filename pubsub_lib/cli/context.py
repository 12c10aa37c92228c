"""From the command line to an open store: settings, a store that only reads, and one that writes and publishes.

Each function imports what it needs: a command that only reads starts without the publishers, and its help without
SQLAlchemy and oslo.config.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec
from cliff.command import Command

from pubsub_lib.core.model import Heads, Link
from pubsub_lib.errors import ConfigError, PubSubError, TransportError
from pubsub_lib.masking import has_password, masked

if TYPE_CHECKING:
    from pubsub_lib.config.reading import Configuration
    from pubsub_lib.publisher.publisher import Publisher
    from pubsub_lib.publisher.worker import Worker
    from pubsub_lib.settings import Settings
    from pubsub_lib.store import Store

_log = logging.getLogger("pubsub_lib.cli")


class Sender(Protocol):
    """Accepts links after their commit: a :class:`Worker`'s ``hand_over`` or a :class:`Publisher`'s ``publish``."""

    def __call__(self, links: Sequence[Link]) -> None:
        """Send, or raise a PubSubError."""


class HandingOver:
    """Hands every commit to a sender until the sender fails once. Later commits are only in the changelog."""

    def __init__(self, how: str, send: Sender | None, error: PubSubError | None = None) -> None:
        self._how = how
        self.sent = 0
        """Number of transactions that were handed over."""
        self.error = error
        """The failure after which no transaction is handed over; None without one. Complete after the sender's end."""
        self._send = send
        self._warned = False

    @property
    def how(self) -> str:
        """Who is notified of a commit, or is not after a failure, as text for people."""
        return self._how if self.error is None else f"{self._how}, not notified"

    def __call__(self, links: Sequence[Link]) -> None:
        """For ``Store.on_commit``."""
        if self._send is not None and self.error is None:
            try:
                self._send(links)
                self.sent += 1
            except PubSubError as error:
                self.error = error
        self._warn()

    def ended(self, lost: int, receiver: str) -> None:
        """The sender was closed, and has dropped this number of messages for this receiver that it had accepted."""
        if not lost:
            return
        error = TransportError(f"{receiver} did not take all messages, {lost} were dropped; check whether it runs")
        if self.error is None:
            self.error = error
            self._warn()
        else:
            _log.warning("%s", error)

    def _warn(self) -> None:
        if self.error is not None and not self._warned:
            # Once: after the first failure no further transaction waits for the sender.
            self._warned = True
            _log.warning("the changes are stored, but replicas receive them later: %s", self.error)


class _WithoutCommits:
    """The part of a store that a publisher or a worker needs, without the notification of commits.

    :class:`HandingOver` passes the commits on, because the user of the command gets an error once and not for each
    commit.
    """

    def __init__(self, store: "Store") -> None:
        self._store = store
        self.limits = store.limits

    @property
    def store_id(self) -> bytes:
        return self._store.store_id

    def read_heads(self, topics: Collection[str]) -> Heads:
        return self._store.read_heads(topics)

    def on_commit(
        self, callback: Callable[[Sequence[Link]], None], *, after_fork: bool = False, unless_published: bool = False
    ) -> Callable[[], None]:
        return lambda: None


class Writing(msgspec.Struct, frozen=True):
    """A store that may be written, and how its commits are published."""

    store: "Store"
    handing_over: HandingOver
    settings: "Settings"


def settings_of(command: Command) -> "Settings":
    """The settings by ``--config-file``, ``--config-dir`` and ``--database``. Blocks for reading the files.

    Raises ConfigError, DriverError.
    """
    return settings_in(configuration_of(command))


def settings_in(configuration: "Configuration") -> "Settings":
    """The settings in this configuration. Raises ConfigError, DriverError."""
    from pubsub_lib.settings import Settings

    settings = Settings.from_configuration(configuration)
    configuration.check_names()
    return settings


def configuration_of(command: Command) -> "Configuration":
    """The configuration by the same options, for other groups than ``[pubsub]``. Blocks for reading the files. Raises
    ConfigError.
    """
    from oslo_config import cfg

    from pubsub_lib.config import options
    from pubsub_lib.config.pubsub import GROUP
    from pubsub_lib.config.reading import Configuration

    given = command.app_args
    assert given is not None, "a command is run with its options"
    conf = cfg.ConfigOpts()
    arguments = [f"--config-file={each}" for each in given.config_file]
    arguments += [f"--config-dir={each}" for each in given.config_dir]
    try:
        conf(args=arguments, project="pubsub_lib", prog="pubsub-db")
    except UnicodeDecodeError as error:  # it does not contain the file's name
        names = [repr(each) for each in (*given.config_file, *given.config_dir)]
        which = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
        raise ConfigError(
            f"the configuration cannot be read: {which} is not text in UTF-8; name readable files in INI format"
        ) from error
    except (cfg.Error, cfg.ParseError, OSError) as error:
        reason = masked(" ".join(str(error).split()).rstrip("."))
        raise ConfigError(f"the configuration cannot be read: {reason}; name readable files in INI format") from error
    options.register(conf)
    if given.database is not None:
        if has_password(given.database):
            _log.warning(
                "others on this host can read the password of --database in the process list; set store_url in a file "
                "and give --config-file"
            )
        # Without escaping, oslo.config would take a dollar sign for the start of another option's name.
        conf.set_override("store_url", given.database.replace("$", "$$"), group=GROUP)
    elif not conf.config_file and not conf.config_dir and not conf[GROUP].store_url:
        raise ConfigError("there is no configuration; give --config-file PATH, or --database URL")
    return Configuration.of(conf)


def shown(settings: "Settings") -> str:
    """The database's URL as it was given, for people: without its passwords. Raises ConfigError."""
    from pubsub_lib.store import url

    return url.shown(settings.store_url)


@contextmanager
def reading(command: Command) -> Iterator["Store"]:
    """The store, for reading only; it may be a standby. Raises ConfigError, StoreError."""
    from pubsub_lib.store import Store

    settings = settings_of(command)
    with Store(settings, read_only=True) as store:
        yield store


@contextmanager
def writing(command: Command, settings: "Settings | None" = None, *, bulk: bool = False) -> Iterator[Writing]:
    """The store, for writing. Each commit goes to the publisher that the settings name.

    ``settings``: those of the command, if it has read them already. ``bulk``: for many large transactions.

    With a connect-based driver this process publishes itself. With a bind-based driver the host's publisher service
    publishes, and a worker hands the commits to it. Otherwise the changes have no origin: the service that holds the
    lease for such changes publishes them (rule S10). Without such a service, replicas read them at their next poll.

    Raises ConfigError, DriverError, TransportError, StoreError.
    """
    from pubsub_lib.store import Store

    settings = settings or settings_of(command)
    with ExitStack() as stack:
        origin = settings.service_name if _publishes(settings) else ""
        alone = msgspec.structs.replace(settings, group_commit="process")  # one writer, which may be another user
        store = stack.enter_context(Store(alone, origin=origin, create=False, bulk=bulk))
        handing_over = _handing_over(settings, store, stack)
        stack.callback(store.on_commit(handing_over))
        yield Writing(store, handing_over, settings)


def _publishes(settings: "Settings") -> bool:
    from pubsub_lib.config.pubsub import POLLING_DRIVER

    return bool(settings.service_name) and settings.driver != POLLING_DRIVER


def _handing_over(settings: "Settings", store: "Store", stack: ExitStack) -> HandingOver:
    from pubsub_lib.publisher.opening import hands_over, is_bound
    from pubsub_lib.publisher.publisher import Publisher
    from pubsub_lib.publisher.worker import Worker

    if not _publishes(settings):
        return HandingOver("no process: replicas poll, or a service publishes changes without an origin", None)
    if not is_bound(settings):
        publisher = Publisher(settings, _WithoutCommits(store))
        to_replicas = HandingOver(f"replicas, by {settings.driver}", publisher.publish)
        return _opened(publisher, to_replicas, f"the server of {settings.driver}", stack)
    if hands_over(settings):
        how = f"the service {settings.service_name!r}, by {settings.multiproc_driver}"
        if settings.service_name not in {each.service for each in store.directory.live()}:
            # Checked here, because a worker buffers links for an absent service, and this process ends before that.
            away = TransportError(
                f"the publisher service {settings.service_name!r} does not run (it has no live lease)"
            )
            return HandingOver(how, None, away)
        worker = Worker(settings, _WithoutCommits(store))
        return _opened(worker, HandingOver(how, worker.hand_over), f"the service {settings.service_name!r}", stack)
    return HandingOver(f"no process: {settings.driver} needs a service, and pub_sub_use_multiproc is off", None)


def _opened(
    sender: "Publisher | Worker", handing_over: HandingOver, receiver: str, stack: ExitStack
) -> HandingOver:
    """Start the sender. At its end ``handing_over`` gets the number of messages that its driver accepted and lost."""
    stack.callback(lambda: handing_over.ended(sender.counters().get("lost", 0), receiver))
    stack.enter_context(sender)
    return handing_over
