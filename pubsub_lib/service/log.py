"""Where the log lines of ``publisher-service`` go, as its INI file says: oslo.log's options in ``[DEFAULT]``.

By default to stderr, one line each. ``log_file``, ``log_rotation_type``, ``use_journal``, ``use_syslog``, ``use_json``,
``debug`` and ``log_config_append`` are what operators know from every OpenStack service. The library itself logs by
the standard library alone (:mod:`pubsub_lib.logs`).
"""

import contextlib
import io
import logging
from typing import Final

from oslo_config import cfg
from oslo_log import formatters, log

from pubsub_lib.errors import ConfigError
from pubsub_lib.logs import PREFIX

NAME: Final = "publisher-service"
_ELSEWHERE: Final = ("log_file", "log_dir", "log_config_append", "use_journal", "use_syslog")
_POOL: Final = "pubsub_lib.store.fork_safety.GatedPool=WARN"
"""It logs as SQLAlchemy's own pools do, which oslo.log keeps as quiet by their names."""
_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class FieldsFilter(logging.Filter):
    """Shows the structured fields of a record (:func:`pubsub_lib.logs.fields`) where oslo.log's JSON has its extras."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Lets every record pass."""
        record.extra = {name: value for name, value in vars(record).items() if name.startswith(PREFIX)}
        return True


class Formatter(formatters.ContextFormatter):
    """oslo.log's, without what it appends to every line that is logged while an exception is handled: our sentences
    say already what happened, and said it twice then.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One record's line."""
        text: str = super().format(record)
        summary = getattr(record, "error_summary", "")
        asked_for = "%(error_summary)s" in self.conf.logging_default_format_string
        return text if asked_for or record.exc_info or not summary else text.removesuffix(f": {summary}")


def set_up(config_file: str, level: str = "") -> None:
    """Send log lines where the file says. ``level`` (of the command line) goes before ``debug`` in the file.

    To be called once, by a program and in its main thread. Raises ConfigError for a file that cannot be read, an
    option that cannot be used, or a log file that cannot be opened.
    """
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    for form in ("logging_default_format_string", "logging_context_format_string"):
        conf.set_default(form, _LINE)
    conf.set_default("default_log_levels", [*log.get_default_log_levels(), _POOL])
    said = io.StringIO()
    try:
        # oslo.config ends the program for a value that is not of an option's type; the sentence is on stderr then.
        with contextlib.redirect_stderr(said):
            _read(conf, config_file)
        conf.set_default("use_stderr", not any(conf[name] for name in _ELSEWHERE))
        log.setup(conf, NAME)
    except (cfg.Error, log.LogConfigError, OSError, ValueError, SystemExit) as error:
        reason = _one_line(said.getvalue() or error)
        raise ConfigError(
            f"the logging options in {config_file!r} cannot be used: {reason}; correct them in [DEFAULT]"
        ) from error
    root = logging.getLogger()
    for handler in root.handlers:
        handler.addFilter(FieldsFilter())
        if type(handler.formatter) is formatters.ContextFormatter:
            handler.setFormatter(Formatter(project=NAME, version="", datefmt=conf.log_date_format, config=conf))
    if level:
        root.setLevel(level.upper())


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
