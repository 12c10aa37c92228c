"""From the command line to an open store: settings, a store that only reads, and one that writes and publishes."""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

import msgspec
from cliff.command import Command
from oslo_config import cfg

from pubsub_lib import options
from pubsub_lib.core.model import Heads, Link
from pubsub_lib.errors import ConfigError, PubSubError, TransportError
from pubsub_lib.masking import has_password, masked
from pubsub_lib.publisher.opening import hands_over, is_bound
from pubsub_lib.publisher.publisher import Publisher
from pubsub_lib.publisher.worker import Worker
from pubsub_lib.settings import Settings, check_names, files_of
from pubsub_lib.store import Store, url

_log = logging.getLogger("pubsub_lib.cli")


class Sender(Protocol):
    """What takes links after their commit: a :class:`Worker`'s ``hand_over`` or a :class:`Publisher`'s ``publish``."""

    def __call__(self, links: Sequence[Link]) -> None:
        """Send, or raise a PubSubError."""


class HandingOver:
    """Hands every commit to a sender until that fails once. What it could not hand over is in the changelog."""

    def __init__(self, how: str, send: Sender | None, error: PubSubError | None = None) -> None:
        self.how = how
        """In words: who is told about a commit."""
        self.sent = 0
        """Transactions that were handed over."""
        self.error = error
        """Why the rest was not."""
        self._send = send
        self._said = False

    def __call__(self, links: Sequence[Link]) -> None:
        """For ``Store.on_commit``."""
        if self._send is not None and self.error is None:
            try:
                self._send(links)
                self.sent += 1
            except PubSubError as error:
                self.error = error
        if self.error is not None and not self._said:
            # Once: waiting anew after each of a thousand transactions would help nobody.
            self._said = True
            _log.warning("what is written is stored, but replicas hear of it later: %s", self.error)


class _WithoutCommits:
    """What a publisher or a worker needs of a store, except the commits: :class:`HandingOver` passes them on, because
    an error in doing so is shown to the user of the command, once, and not logged for each commit.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.limits = store.limits

    def read_heads(self, topics: Collection[str]) -> Heads:
        return self._store.read_heads(topics)

    def on_commit(self, callback: Callable[[Sequence[Link]], None], *, after_fork: bool = False) -> Callable[[], None]:
        return lambda: None


class Writing(msgspec.Struct, frozen=True):
    """A store that may be written, and how its commits are published."""

    store: Store
    handing_over: HandingOver
    settings: Settings


def settings_of(command: Command) -> Settings:
    """The settings by ``--config-file``, ``--config-dir`` and ``--database``. Blocks for reading the files.

    Raises ConfigError, DriverError.
    """
    given = command.app_args
    assert given is not None, "a command is run with its options"
    conf = cfg.ConfigOpts()
    arguments = [f"--config-file={each}" for each in given.config_file]
    arguments += [f"--config-dir={each}" for each in given.config_dir]
    try:
        conf(args=arguments, project="pubsub_lib", prog="pubsub-db")
    except UnicodeDecodeError as error:  # which does not say where
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
        # A dollar sign would begin the name of another option, as in the file.
        conf.set_override("store_url", given.database.replace("$", "$$"), group=options.GROUP)
    elif not conf.config_file and not conf.config_dir and not conf[options.GROUP].store_url:
        raise ConfigError("there is no configuration; give --config-file PATH, or --database URL")
    settings = Settings.from_conf(conf)
    for path in files_of(conf):
        check_names(path)
    return settings


def shown(settings: Settings) -> str:
    """The database's URL as it was given, for people: without its passwords. Raises ConfigError."""
    return url.shown(settings.store_url)


@contextmanager
def reading(command: Command) -> Iterator[Store]:
    """The store, for reading only; a standby will do. Raises ConfigError, StoreError."""
    settings = settings_of(command)
    with Store(settings, read_only=True) as store:
        yield store


@contextmanager
def writing(command: Command, settings: Settings | None = None) -> Iterator[Writing]:
    """The store, for writing; what is committed goes to the publisher that the settings name.

    ``settings``: those of the command, where it has read them already.

    By a connect-based driver this process publishes itself. With a bind-based one the host's publisher service does,
    to whom a worker hands over. Without either, what is written has no origin, and the service that holds the lease
    for such changes publishes it (rule S10); where none runs, replicas find it at their next poll.

    Raises ConfigError, DriverError, TransportError, StoreError.
    """
    settings = settings or settings_of(command)
    with ExitStack() as stack:
        origin = settings.service if _publishes(settings) else ""
        store = stack.enter_context(Store(settings, origin=origin, create=False))
        handing_over = _handing_over(settings, store, stack)
        stack.callback(store.on_commit(handing_over))
        yield Writing(store, handing_over, settings)


def _publishes(settings: Settings) -> bool:
    return bool(settings.service) and settings.driver != options.POLLING_DRIVER


def _handing_over(settings: Settings, store: Store, stack: ExitStack) -> HandingOver:
    if not _publishes(settings):
        return HandingOver("nobody: replicas poll, or a service takes over what has no origin", None)
    if not is_bound(settings):
        publisher = stack.enter_context(Publisher(settings, _WithoutCommits(store)))
        return HandingOver(f"replicas, by {settings.driver}", publisher.publish)
    if hands_over(settings):
        how = f"the service {settings.service!r}, by {settings.multiproc_driver}"
        if settings.service not in {each.service for each in store.directory.live()}:
            # Asked for here, because a worker buffers for a service that is away: this process will not live to see it.
            away = TransportError(f"the publisher service {settings.service!r} does not run (it has no live lease)")
            return HandingOver(how, None, away)
        worker = stack.enter_context(Worker(settings, _WithoutCommits(store)))
        return HandingOver(how, worker.hand_over)
    return HandingOver(f"nobody: {settings.driver} needs a service, and pub_sub_use_multiproc is off", None)
