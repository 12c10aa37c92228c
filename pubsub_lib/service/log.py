"""The log output of ``publisher-service``, configured in its INI file: oslo.log's options in ``[DEFAULT]``.

By default the log goes to stderr, one line per record. ``log_file``, ``log_rotation_type``, ``use_journal``,
``use_syslog``, ``use_json``, ``debug`` and ``log_config_append`` are known from every OpenStack service. The library
itself logs only by the standard library (:mod:`pubsub_lib.logs`).
"""

import contextlib
import io
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from oslo_config import cfg
from oslo_log import formatters, log

from pubsub_lib.command.signals import is_no_interrupt
from pubsub_lib.errors import ConfigError
from pubsub_lib.logs import PREFIX

NAME: Final = "publisher-service"
_ELSEWHERE: Final = ("log_file", "log_dir", "log_config_append", "use_journal", "use_syslog")
_POOL: Final = "pubsub_lib.store.fork_safety.GatedPool=WARN"
"""The level of our pool, which logs like SQLAlchemy's own pools; oslo.log sets the same level for those by name."""
_OWN: Final = ("sqlalchemy=WARN", _POOL)
"""The levels that SQLAlchemy and our pool set at their import. They hold when the options name no other ones."""
LEVELS: Final = ("debug", "default_log_levels")
"""The options that :func:`set_levels` changes in a running program."""
_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class FieldsFilter(logging.Filter):
    """Shows the structured fields of a record (:func:`pubsub_lib.logs.fields`) where oslo.log's JSON has its extras."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Accept every record."""
        record.extra = {name: value for name, value in vars(record).items() if name.startswith(PREFIX)}
        return True


class Formatter(formatters.ContextFormatter):
    """oslo.log's formatter without the exception summary. oslo.log appends it to every line that is logged while an
    exception is handled; our sentences already contain the exception, so the line would contain it twice.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        text: str = super().format(record)
        summary = getattr(record, "error_summary", "")
        asked_for = "%(error_summary)s" in self.conf.logging_default_format_string
        return text if asked_for or record.exc_info or not summary else text.removesuffix(f": {summary}")


Values = Mapping[str, Any]
"""The logging options of a file, by name."""


def set_up(config_file: str, level: str = "") -> Values:
    """Configure the log output from the file. ``level`` (of the command line) takes precedence over ``debug`` there.
    Returns the options.

    To be called once, by a program and in its main thread. Raises ConfigError for a file that cannot be read, an
    invalid option, or a log file that cannot be opened.
    """
    with _checked(config_file) as conf:
        found = dict(conf)
        log.setup(conf, NAME)
    root = logging.getLogger()
    for handler in root.handlers:
        handler.addFilter(FieldsFilter())
        handler.addFilter(is_no_interrupt)  # Ctrl-C before the service runs raises KeyboardInterrupt
        if type(handler.formatter) is formatters.ContextFormatter:
            handler.setFormatter(Formatter(project=NAME, version="", datefmt=conf.log_date_format, config=conf))
    if level:
        root.setLevel(level.upper())
    return found


def read(config_file: str) -> Values:
    """The options as the file has them now; nothing is configured. Raises ConfigError as :func:`set_up`."""
    with _checked(config_file) as conf:
        _levels(conf["default_log_levels"])
        return dict(conf)


def set_levels(now: Values, before: Values, level: str = "") -> None:
    """Set the levels of :data:`LEVELS` in a running program. ``before``: the options that were in use; ``level``: that
    of the command line. With ``log_config_append`` the levels are in that file, and no level is changed. Raises
    ValueError for an invalid level in ``now``; then no level is changed.
    """
    if now["log_config_append"] or before["log_config_append"]:
        return
    own = _levels(_OWN)
    levels = {name: own.get(name, logging.NOTSET) for name in _names(before["default_log_levels"])}
    wanted = _levels(now["default_log_levels"])
    levels.update(wanted)
    root = logging.getLogger()
    if not level:
        root.setLevel(logging.DEBUG if now["debug"] else logging.INFO)
    for name, value in levels.items():
        found = logging.getLogger(name)
        if found is root and (level or name not in wanted):
            continue  # "" and "root" name the root logger, which has its level already
        found.setLevel(value)


def _names(pairs: Iterable[str]) -> list[str]:
    """The loggers in ``logger=LEVEL``."""
    return [each.partition("=")[0] for each in pairs]


def _levels(pairs: Iterable[str]) -> dict[str, int]:
    """The level of each logger in ``logger=LEVEL``, a number or a name as for oslo.log. Raises ValueError."""
    known = logging.getLevelNamesMapping()
    found = {}
    for name, _, level in (each.partition("=") for each in pairs):
        try:
            found[name] = known[level] if level in known else int(level)
        except ValueError as error:
            raise ValueError(f"unknown level {level!r} of the logger {name!r} in default_log_levels") from error
    return found


@contextlib.contextmanager
def _checked(config_file: str) -> Iterator[cfg.ConfigOpts]:
    """The options of the file. Errors of reading and of the block are ConfigErrors that name the file."""
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    for form in ("logging_default_format_string", "logging_context_format_string"):
        conf.set_default(form, _LINE)
    conf.set_default("default_log_levels", [*log.get_default_log_levels(), _POOL])
    printed = io.StringIO()
    try:
        # oslo.config exits the program for a value of a wrong type; then it prints the error to stderr.
        with contextlib.redirect_stderr(printed):
            _read(conf, config_file)
        conf.set_default("use_stderr", not any(conf[name] for name in _ELSEWHERE))
        yield conf
    except RecursionError as error:
        raise ConfigError(
            f"the logging options in {config_file!r} cannot be used: an option refers by $ to itself, directly or "
            "through another option; correct them in [DEFAULT]"
        ) from error
    except (cfg.Error, log.LogConfigError, OSError, ValueError, SystemExit) as error:
        reason = _one_line(printed.getvalue() or error)
        raise ConfigError(
            f"the logging options in {config_file!r} cannot be used: {reason}; correct them in [DEFAULT]"
        ) from error


def _read(conf: cfg.ConfigOpts, config_file: str) -> None:
    try:
        conf(args=[], project=NAME, default_config_files=[config_file], default_config_dirs=[])
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the configuration file {config_file!r} cannot be read: it is not text in UTF-8; name a file in INI format"
        ) from error
    except (
        cfg.ConfigFilesNotFoundError,
        cfg.ConfigFilesPermissionDeniedError,
        cfg.ConfigFileParseError,
        OSError,  # a folder
    ) as error:
        raise ConfigError(
            f"the configuration file {config_file!r} cannot be read: {_one_line(error)}; "
            "name a readable file in INI format"
        ) from error


def _one_line(error: object) -> str:
    return " ".join(str(error).split()).rstrip(".")
